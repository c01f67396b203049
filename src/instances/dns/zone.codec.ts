// Authoritative answers for `{domain}` (RFC 1035, 2181, 2308, 4255, 6891, 8482). Pure: bytes in, bytes out.
//
// Records are encoded by dns-packet. The question is read here, label by label, and goes back byte for byte: its case is kept
// (resolvers use it against forgery) and a label that holds a dot is never taken for two.

import { type Answer, decode, encode, type OptAnswer } from 'dns-packet'
import { toHex } from '../../base/bytes.ts'

export type Zone = {
  /** Lowercase, without a final dot. */
  readonly domain: string
  /** Labels directly under the domain that name the appliance itself. No organization has them. */
  readonly hosts: ReadonlySet<string>
  /** SOA serial, 32 bits. */
  readonly serial: number
}

export type DnsTransport = 'udp' | 'tcp'
export type Resolved = {
  /** IPv4. */
  readonly address: string
  /** SHA-256 of the blob of its SSH host key (ed25519), once that is attested; else null. */
  readonly fingerprint: Uint8Array | null
}
/** Of `{host}` or `{name}.{slug}`, lowercase; null when there is none. */
export type ResolveName = (name: string) => Resolved | null
export type DnsContext = { readonly zone: Zone; readonly transport: DnsTransport; readonly resolve: ResolveName }

/** How long resolvers may cache a record, or its absence. Short, for an instance may appear at any moment. */
export const ttlSeconds = 5
/** The name server's label under the domain. */
export const nameServerLabel = 'ns'

/** The response to one message. Null: it gets none, being too short to have a header, or itself a response. Never throws. */
export function dnsResponse(message: Uint8Array, context: DnsContext): Uint8Array | null {
  const query = Buffer.from(message.buffer, message.byteOffset, message.byteLength)
  if (query.length < headerBytes) return null
  const flags = query.readUInt16BE(2)
  if ((flags & FLAG.response) !== 0) return null
  if ((flags & FLAG.opcode) !== 0) return headerOnly(query, RCODE.notImplemented)
  const question = readQuestion(query)
  if (question === null) return headerOnly(query, RCODE.formatError)
  const additionals = readAdditionals(query)
  if (additionals === null) return headerOnly(query, RCODE.formatError)
  const options = additionals.filter(record => record.type === 'OPT') as OptAnswer[]
  const [option] = options
  if (options.length > 1) return headerOnly(query, RCODE.formatError)
  // RFC 6891 6.1.3: the response to a version that we do not speak names the one that we do.
  const reply = option !== undefined && option.ednsVersion > 0 ? BAD_VERSION : decide(question, context)
  return write(query, { question, reply, option, transport: context.transport })
}

/**
 * The response that carries nothing but the question and asks for TCP (RFC 2181 9): never longer than the query. Null: it gets none.
 * What cannot be read gets none either; this answers to those who ask too often.
 */
export function truncatedResponse(message: Uint8Array): Uint8Array | null {
  const query = Buffer.from(message.buffer, message.byteOffset, message.byteLength)
  if (query.length < headerBytes) return null
  const flags = query.readUInt16BE(2)
  if ((flags & (FLAG.response | FLAG.opcode)) !== 0) return null
  const question = readQuestion(query)
  if (question === null) return null
  const cut = Buffer.concat([headerOnly(query, RCODE.ok), question.bytes])
  cut.writeUInt16BE(cut.readUInt16BE(2) | FLAG.truncated, 2)
  cut.writeUInt16BE(1, 4)
  return cut
}

const headerBytes = 12
/** Bits of the second header word, RFC 1035 4.1.1. */
const FLAG = { response: 0x8000, opcode: 0x7800, authoritative: 0x0400, truncated: 0x0200, recursion: 0x0100 } as const
const RCODE = { ok: 0, formatError: 1, nameError: 3, notImplemented: 4, refused: 5 } as const
const TYPE = { A: 1, NS: 2, SOA: 6, SSHFP: 44, transferIncremental: 251, transfer: 252, ANY: 255 } as const
const CLASS_IN = 1
/** RFC 1035 4.2.1, and what avoids fragments on any path (RFC 6891 6.2.3 asks for a value; DNS flag day 2020 for this one). */
const UDP_BYTES = { plain: 512, ednsMax: 1232 } as const
const tcpBytesMax = 65_535
const nameBytesMax = 255

type Question = {
  /** As in the query, one string of latin-1 per label. */
  readonly labels: readonly string[]
  readonly type: number
  readonly class: number
  /** The question section, byte for byte. */
  readonly bytes: Buffer
}

