// Reads DNS queries and writes responses in wire format (RFC 1035 4.1, 6891, 7873, 9619). Pure: bytes in, bytes out.
//
// Implemented here because strangers choose the bytes. Names after the question are skipped without following pointers,
// so reading is linear in the message. Names in responses point into the question (RFC 1035 4.1.4): every response fits
// the 512 bytes that any client accepts over UDP, so none is truncated for size.

import { assert } from '../../base/assert.ts'
import {
  CLASS_IN,
  FLAG,
  headerBytes,
  pointerBits,
  type Question,
  type RawRecord,
  readQuestion,
  readRecord,
  TYPE,
  udpPayloadBytes,
} from '../../base/dns/wire.codec.ts'

/**
 * A query's OPT record (RFC 6891 6.1.2). Ignores the client's payload size, because every response fits the minimum.
 */
export type Edns = {
  readonly version: number
  /** Whether the client supports DNSSEC records (RFC 3225). */
  readonly dnssecOk: boolean
  /** DNS cookie (RFC 7873 4); null without one. */
  readonly cookie: { readonly client: Uint8Array; readonly server: Uint8Array | null } | null
}

export type Query = {
  readonly id: number
  /** Second word of the header. */
  readonly flags: number
  /** Null if the client only requests a cookie (RFC 7873 5.4). */
  readonly question: Question | null
  readonly edns: Edns | null
}

export type QueryRead =
  | { readonly kind: 'query'; readonly query: Query }
  /** The complete response to a message that cannot be processed. */
  | { readonly kind: 'refused'; readonly response: Uint8Array }
  /** Too short for a header, or itself a response: it gets no response. */
  | { readonly kind: 'ignored' }

export const RCODE = {
  ok: 0,
  formatError: 1,
  serverFailure: 2,
  nameError: 3,
  notImplemented: 4,
  refused: 5,
  badVersion: 16,
} as const
const optionCookie = 10
/** Option code of extended errors (RFC 8914 2). */
const optionExtendedError = 15
const cookieClientBytes = 8
/** Length of a server cookie (RFC 7873 4.2). */
const cookieServerBytes = { min: 8, max: 32 } as const
/** Limit of RFC 1035 4.2.1. */
const responseBytesMax = 512

/** Reads a query. Never throws, for any bytes. */
export function readQuery(message: Uint8Array): QueryRead {
  const bytes = Buffer.isBuffer(message) ? message : Buffer.from(message.buffer, message.byteOffset, message.byteLength)
  if (bytes.length < headerBytes) return { kind: 'ignored' }
  const [id, flags] = [bytes.readUInt16BE(0), bytes.readUInt16BE(2)]
  // Do not respond to responses, because two servers could otherwise send each other messages forever.
  if ((flags & FLAG.response) !== 0) return { kind: 'ignored' }
  if ((flags & FLAG.opcode) !== 0) return refused(id, flags, RCODE.notImplemented)
  const content = readContent(bytes)
  return content === null
    ? refused(id, flags, RCODE.formatError)
    : { kind: 'query', query: { id, flags, question: content.question, edns: content.edns } }
}

/** Returns id, opcode and RD of the query with a code, without sections. */
function refused(id: number, flags: number, rcode: number): QueryRead {
  const response = Buffer.alloc(headerBytes)
  response.writeUInt16BE(id, 0)
  response.writeUInt16BE(FLAG.response | (flags & (FLAG.opcode | FLAG.recursion)) | rcode, 2)
  return { kind: 'refused', response }
}

