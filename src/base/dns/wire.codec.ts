// Parts that DNS queries and answers have in common (RFC 1035 4.1). Pure.

/** Bits of the second header word, RFC 1035 4.1.1. */
export const FLAG = {
  response: 0x8000,
  opcode: 0x7800,
  authoritative: 0x0400,
  truncated: 0x0200,
  recursion: 0x0100,
  recursionAvailable: 0x0080,
} as const
export const TYPE = {
  A: 1,
  NS: 2,
  CNAME: 5,
  SOA: 6,
  TXT: 16,
  AAAA: 28,
  OPT: 41,
  SSHFP: 44,
  transferIncremental: 251,
  transfer: 252,
  ANY: 255,
} as const
export const CLASS_IN = 1

export const headerBytes = 12
/** Type, class, TTL and length of a record, behind its name. */
const recordFixedBytes = 10
export const nameBytesMax = 255
export const labelBytesMax = 63
export const pointerBits = 0xc000
/** UDP payload size in our OPT: avoids fragments on any path (RFC 6891 6.2.3; value of DNS flag day 2020). */
export const udpPayloadBytes = 1232

/** Type and class of a question, behind its name. */
const questionTailBytes = 4

export type Question = {
  /** The name in the query, one latin-1 string per label. */
  readonly labels: readonly string[]
  readonly type: number
  readonly class: number
  /** The exact question section, returned with its letter case (resolvers use it to detect forgery). */
  readonly bytes: Buffer
}

/** Reads the first question; null if it is malformed. */
export function readQuestion(bytes: Buffer): Question | null {
  const labels: string[] = []
  let at = headerBytes
  for (;;) {
    const sizeBytes = bytes[at]
    // The first name cannot contain a compression pointer, because no name precedes it; 0x40 and 0x80 are not label
    // types.
    if (sizeBytes === undefined || sizeBytes > labelBytesMax) return null
    at += 1
    if (sizeBytes === 0) break
    if (at + sizeBytes > bytes.length || at + sizeBytes - headerBytes >= nameBytesMax) return null
    labels.push(bytes.toString('latin1', at, at + sizeBytes))
    at += sizeBytes
  }
  const end = at + questionTailBytes
  if (end > bytes.length) return null
  return {
    labels,
    type: bytes.readUInt16BE(at),
    class: bytes.readUInt16BE(at + 2),
    bytes: bytes.subarray(headerBytes, end),
  }
}

export type RawRecord = {
  /** Whether its name is the root. */
  readonly isRoot: boolean
  readonly type: number
  readonly class: number
  /** Offset of the TTL. */
  readonly ttlAt: number
  readonly dataAt: number
  readonly end: number
}

/** Returns null if the record is malformed. Its data is not read. */
export function readRecord(bytes: Buffer, start: number): RawRecord | null {
  const nameEnd = skipName(bytes, start)
  if (nameEnd === null || nameEnd + recordFixedBytes > bytes.length) return null
  const dataAt = nameEnd + recordFixedBytes
  const end = dataAt + bytes.readUInt16BE(dataAt - 2)
  if (end > bytes.length) return null
  const [type, recordClass] = [bytes.readUInt16BE(nameEnd), bytes.readUInt16BE(nameEnd + 2)]
  return { isRoot: nameEnd === start + 1, type, class: recordClass, ttlAt: nameEnd + 4, dataAt, end }
}

/** Where the name ends. A pointer ends it: it has to point back, and is not followed. */
function skipName(bytes: Buffer, start: number): number | null {
  let at = start
  for (;;) {
    const sizeBytes = bytes[at]
    if (sizeBytes === undefined) return null
    if (sizeBytes === 0) return at + 1
    if (sizeBytes >= pointerBits >> 8) {
      if (at + 2 > bytes.length) return null
      const target = bytes.readUInt16BE(at) - pointerBits
      return target >= headerBytes && target < start ? at + 2 : null
    }
    at += 1 + sizeBytes
    if (sizeBytes > labelBytesMax || at - start >= nameBytesMax) return null
  }
}