type DnsReply = {
  readonly rcode: number
  /** High bits of a 12-bit code, which travel in the OPT record (RFC 6891 6.1.3). */
  readonly extendedRcode?: number
  readonly authoritative: boolean
  readonly answers: readonly Answer[]
  readonly authorities: readonly Answer[]
  /** Addresses of servers that the answers name (RFC 1034 4.3.2, step 6). */
  readonly glue?: readonly Answer[]
}

const REFUSED: DnsReply = { rcode: RCODE.refused, authoritative: false, answers: [], authorities: [] }
const BAD_VERSION: DnsReply = { rcode: 0, extendedRcode: 1, authoritative: false, answers: [], authorities: [] }

/** Exactly one question (RFC 9619), uncompressed, within bounds; else null. */
function readQuestion(query: Buffer): Question | null {
  if (query.readUInt16BE(4) !== 1) return null
  const labels: string[] = []
  let at = headerBytes
  for (;;) {
    const lengthBytes = query[at]
    // Nothing stands before the first name that a compression pointer could mean; 0x40 and 0x80 are no label types.
    if (lengthBytes === undefined || lengthBytes > 63) return null
    at += 1
    if (lengthBytes === 0) break
    if (at + lengthBytes > query.length) return null
    labels.push(query.toString('latin1', at, at + lengthBytes))
    at += lengthBytes
  }
  if (at - headerBytes > nameBytesMax || at + 4 > query.length) return null
  const bytes = query.subarray(headerBytes, at + 4)
  return { labels, type: query.readUInt16BE(at), class: query.readUInt16BE(at + 2), bytes }
}

/** Records behind the question; null when they cannot be read. Most queries of a flood have none, and are not decoded. */
function readAdditionals(query: Buffer): readonly Answer[] | null {
  if (query.readUInt32BE(6) === 0 && query.readUInt16BE(10) === 0) return []
  try {
    return decode(query).additionals ?? []
  } catch {
    return null
  }
}

function decide(question: Question, { zone, resolve }: DnsContext): DnsReply {
  if (question.class !== CLASS_IN) return REFUSED
  const below = labelsBelow(question.labels, zone.domain)
  if (below === null) return REFUSED
  // Transfers would hand out every host name at once.
  if (question.type === TYPE.transfer || question.type === TYPE.transferIncremental) return REFUSED
  const owner = question.labels.join('.')
  const [first, second] = below
  if (first === undefined) return atApex(owner, question.type, { zone, resolve })
  if (second === undefined) {
    // A label here is a host of ours, or is or could be an organization: both get the same response, so nobody learns which ones exist.
    const found = zone.hosts.has(first) ? resolve(first) : null
    return found === null ? negative(zone, RCODE.ok) : nameReply(owner, { found, type: question.type, zone })
  }
  const isOurs = below.length === 2 && !zone.hosts.has(second) && below.every(label => LABEL.test(label))
  const found = isOurs ? resolve(`${first}.${second}`) : null
  return found === null ? negative(zone, RCODE.nameError) : nameReply(owner, { found, type: question.type, zone })
}

/** What names and slugs are made of; a label may hold any byte. */
const LABEL = /^[a-z0-9-]{1,63}$/

/** Lowercase labels in front of the domain, or null when the name is not in the zone. */
function labelsBelow(labels: readonly string[], domain: string): string[] | null {
  const suffix = domain.split('.')
  const lower = labels.map(lowerAscii)
  const count = lower.length - suffix.length
  if (count < 0 || !suffix.every((label, index) => lower[count + index] === label)) return null
  return lower.slice(0, count)
}

/** Only A to Z fold (RFC 4343 3). */
function lowerAscii(label: string): string {
  return label.replace(/[A-Z]/g, letter => letter.toLowerCase())
}

function atApex(owner: string, type: number, { zone, resolve }: Pick<DnsContext, 'zone' | 'resolve'>): DnsReply {
  const server = `${nameServerLabel}.${zone.domain}`
  switch (type) {
    case TYPE.SOA:
    // RFC 8482 4.1: one set of records is answer enough to ANY.
    case TYPE.ANY:
      return positive([soa(owner, zone)])
    case TYPE.NS: {
      const found = resolve(nameServerLabel)
      const glue: Answer[] = found === null ? [] : [addressOf(server, found)]
      return { ...positive([{ type: 'NS', name: owner, ttl: ttlSeconds, data: server }]), glue }
    }
    default:
      return negative(zone, RCODE.ok)
  }
}

type NameQuestion = { readonly found: Resolved; readonly type: number; readonly zone: Zone }