/** Reads the sections; null if the message is malformed. */
function readContent(bytes: Buffer): Pick<Query, 'question' | 'edns'> | null {
  const questions = bytes.readUInt16BE(4)
  const notAdditional = bytes.readUInt16BE(6) + bytes.readUInt16BE(8)
  const records = notAdditional + bytes.readUInt16BE(10)
  // One question, or none in a request for only a cookie (RFC 9619).
  if (questions > 1) return null
  const question = questions === 1 ? readQuestion(bytes) : null
  if (questions === 1 && question === null) return null
  let at = headerBytes + (question?.bytes.length ?? 0)
  let edns: Edns | null = null
  for (let index = 0; index < records; index += 1) {
    const record = readRecord(bytes, at)
    if (record === null) return null
    at = record.end
    if (record.type !== TYPE.OPT) continue
    // At most one, among the additional records, with the root as its name (RFC 6891 6.1.1).
    if (edns !== null || index < notAdditional || !record.isRoot) return null
    edns = readOpt(bytes, record)
    if (edns === null) return null
  }
  if (at !== bytes.length) return null
  return question === null && (edns?.cookie ?? null) === null ? null : { question, edns }
}

function readOpt(bytes: Buffer, { ttlAt, dataAt, end }: RawRecord): Edns | null {
  const version = bytes[ttlAt + 1] ?? 0
  const dnssecOk = ((bytes[ttlAt + 2] ?? 0) & 0x80) !== 0
  // Only version 0 defines the form of options.
  if (version !== 0) return { version, dnssecOk, cookie: null }
  let cookie: Edns['cookie'] = null
  for (let at = dataAt; at < end; ) {
    if (at + 4 > end) return null
    const [code, sizeBytes] = [bytes.readUInt16BE(at), bytes.readUInt16BE(at + 2)]
    const valueAt = at + 4
    at = valueAt + sizeBytes
    if (at > end) return null
    // Use the first cookie (RFC 7873 5.2) and ignore unknown options (RFC 6891 6.1.2).
    if (code !== optionCookie || cookie !== null) continue
    const serverBytes = sizeBytes - cookieClientBytes
    if (serverBytes !== 0 && (serverBytes < cookieServerBytes.min || serverBytes > cookieServerBytes.max)) return null
    const client = bytes.subarray(valueAt, valueAt + cookieClientBytes)
    cookie = { client, server: serverBytes === 0 ? null : bytes.subarray(valueAt + cookieClientBytes, at) }
  }
  return { version, dnssecOk, cookie }
}

/** A name in the response: at most one label, then a pointer into the question. */
export type NamePointer = { readonly label?: string; readonly at: number }

export type DnsRecord = { readonly owner: NamePointer; readonly ttlSeconds: number } & (
  | { readonly type: 'A' | 'AAAA'; readonly address: Uint8Array }
  | { readonly type: 'NS'; readonly server: NamePointer }
  /** At most 255 characters, ASCII. */
  | { readonly type: 'TXT'; readonly text: string }
  | { readonly type: 'SOA'; readonly data: Soa }
  | { readonly type: 'SSHFP'; readonly algorithm: number; readonly hash: number; readonly fingerprint: Uint8Array }
)

/** RFC 1035 3.3.13; times in seconds. */
export type Soa = {
  readonly server: NamePointer
  readonly mailbox: NamePointer
  readonly serial: number
  readonly refresh: number
  readonly retry: number
  readonly expire: number
  readonly minimum: number
}

export type DnsReply = {
  /** Up to 12 bits. Bits that do not fit the header are sent in the OPT record (RFC 6891 6.1.3). */
  readonly rcode: number
  readonly authoritative: boolean
  /** Empty and truncated: the client must retry over TCP (RFC 2181 9). */
  readonly truncated: boolean
  readonly answers: readonly DnsRecord[]
  readonly authorities: readonly DnsRecord[]
  readonly additionals: readonly DnsRecord[]
  /** Whether other servers are queried for external names (RA). */
  readonly recursion?: boolean
  /** Why the answer is empty, for clients that support OPT (RFC 8914 4). */
  readonly extendedError?: number
}

/**
 * Encodes a response of at most 512 bytes. If the query has OPT, so does the response: version 0, DO as in the query
 * (RFC 3225 3), the given cookie, and none of the client's options.
 */
