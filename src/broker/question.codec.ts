// DNS messages of the broker's resolver: reads a query with one question, writes its answer (RFC 1035 4.1, RFC 6891,
// RFC 8914). Pure. Programs choose the bytes.

import { CLASS_IN, FLAG, headerBytes, readQuestion, readRecord, TYPE } from '../base/dns/wire.codec.ts'

export type DnsQuery = {
  /** Lower case, without a dot at its end; a character for each byte. */
  readonly name: string
  readonly type: number
  readonly class: number
  /** Whether the client sent OPT, and so understands extended errors. */
  readonly hasOpt: boolean
  /** End of the question section. */
  readonly questionEnd: number
  readonly bytes: Buffer
}

export const RCODE = { ok: 0, serverFailure: 2, nameError: 3, notImplemented: 4 } as const

export type DnsReply = {
  readonly rcode: (typeof RCODE)[keyof typeof RCODE]
  /** Addresses of the question's type: 4 or 16 bytes each, at most 8. */
  readonly addresses: readonly Uint8Array[]
  /** RFC 8914 4: 15 is "Blocked". */
  readonly extendedError: number | null
}

/** Programs ask again soon, as the owner may change the policy. */
const ttlSeconds = 10
const optionExtendedError = 15

/** Null for a message that gets no answer: a response, or a malformed query. */
export function readQuery(bytes: Buffer): DnsQuery | null {
  if (bytes.length < headerBytes || (bytes.readUInt16BE(2) & (FLAG.response | FLAG.opcode)) !== 0) return null
  if (bytes.readUInt16BE(4) !== 1) return null
  const question = readQuestion(bytes)
  if (question === null) return null
  const questionEnd = headerBytes + question.bytes.length
  return {
    name: question.labels.join('.').toLowerCase(),
    type: question.type,
    class: question.class,
    hasOpt: hasOpt(bytes, questionEnd),
    questionEnd,
    bytes,
  }
}

function hasOpt(bytes: Buffer, start: number): boolean {
  const records = bytes.readUInt16BE(6) + bytes.readUInt16BE(8) + bytes.readUInt16BE(10)
  let at = start
  for (let left = records; left > 0; left -= 1) {
    const record = readRecord(bytes, at)
    if (record === null) return false
    if (record.type === TYPE.OPT) return true
    at = record.end
  }
  return false
}

/** At most 512 bytes: a question of 271, 8 addresses of 28 bytes at most, and OPT of 17. */
export function writeReply(query: DnsQuery, { rcode, addresses, extendedError }: DnsReply): Buffer {
  const { bytes, questionEnd } = query
  const flags = FLAG.response | FLAG.recursionAvailable | (bytes.readUInt16BE(2) & FLAG.recursion) | rcode
  const counts = [1, addresses.length, 0, query.hasOpt ? 1 : 0]
  const parts = [bytes.subarray(0, 2), words(flags, ...counts), bytes.subarray(headerBytes, questionEnd)]
  for (const address of addresses) {
    parts.push(words(0xc000 | headerBytes, query.type, CLASS_IN, 0, ttlSeconds, address.length), Buffer.from(address))
  }
  if (query.hasOpt) {
    const option = extendedError === null ? [] : [optionExtendedError, 2, extendedError]
    parts.push(Buffer.of(0), words(TYPE.OPT, 1_232, 0, 0, option.length * 2, ...option))
  }
  return Buffer.concat(parts)
}

function words(...values: number[]): Buffer {
  return Buffer.from(values.flatMap(value => [value >> 8, value & 0xff]))
}

export { CLASS_IN, TYPE }
