// Chooses the records of `{domain}` that answer a question (RFC 1034 4.3.2, 2308, 4255, 4343, 8020, 8482). Pure.

import { CLASS_IN, headerBytes, type Question, TYPE } from '../../base/dns/wire.codec.ts'
import { type DnsRecord, type DnsReply, type NamePointer, type Query, RCODE } from './message.codec.ts'

export type Zone = {
  /** Lowercase, without a trailing dot. */
  readonly domain: string
  /** Labels directly below the domain for the appliance itself. No organization can have them. */
  readonly hosts: ReadonlySet<string>
  /** SOA serial, 32 bits. */
  readonly serial: number
  /** TXT records of pending proofs (RFC 8555 8.4), by the name in front of the domain. */
  readonly texts: ReadonlyMap<string, readonly string[]>
  /** Whether names one label below an instance have its addresses: those of published ports. */
  readonly publishes: boolean
}

export type NameRecords = {
  /** Null if it only has an address of the other kind. */
  readonly v4: Uint8Array | null
  readonly v6: Uint8Array | null
  /** SHA-256 of the blob of its SSH host key (ed25519) if it is attested; otherwise null. */
  readonly fingerprint: Uint8Array | null
}
/** Resolves `{name}.{slug}`, lowercase, or a key of `hostKey`; null if unknown. */
export type ResolveName = (name: string) => NameRecords | null

/**
 * Limit on hosts of a fleet in one answer, so that a forged question cannot cause a long one. No share: limits one
 * answer.
 */
export const hostsPerAnswerMax = 4
/** IPv6 addresses are longer. */
const v6PerAnswerMax = 3

/** Returns the name table's key for the n-th host with a label; clients cannot query it. */
export function hostKey(label: string, n: number): string {
  return n === 0 ? label : `${label} ${n}`
}

/** How long resolvers may cache a record or its absence. Short, because an instance may appear at any moment. */
export const ttlSeconds = 5
/** The name server's label under the domain. */
const nameServerLabel = 'ns'
const mailboxLabel = 'hostmaster'

const NOTHING = { authoritative: false, truncated: false, answers: [], authorities: [], additionals: [] } as const
const REFUSED: DnsReply = { ...NOTHING, rcode: RCODE.refused }
/** The response to an unsupported version names the supported one (RFC 6891 6.1.3). */
const BAD_VERSION: DnsReply = { ...NOTHING, rcode: RCODE.badVersion }
/** Response to a request for only a cookie. */
const EMPTY: DnsReply = { ...NOTHING, rcode: RCODE.ok }
/** Response to clients over the rate, whose address may be forged. */
export const TRUNCATED: DnsReply = { ...NOTHING, rcode: RCODE.ok, truncated: true }

export function answerQuery({ question, edns }: Query, zone: Zone, resolve: ResolveName): DnsReply {
  if (edns !== null && edns.version !== 0) return BAD_VERSION
  if (question === null) return EMPTY
  if (question.class !== CLASS_IN) return REFUSED
  // A transfer would reveal every host name at once.
  if (question.type === TYPE.transfer || question.type === TYPE.transferIncremental) return REFUSED
  const below = labelsBelow(question.labels, zone.domain)
  if (below === null) return REFUSED
  const asked: NameQuery = { question, zone, resolve, apex: apexOf(below) }
  const [first, second] = below
  if (first === undefined) return atApex(asked)
  const texts = below.some(label => label.includes('.')) ? undefined : zone.texts.get(below.join('.'))
  if (texts !== undefined) return atTexts(asked, texts)
  if (second === undefined) {
    // A label here is one of our hosts, or is or could be an organization. All except hosts get the same response, as
    // if names existed below each (RFC 8020 3.1), so responses do not reveal which organizations exist.
    return atNames(asked, zone.hosts.has(first) ? hostsOf(first, resolve) : [])
  }
  const [instance = '', slug = ''] = below.slice(-2)
  const isOurs = below.length === 2 || (zone.publishes && below.length === 3)
  const isWellFormed = !zone.hosts.has(slug) && below.every(label => LABEL.test(label))
  const found = isOurs && isWellFormed ? resolve(`${instance}.${slug}`) : null
  if (found === null) return negative(asked, RCODE.nameError)
  // A published port has no SSH host key.
  return atNames(asked, [below.length === 2 ? found : { ...found, fingerprint: null }])
}

function hostsOf(label: string, resolve: ResolveName): NameRecords[] {
  const hosts: NameRecords[] = []
  for (let n = 0; n < hostsPerAnswerMax; n += 1) {
    const found = resolve(hostKey(label, n))
    if (found === null) break
    hosts.push(found)
  }
  return hosts
}

type NameQuery = {
  readonly question: Question
  readonly zone: Zone
  readonly resolve: ResolveName
  /** Pointer to the domain within the question. */
  readonly apex: NamePointer
}

