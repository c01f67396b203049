// DNS messages of a client: writes one question, reads the answer (RFC 1035 4.1, 6891). Pure.
//
// Strangers choose the answer's bytes. A name has at most 255 bytes and 127 pointers, each of which points back, so the
// time of reading is in proportion to the message.

import { assert } from '../assert.ts'
import { formatIpv4 } from '../ipv4.ts'
import { formatIpv6 } from '../ipv6.ts'
import {
  CLASS_IN,
  FLAG,
  headerBytes,
  labelBytesMax,
  nameBytesMax,
  pointerBits,
  type RawRecord,
  readRecord,
  TYPE,
  udpPayloadBytes,
} from './wire.codec.ts'

/** Types of records that are read. */
const TYPES = ['A', 'NS', 'CNAME', 'AAAA'] as const
const CODES = ['NOERROR', 'FORMERR', 'SERVFAIL', 'NXDOMAIN', 'NOTIMP', 'REFUSED'] as const

/** The OPT record of our questions. */
const optBytes = 11
/** Maximum number of labels of a name. No share: limits one name. */
const pointersMax = 127

export type DnsRecord = {
  /** A character for each byte, without a dot at its end; `.` for the root. */
  readonly name: string
  readonly ttl: number
  readonly type: (typeof TYPES)[number]
  /** An address or a name. */
  readonly data: string
}

export type DnsAnswer = {
  /** `NOERROR`, `NXDOMAIN` and so on; `RCODE_` and a number from 6 on. */
  readonly code: string
  /** The answer did not fit a datagram. */
  readonly isTruncated: boolean
  /** Records of other types are left out, here and below. */
  readonly answers: readonly DnsRecord[]
  readonly authorities: readonly DnsRecord[]
  readonly additionals: readonly DnsRecord[]
}

/** Each label of `name` has at most 63 bytes. */
export function encodeQuestion(question: {
  readonly id: number
  readonly name: string
  readonly type: 'A' | 'AAAA' | 'NS'
  readonly recursion: boolean
}): Buffer {
  const { id, name, type, recursion } = question
  const labels = name.split('.').flatMap(label => (label === '' ? [] : [Buffer.from(label, 'latin1')]))
  assert(
    labels.every(({ length }) => length <= labelBytesMax),
    'each label of a question has at most 63 bytes',
  )
  const words = (...values: number[]) => Buffer.from(values.flatMap(value => [value >> 8, value & 0xff]))
  return Buffer.concat([
    words(id, recursion ? FLAG.recursion : 0, 1, 0, 0, 1),
    ...labels.flatMap(label => [Buffer.of(label.length), label]),
    Buffer.of(0),
    words(TYPE[type], CLASS_IN),
    Buffer.of(0),
    words(TYPE.OPT, udpPayloadBytes, 0, 0, 0),
  ])
}

/** Returns `other` if the message answers another question than that of `query`, null if it is malformed. */
export function decodeAnswer(message: Uint8Array, query: Buffer): DnsAnswer | 'other' | null {
  const bytes = Buffer.from(message.buffer, message.byteOffset, message.byteLength)
  const end = query.length - optBytes
  if (bytes.length < end || bytes.readUInt16BE(0) !== query.readUInt16BE(0)) return 'other'
  const flags = bytes.readUInt16BE(2)
  const questionOf = (of: Buffer) => of.toString('latin1', headerBytes, end).toLowerCase()
  const isOne = (flags & FLAG.response) !== 0 && bytes.readUInt16BE(4) === 1
  if (!isOne || questionOf(bytes) !== questionOf(query)) return 'other'
  const sections: DnsRecord[][] = []
  let at = end
  for (const countAt of [6, 8, 10]) {
    const section: DnsRecord[] = []
    for (let left = bytes.readUInt16BE(countAt); left > 0; left -= 1) {
      const raw = readRecord(bytes, at)
      if (raw === null) return null
      const type = TYPES.find(name => TYPE[name] === raw.type)
      if (type !== undefined && raw.class === CLASS_IN) {
        const [name, data] = [readName(bytes, at)?.name, readData(bytes, type, raw)]
        if (name === undefined || data === null) return null
        section.push({ name, ttl: bytes.readUInt32BE(raw.ttlAt), type, data })
      }
      at = raw.end
    }
    sections.push(section)
  }
  const [answers = [], authorities = [], additionals = []] = sections
  const code = CODES[flags & 0xf] ?? `RCODE_${flags & 0xf}`
  return { code, isTruncated: (flags & FLAG.truncated) !== 0, answers, authorities, additionals }
}

function readData(bytes: Buffer, type: DnsRecord['type'], { dataAt, end }: RawRecord): string | null {
  if (type === 'A') return end - dataAt === 4 ? formatIpv4(bytes.readUInt32BE(dataAt)) : null
  if (type === 'AAAA') {
    return end - dataAt === 16 ? formatIpv6(BigInt(`0x${bytes.toString('hex', dataAt, end)}`)) : null
  }
  const read = readName(bytes, dataAt)
  return read?.end === end ? read.name : null
}

/** `end`: of the name at `start`, where a pointer may continue it elsewhere. */
function readName(bytes: Buffer, start: number): { readonly name: string; readonly end: number } | null {
  const labels: string[] = []
  let [at, before, pointers, sizeBytes] = [start, start, 0, 0]
  let end: number | null = null
  for (;;) {
    const labelBytes = bytes[at]
    if (labelBytes === undefined) return null
    if (labelBytes >= pointerBits >> 8) {
      if (at + 2 > bytes.length || pointers === pointersMax) return null
      end ??= at + 2
      pointers += 1
      at = bytes.readUInt16BE(at) - pointerBits
      if (at >= before) return null
      before = at
      continue
    }
    sizeBytes += 1 + labelBytes
    at += 1 + labelBytes
    if (labelBytes > labelBytesMax || sizeBytes > nameBytesMax || at > bytes.length) return null
    if (labelBytes === 0) return { name: labels.join('.') || '.', end: end ?? at }
    labels.push(bytes.toString('latin1', at - labelBytes, at))
  }
}