/** An address, and beside it the fingerprint of the SSH host key. ANY gets the address alone: one set of records is answer enough (RFC 8482 4.1). */
function nameReply(owner: string, { found, type, zone }: NameQuestion): DnsReply {
  if (type === TYPE.A || type === TYPE.ANY) return positive([addressOf(owner, found)])
  if (type !== TYPE.SSHFP || found.fingerprint === null) return negative(zone, RCODE.ok)
  const fingerprint = toHex(found.fingerprint)
  return positive([{ type: 'SSHFP', name: owner, ttl: ttlSeconds, data: { ...SSHFP_NUMBERS, fingerprint } }])
}

/** Key algorithm Ed25519 (RFC 8709 6), fingerprint SHA-256 (RFC 6594 4.1.2); SHA-1 is not given. */
const SSHFP_NUMBERS = { algorithm: 4, hash: 2 } as const

function addressOf(owner: string, { address }: Resolved): Answer {
  return { type: 'A', name: owner, ttl: ttlSeconds, data: address }
}

function positive(answers: readonly Answer[]): DnsReply {
  return { rcode: RCODE.ok, authoritative: true, answers, authorities: [] }
}

/** RFC 2308 2: the SOA says how long the absence may be believed. */
function negative(zone: Zone, rcode: number): DnsReply {
  return { rcode, authoritative: true, answers: [], authorities: [soa(zone.domain, zone)] }
}

function soa(owner: string, { domain, serial }: Zone): Answer {
  return {
    type: 'SOA',
    name: owner,
    ttl: ttlSeconds,
    data: {
      mname: `${nameServerLabel}.${domain}`,
      rname: `hostmaster.${domain}`,
      serial,
      // There are no secondaries; these are moderate values for tools that look.
      refresh: 3600,
      retry: 600,
      expire: 86_400,
      minimum: ttlSeconds,
    },
  }
}

type Outgoing = {
  readonly question: Question
  readonly reply: DnsReply
  readonly option: OptAnswer | undefined
  readonly transport: DnsTransport
}

function write(query: Buffer, { question, reply, option, transport }: Outgoing): Uint8Array {
  const limitBytes = transport === 'tcp' ? tcpBytesMax : udpLimit(option)
  const whole = assemble(query, { question, reply, option })
  if (whole.length <= limitBytes) return whole
  // RFC 2181 9: nothing of a set that does not fit; the client asks again over TCP.
  const cut = assemble(query, { question, reply: { ...reply, answers: [], authorities: [], glue: [] }, option })
  cut.writeUInt16BE(cut.readUInt16BE(2) | FLAG.truncated, 2)
  return cut.length <= limitBytes ? cut : headerOnly(query, RCODE.refused)
}

function udpLimit(option: OptAnswer | undefined): number {
  if (option === undefined) return UDP_BYTES.plain
  return Math.min(Math.max(option.udpPayloadSize, UDP_BYTES.plain), UDP_BYTES.ednsMax)
}

function assemble(query: Buffer, { question, reply, option }: Omit<Outgoing, 'transport'>): Buffer {
  const options = option === undefined ? [] : [optionReply(option, reply.extendedRcode ?? 0)]
  const encoded = encode({
    type: 'response',
    id: query.readUInt16BE(0),
    flags: (query.readUInt16BE(2) & FLAG.recursion) | (reply.authoritative ? FLAG.authoritative : 0) | reply.rcode,
    questions: [],
    answers: [...reply.answers],
    authorities: [...reply.authorities],
    additionals: [...(reply.glue ?? []), ...options],
  })
  // dns-packet writes no compression pointers, so the sections may be moved behind the question.
  const whole = Buffer.concat([encoded.subarray(0, headerBytes), question.bytes, encoded.subarray(headerBytes)])
  whole.writeUInt16BE(1, 4)
  return whole
}

/** The DNSSEC-OK bit is echoed (RFC 3225 3); options of the client's are not. */
function optionReply(option: OptAnswer, extendedRcode: number): OptAnswer {
  return {
    type: 'OPT',
    name: '.',
    udpPayloadSize: UDP_BYTES.ednsMax,
    extendedRcode,
    ednsVersion: 0,
    flags: option.flags & 0x8000,
    flag_do: option.flag_do,
    options: [],
  }
}

/** Id, opcode and RD of the query with a code, and no sections. */
function headerOnly(query: Buffer, rcode: number): Buffer {
  const header = Buffer.alloc(headerBytes)
  header.writeUInt16BE(query.readUInt16BE(0), 0)
  header.writeUInt16BE(FLAG.response | (query.readUInt16BE(2) & (FLAG.opcode | FLAG.recursion)) | rcode, 2)
  return header
}