const QUESTION: NamePointer = { at: headerBytes }

/** Characters of names and slugs. A label in wire format may contain any byte, even dots. */
const LABEL = /^[a-z0-9-]{1,63}$/

/** Returns the lowercase labels in front of the domain; null if the name is not in the zone. */
function labelsBelow(labels: readonly string[], domain: string): string[] | null {
  const suffix = domain.split('.')
  const count = labels.length - suffix.length
  if (count < 0) return null
  // Only A to Z fold (RFC 4343 3). Other latin-1 letters fold to non-ASCII, which occurs in no name here.
  const lower = labels.map(label => label.toLowerCase())
  return suffix.every((label, index) => lower[count + index] === label) ? lower.slice(0, count) : null
}

function apexOf(below: readonly string[]): NamePointer {
  return { at: below.reduce((at, label) => at + 1 + label.length, headerBytes) }
}

function atApex({ question, zone, resolve, apex }: NameQuery): DnsReply {
  switch (question.type) {
    case TYPE.SOA:
    // One set of records is a sufficient answer to ANY (RFC 8482 4.1).
    case TYPE.ANY:
      return positive([soa(apex, zone)])
    case TYPE.NS: {
      const server = { label: nameServerLabel, ...apex }
      const found = resolve(nameServerLabel)
      // Step 6 of RFC 1034 4.3.2.
      const additionals =
        found === null ? [] : [...addresses(server, found, TYPE.A), ...addresses(server, found, TYPE.AAAA)]
      return { ...positive([{ type: 'NS', owner: apex, ttlSeconds, server }]), additionals }
    }
    default:
      return negative({ zone, apex }, RCODE.ok)
  }
}

/** A few fit into every response, and a pending proof has one. No share: limits one answer. */
const textsMax = 2

function atTexts(asked: NameQuery, texts: readonly string[]): DnsReply {
  const { type } = asked.question
  if (type !== TYPE.TXT && type !== TYPE.ANY) return negative(asked, RCODE.ok)
  // Use the newest: an interrupted proof may have left an older one.
  return positive(texts.slice(-textsMax).map(text => ({ type: 'TXT', owner: QUESTION, ttlSeconds: 0, text })))
}

/**
 * Answers with their addresses, or the fingerprint of an SSH host key. ANY gets addresses of only one kind (RFC 8482
 * 4.1).
 */
function atNames(asked: NameQuery, all: readonly NameRecords[]): DnsReply {
  const { type } = asked.question
  const kind = type !== TYPE.ANY ? type : all.some(({ v4 }) => v4 !== null) ? TYPE.A : TYPE.AAAA
  const records = all.flatMap(found => recordsOf(kind, found)).slice(0, kind === TYPE.AAAA ? v6PerAnswerMax : undefined)
  return records.length === 0 ? negative(asked, RCODE.ok) : positive(records)
}

function recordsOf(type: number, found: NameRecords): readonly DnsRecord[] {
  switch (type) {
    case TYPE.A:
    case TYPE.AAAA:
      return addresses(QUESTION, found, type)
    case TYPE.SSHFP: {
      const { fingerprint } = found
      return fingerprint === null ? [] : [{ type: 'SSHFP', owner: QUESTION, ttlSeconds, ...SSHFP_NUMBERS, fingerprint }]
    }
    default:
      return []
  }
}

/** Key algorithm Ed25519 (RFC 8709 6), fingerprint SHA-256 (RFC 6594 4.1.2). SHA-1 is not served. */
const SSHFP_NUMBERS = { algorithm: 4, hash: 2 } as const

function addresses(
  owner: NamePointer,
  { v4, v6 }: NameRecords,
  type: typeof TYPE.A | typeof TYPE.AAAA,
): readonly DnsRecord[] {
  const address = type === TYPE.A ? v4 : v6
  return address === null ? [] : [{ type: type === TYPE.A ? 'A' : 'AAAA', owner, ttlSeconds, address }]
}

function positive(answers: readonly DnsRecord[]): DnsReply {
  return { ...NOTHING, rcode: RCODE.ok, authoritative: true, answers }
}

/** Returns a negative response, in which the SOA limits how long the absence may be cached (RFC 2308 2). */
function negative({ zone, apex }: Pick<NameQuery, 'zone' | 'apex'>, rcode: number): DnsReply {
  return { ...NOTHING, rcode, authoritative: true, authorities: [soa(apex, zone)] }
}

function soa(owner: NamePointer, { serial }: Zone): DnsRecord {
  return {
    type: 'SOA',
    owner,
    ttlSeconds,
    data: {
      server: { label: nameServerLabel, ...owner },
      mailbox: { label: mailboxLabel, ...owner },
      serial,
      // There are no secondaries: these are moderate values for tools that check them.
      refresh: 3600,
      retry: 600,
      expire: 86_400,
      minimum: ttlSeconds,
    },
  }
}