export function writeResponse(
  { id, flags, question, edns }: Query,
  reply: DnsReply,
  cookie: Uint8Array | null,
): Uint8Array {
  const { rcode, authoritative, truncated, answers, authorities, additionals, recursion = false } = reply
  const writer = new Writer()
  writer.u16(id)
  writer.u16(
    FLAG.response |
      (flags & FLAG.recursion) |
      (authoritative ? FLAG.authoritative : 0) |
      (truncated ? FLAG.truncated : 0) |
      (recursion ? FLAG.recursionAvailable : 0) |
      (rcode & 0xf),
  )
  writer.u16(question === null ? 0 : 1)
  writer.u16(answers.length)
  writer.u16(authorities.length)
  writer.u16(additionals.length + (edns === null ? 0 : 1))
  if (question !== null) writer.bytes(question.bytes)
  for (const record of answers) writer.record(record)
  for (const record of authorities) writer.record(record)
  for (const record of additionals) writer.record(record)
  if (edns !== null) writer.opt(rcode >> 4, edns.dnssecOk, { cookie, extendedError: reply.extendedError ?? null })
  return writer.written()
}

/** Writes into a fixed buffer. Asserts that every write fits. */
class Writer {
  readonly #bytes = Buffer.allocUnsafe(responseBytesMax)
  #at = 0

  written(): Uint8Array {
    return this.#bytes.subarray(0, this.#at)
  }

  u16(value: number): void {
    this.#at = this.#bytes.writeUInt16BE(value, this.#at)
  }

  u32(value: number): void {
    this.#at = this.#bytes.writeUInt32BE(value, this.#at)
  }

  bytes(bytes: Uint8Array): void {
    assert(this.#at + bytes.length <= responseBytesMax, 'a response fits 512 bytes')
    this.#bytes.set(bytes, this.#at)
    this.#at += bytes.length
  }

  name({ label, at }: NamePointer): void {
    if (label !== undefined) {
      this.bytes(Uint8Array.of(label.length))
      this.bytes(Buffer.from(label, 'latin1'))
    }
    this.u16(pointerBits | at)
  }

  record(record: DnsRecord): void {
    this.name(record.owner)
    this.u16(TYPE[record.type])
    this.u16(CLASS_IN)
    this.u32(record.ttlSeconds)
    const lengthAt = this.#at
    this.u16(0)
    this.#data(record)
    this.#bytes.writeUInt16BE(this.#at - lengthAt - 2, lengthAt)
  }

  #data(record: DnsRecord): void {
    switch (record.type) {
      case 'A':
      case 'AAAA':
        this.bytes(record.address)
        break
      case 'NS':
        this.name(record.server)
        break
      case 'TXT':
        // A single character string (RFC 1035 3.3.14, 3.3).
        this.bytes(Uint8Array.of(record.text.length))
        this.bytes(Buffer.from(record.text, 'latin1'))
        break
      case 'SOA': {
        const { server, mailbox, serial, refresh, retry, expire, minimum } = record.data
        this.name(server)
        this.name(mailbox)
        for (const value of [serial, refresh, retry, expire, minimum]) this.u32(value)
        break
      }
      case 'SSHFP':
        this.bytes(Uint8Array.of(record.algorithm, record.hash))
        this.bytes(record.fingerprint)
    }
  }

  opt(
    rcodeHigh: number,
    dnssecOk: boolean,
    { cookie, extendedError }: { readonly cookie: Uint8Array | null; readonly extendedError: number | null },
  ): void {
    this.bytes(Uint8Array.of(0))
    this.u16(TYPE.OPT)
    this.u16(udpPayloadBytes)
    this.u16(rcodeHigh << 8)
    this.u16(dnssecOk ? 0x8000 : 0)
    this.u16((cookie === null ? 0 : 4 + cookie.length) + (extendedError === null ? 0 : 6))
    if (cookie !== null) {
      this.u16(optionCookie)
      this.u16(cookie.length)
      this.bytes(cookie)
    }
    if (extendedError === null) return
    this.u16(optionExtendedError)
    this.u16(2)
    this.u16(extendedError)
  }
}
