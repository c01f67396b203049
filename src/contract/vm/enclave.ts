// Messages between host and gateway VM beside contract/vm/agent.ts. Pure.
//
// The host asks and the VM answers, as with every guest. Requests of the VM itself (a certificate, certificates for its
// reports, an acknowledgement of usage) stand in its answer to `next`, which it may hold back for a while. Every answer
// repeats the open requests, so a restarted daemon loses none. Each side takes the other for hostile: the VM believes
// what its report or the control key vouches for, the host what the VM's receipt keys have signed.

import { concat, utf8 } from '../../base/bytes.ts'
import { OneOf } from '../check.ts'
import { Base64Url, Closed, OrNull, Sha256, Sha384 } from '../forms.ts'
import { EndUserBudget, KeyAliases, KeyModels, ShortBudgets } from '../key-rules.ts'
import { type Static, Type } from '../type.ts'
import { ShareAsk, ShareGrant, sharesOfMessageMax } from './shares.ts'
import { TraceSpan } from './span.ts'

const id = Type.String({ minLength: 1, maxLength: 64 })
const Count = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })

/** Where a gateway VM listens. */
export const gatewayVmPort = 8442

/** Serial of the model's disk, as the guest sees it. */
export const modelDiskSerial = 'model'

/** Largest piece of a document. */
export const pieceBytesMax = 49_152
/** Largest whole document. */
export const documentBytesMax = { workload: 1_048_576, control: 16_777_216 } as const

/** Stands before the bytes that the control key signs. */
const controlDomain = 'strongroom/control/v1\n'

/** Dollars, as in the configuration. */
const Price = Type.String({ pattern: '^[0-9]{1,9}(\\.[0-9]{1,6})?$' })

/** Budgets for a calendar month (UTC); null: no bound. VMs of earlier releases take none with `shortBudgets`. */
const budget = { budgetNanoUsd: OrNull(Count), budgetTokens: OrNull(Count), shortBudgets: Type.Optional(ShortBudgets) }

/** A gateway key: its hash, never the key. */
export const ControlKey = Closed({
  prefix: Type.String({ minLength: 1, maxLength: 32 }),
  secretSha256: Base64Url(32, 32),
  organizationId: Type.String({ minLength: 1, maxLength: 64 }),
  instanceId: OrNull(Type.String({ minLength: 1, maxLength: 64 })),
  requestsPerMinute: OrNull(Count),
  tokensPerMinute: OrNull(Count),
  concurrencyMax: OrNull(Count),
  expiresAtMs: OrNull(Count),
  models: KeyModels,
  aliases: KeyAliases,
  /**
   * The client made the key. Left out: the host minted it. VMs of earlier releases take only keys
   * without it.
   */
  clientMade: Type.Optional(Type.Literal(true)),
  ...budget,
  /** Left out: end users have no budget. */
  endUserBudget: Type.Optional(EndUserBudget),
})
export type ControlKey = Static<typeof ControlKey>

/** Settings that may change while a gateway runs, whole. Keys that are revoked or suspended are left out. */
export const ControlSnapshot = Closed({
  /** Strictly rising; a gateway refuses one that is not above the one in force. */
  revision: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  keys: Type.Array(ControlKey, { maxItems: 65_536 }),
  /** Organizations that have a budget. */
  budgets: Type.Array(Closed({ organizationId: Type.String({ minLength: 1, maxLength: 64 }), ...budget }), {
    maxItems: 65_536,
  }),
  /** Names of members that a gateway of an earlier release may leave out (ignorable.ts). */
  ignorable: Type.Optional(Type.Array(Type.String({ minLength: 1, maxLength: 64 }), { maxItems: 32 })),
  /** Prices of tokens, as in the host's books. */
  prices: Type.Array(
    Closed({
      model: Type.String({ minLength: 1, maxLength: 256 }),
      prompt_usd_per_million: Price,
      completion_usd_per_million: Price,
      /** Left out: as other tokens of the prompt. */
      cached_prompt_usd_per_million: Type.Optional(Price),
    }),
    { maxItems: 1024 },
  ),
  /**
   * Hosts of a fleet share the keys' limits: a key is served within the part that the host is granted (`shares_for`),
   * and within its own limits. Left out: the limits are this gateway's alone.
   */
  shared: Type.Optional(Type.Literal(true)),
  /** API keys to send to upstreams, by the upstream's name. */
  upstreamKeys: Type.Record(Type.String(), Type.String({ pattern: '^[\\x21-\\x7e]{1,4096}$' })),
})
export type ControlSnapshot = Static<typeof ControlSnapshot>

const UsedModel = Type.String({ maxLength: 256 })
/** In UTC. */
const Day = Type.String({ pattern: '^[0-9]{4}-[0-9]{2}-[0-9]{2}$' })

/** Longest labels of a request, in characters. */
export const usageLabelCharsMax = { endUser: 256, tags: 768 } as const

/** One request's usage. Ids and counts; text of a request only where `usageLabels` of the workload says so. */
export const UsageRow = Closed({
  id: Type.String({ minLength: 1, maxLength: 64 }),
  atMs: Count,
  organizationId: Type.String({ minLength: 1, maxLength: 64 }),
  keyPrefix: Type.String({ minLength: 1, maxLength: 32 }),
  instanceId: OrNull(Type.String({ minLength: 1, maxLength: 64 })),
  model: UsedModel,
  upstream: Type.String({ maxLength: 64 }),
  promptTokens: Count,
  completionTokens: Count,
  /** How many tokens of the prompt came out of a cache. Left out: none. */
  cachedTokens: Type.Optional(Count),
  tokensSource: OneOf(['reported', 'estimated', 'implausible']),
  outcome: OneOf(['completed', 'aborted', 'failed']),
  /** Left out: none. */
  endUser: Type.Optional(Type.String({ minLength: 1, maxLength: usageLabelCharsMax.endUser })),
  /** JSON of an object of texts. Left out: none. */
  tags: Type.Optional(Type.String({ minLength: 1, maxLength: usageLabelCharsMax.tags })),
})
export type UsageRow = Static<typeof UsageRow>

export const usageRowsMax = 128
/** Most text of a batch with several rows: a line of the channel holds it and all that goes with it. */
export const usageTextBytesMax = 49_152
/** Stands before the digest that is signed. */
const usageDomain = 'strongroom/usage/v1\n'

/**
 * Rows `from` … `from + rows.length - 1`, counted from 0 in the life of one VM. `digest` is SHA-256 over the digest of
 * the batch before it (32 zero bytes before the first), then the JSON text of `rows`; `signature` is by the Ed25519
 * receipt key.
 */
export const UsageBatch = Closed({
  from: Count,
  rows: Type.Array(UsageRow, { minItems: 1, maxItems: usageRowsMax }),
  before: Sha256,
  digest: Sha256,
  signature: Base64Url(64, 64),
})
export type UsageBatch = Static<typeof UsageBatch>

/** The bytes whose SHA-256 is a batch's digest. */
export function usageBytes(before: Uint8Array, rows: readonly UsageRow[]): Uint8Array {
  return concat(before, utf8(JSON.stringify(rows)))
}

/** The bytes that a batch's signature covers. */
export function usageMessage(digest: Uint8Array): Uint8Array {
  return concat(utf8(usageDomain), digest)
}

/** The bytes that the control key signs for a snapshot. */
export function controlMessage(snapshot: Uint8Array): Uint8Array {
  return concat(utf8(controlDomain), snapshot)
}

const ServerName = Type.String({ minLength: 1, maxLength: 255 })

/** A certificate for clients that call this name, a wildcard perhaps. */
const NamedCertificate = Closed({
  serverName: ServerName,
  cert: Type.String({ maxLength: 8_192 }),
})

const Amounts = Closed({ nanoUsd: Count, tokens: Count })

/**
 * Amounts beside what is booked: those that have to fit into a budget of a month, and those that would be of use. Null:
 * there is no such budget.
 */
const ShareAsked = OrNull(Closed({ need: Amounts, want: Amounts }))

/** A request of the VM. `id` stays the same until it is answered. */
export const HostRequest = Type.Union([
  Closed({
    id,
    kind: Type.Literal('evidence'),
    reportData: Base64Url(64, 64),
    /** The SNP report over these bytes; null where the host's simulation makes it. */
    report: OrNull(Base64Url(1184, 1184)),
  }),
  /**
   * `byName`: this VM chooses certificates by the name that a client calls; those from before that do not ask so.
   * `follows`: it takes `certificates`, and `requests` and `stamp` of the answer; so with those from before that.
   */
  Closed({
    id,
    kind: Type.Literal('certificate'),
    csr: Base64Url(1, 4096),
    byName: Type.Optional(Type.Literal(true)),
    follows: Type.Optional(Type.Literal(true)),
    /** By the same key, each for one name: those that an earlier answer wanted. */
    requests: Type.Optional(Type.Array(Closed({ name: ServerName, csr: Base64Url(1, 2048) }), { maxItems: 32 })),
  }),
  /** Booked usage of a key and its organization in a period (UTC): a month, a day, or the week from a day on. */
  Closed({
    id,
    kind: Type.Literal('spent'),
    organizationId: Type.String({ minLength: 1, maxLength: 64 }),
    keyPrefix: Type.String({ minLength: 1, maxLength: 32 }),
    month: Type.String({ pattern: '^[0-9]{4}-(0[1-9]|1[0-2])(-[0-3][0-9](/P7D)?)?$' }),
    /** Only to a host whose last answer was shared. */
    asked: Type.Optional(Closed({ key: ShareAsked, organization: ShareAsked })),
  }),
  /** Booked usage of a key by day (UTC) and model: one page. */
  Closed({
    id,
    kind: Type.Literal('days'),
    organizationId: Type.String({ minLength: 1, maxLength: 64 }),
    keyPrefix: Type.String({ minLength: 1, maxLength: 32 }),
    /** Both included. */
    from: Day,
    to: Day,
    /** The last row of the page before; null: the first page. */
    after: OrNull(Closed({ day: Day, model: UsedModel })),
  }),
  /** Parts of keys' limits, where the host is in a fleet. `turn` rises with each of a VM's questions. */
  Closed({
    id,
    kind: Type.Literal('shares'),
    turn: Count,
    asks: Type.Array(ShareAsk, { maxItems: sharesOfMessageMax }),
  }),
])
export type HostRequest = Static<typeof HostRequest>

const sums = { requests: Count, promptTokens: Count, completionTokens: Count, costNanoUsd: Count }
const MonthSum = Closed(sums)

/** `allowed`: so much of a budget this host may use in the month, spent and reserved. `spent`: by it, as booked. */
const Share = Closed({ spent: MonthSum, allowed: Amounts })

/** The answer to a request of kind `spent`: all of it as of one moment. */
export const MonthSums = Closed({
  key: MonthSum,
  /** All keys of the organization. */
  organization: MonthSum,
  /** So many rows of this VM's usage are in the sums. */
  booked: Count,
  /** Another VM, or another host, may add to them. */
  isShared: Type.Boolean(),
  /**
   * Only in a fleet, on request: these count for budgets, while the sums are of all hosts. Never less than
   * in an earlier answer to this VM, unless it was asked to lower it. `isKnown`: false while the fleet cannot be asked.
   */
  shares: Type.Optional(Closed({ key: Share, organization: Share, isKnown: Type.Boolean() })),
})
export type MonthSums = Static<typeof MonthSums>

/** Most rows in one page: with the longest names, and any characters, they fit into a line of the channel. */
export const daySumsPageMax = 64

/** The answer to a request of kind `days`: ordered by day, then by the model's UTF-8 bytes; all as of one moment. */
export const DaySums = Closed({
  rows: Type.Array(Closed({ day: Day, model: UsedModel, ...sums }), { maxItems: daySumsPageMax }),
  /** No page follows. */
  isLast: Type.Boolean(),
  /** So many rows of this VM's usage are in the sums. */
  booked: Count,
})
export type DaySums = Static<typeof DaySums>

const ENCLAVE_STATES = ['waiting', 'starting', 'ready', 'draining'] as const
const EnclaveState = OneOf(ENCLAVE_STATES)

/** The gateway's description of itself. Counts and times; never text of a request. */
export const EnclaveStatus = Closed({
  state: EnclaveState,
  /** SHA-256 of the workload in force; null before there is one. */
  workload: OrNull(Sha256),
  /** Revision of the control snapshot in force; 0 before the first. */
  revision: Count,
  /** Requests that run, streams included. */
  running: Count,
  /** Rows of usage that wait for their acknowledgement. */
  usageWaiting: Count,
  /**
   * While it drains: by key, what its requests may still cost and what is not booked, so that its successor can hold
   * budgets. Null for too many keys to list. Absent if it holds no budgets.
   */
  reserved: Type.Optional(
    OrNull(
      Type.Array(
        Closed({
          organizationId: Type.String({ minLength: 1, maxLength: 64 }),
          keyPrefix: Type.String({ minLength: 1, maxLength: 32 }),
          tokens: Count,
          nanoUsd: Count,
        }),
        { maxItems: 256 },
      ),
    ),
  ),
  /** The Ed25519 receipt key, for the signatures of usage. */
  receiptKey: Base64Url(32, 32),
  /** Why it is not ready, in words; null while it is. */
  problem: OrNull(Type.String({ maxLength: 512 })),
})
export type EnclaveStatus = Static<typeof EnclaveStatus>

export const EnclaveNext = Closed({
  status: EnclaveStatus,
  wants: Type.Array(HostRequest, { maxItems: 16 }),
  usage: OrNull(UsageBatch),
})
export type EnclaveNext = Static<typeof EnclaveNext>

/** Completed evidence, as in a receipt (attest/receipt/receipt.ts). */
export const CompletedEvidence = Closed({
  report: Base64Url(1184, 1184),
  vek: Base64Url(1, 4096),
  chain: Type.Tuple([Base64Url(1, 4096), Base64Url(1, 4096)]),
  crl: Type.Optional(Base64Url(1, 16_384)),
})
export type CompletedEvidence = Static<typeof CompletedEvidence>

/** Requests that a gateway VM takes beside `hello`, `network` and `shutdown`. */
export const ENCLAVE_REQUESTS = [
  /** A piece of a document: base64 of its bytes from `offset` on. Offset 0 begins anew. */
  Closed({
    id,
    op: Type.Literal('piece'),
    document: OneOf(['workload', 'control']),
    offset: Count,
    bytes: Type.String({ pattern: '^[A-Za-z0-9+/]*={0,2}$', maxLength: 65_536 }),
  }),
  /**
   * The pieces are workload.json. Refused unless HOST_DATA of this VM's report is its digest; repeats have no effect.
   */
  Closed({
    id,
    op: Type.Literal('workload'),
    sha256: Sha256,
    simulated: OrNull(Closed({ measurement: Sha384, operatorKey: Sha384, hostData: Sha256 })),
  }),
  /** The pieces are a control snapshot. Refused unless the control key signed it and its revision is a higher one. */
  Closed({ id, op: Type.Literal('control'), sha256: Sha256, signature: Base64Url(64, 64) }),
  /** Addresses of upstreams' hosts, as the VM has no resolver. TLS and pins decide whether they are the right ones. */
  Closed({
    id,
    op: Type.Literal('addresses'),
    hosts: Type.Record(
      Type.String({ pattern: '^[A-Za-z0-9.-]{1,253}$' }),
      Type.Array(Type.String({ pattern: '^[0-9.]{7,15}$' }), { maxItems: 8 }),
    ),
  }),
  /**
   * Answered at once when a request is not in `known`, usage behind `booked`, or another status than the
   * last one told; else when there is, or after `waitMs`. `booked`: how many rows of this VM's usage are in the books.
   */
  Closed({
    id,
    op: Type.Literal('next'),
    known: Type.Array(id, { maxItems: 16 }),
    booked: Count,
    waitMs: Type.Integer({ minimum: 0, maximum: 30_000 }),
  }),
  /** The answer to a request of kind `evidence`; `problem`: it cannot be had now, and why. */
  Closed({
    id,
    op: Type.Literal('evidence_for'),
    want: id,
    evidence: OrNull(CompletedEvidence),
    problem: OrNull(Type.String({ maxLength: 512 })),
  }),
  /** The answer to a request of kind `certificate`: PEM chains for the VM's key, for clients and for instances. */
  Closed({
    id,
    op: Type.Literal('certificate_for'),
    want: id,
    clients: Type.String({ maxLength: 32_768 }),
    guests: Type.String({ maxLength: 32_768 }),
    /** For clients that call these names; only for a VM that asked `byName`. */
    named: Type.Optional(Type.Array(NamedCertificate, { maxItems: 128 })),
    /** Names for which the host can have certificates of a public authority; only for a VM that follows. */
    requests: Type.Optional(Type.Array(ServerName, { maxItems: 32 })),
    /** Names what was current when these were made; only for a VM that follows. */
    stamp: Type.Optional(Sha256),
  }),
  /** The host has other certificates, or other names: the VM asks again, unless the ones it has bear this stamp. */
  Closed({ id, op: Type.Literal('certificates'), stamp: Sha256 }),
  /** The answer to a request of kind `spent`. */
  Closed({ id, op: Type.Literal('spent_for'), want: id, sums: MonthSums }),
  /**
   * The VM is to count on nothing of this host's part of a budget (`shares` of an answer to `spent`; an empty key: the
   * organization's) before it has asked again, and says what it keeps of it.
   */
  Closed({
    id,
    op: Type.Literal('lower'),
    organizationId: Type.String({ minLength: 1, maxLength: 64 }),
    keyPrefix: Type.String({ maxLength: 32 }),
    month: Type.String({ pattern: '^[0-9]{4}-(0[1-9]|1[0-2])$' }),
  }),
  /** The answer to a request of kind `days`. */
  Closed({ id, op: Type.Literal('days_for'), want: id, sums: DaySums }),
  /**
   * The answer to a request of kind `shares`; valid for `goodMs` from the request, by the VM's clock. Null if the
   * fleet does not answer. The key's own limits apply anyway, so the host can lower them alone, like a refusal.
   */
  Closed({
    id,
    op: Type.Literal('shares_for'),
    want: id,
    goodMs: OrNull(Count),
    grants: Type.Array(ShareGrant, { maxItems: sharesOfMessageMax }),
  }),
  /**
   * A piece of its metrics as Prometheus text, from the character `metricsFrom` on, and lines of its log from `logFrom`
   * on. 0 takes the metrics anew; what follows are pieces of the same text.
   */
  Closed({ id, op: Type.Literal('report'), logFrom: Count, metricsFrom: Count }),
  /**
   * Finished spans from number `from` on, counted from 0 in the life of one process; those before are forgotten there.
   * Numbers that are missing were dropped for want of room.
   */
  Closed({ id, op: Type.Literal('spans'), from: Count }),
  /** No new requests from now on; those that run may end. */
  Closed({ id, op: Type.Literal('drain') }),
] as const

export type EnclaveRequest = Static<(typeof ENCLAVE_REQUESTS)[number]>

/** Longest piece of the metrics: beside log lines, and with any characters, it fits into a line of the channel. */
export const metricsPieceCharsMax = 32_768

export const EnclaveReport = Closed({
  metrics: Type.String({ maxLength: metricsPieceCharsMax }),
  /** How many characters the whole text has. */
  metricsChars: Count,
  log: Type.Array(Closed({ seq: Count, line: Type.String({ maxLength: 1024 }) }), { maxItems: 32 }),
})
export type EnclaveReport = Static<typeof EnclaveReport>

/** In one answer. */
export const spansPieceMax = 64

/** `first`: the number of the first of them. */
export const EnclaveSpans = Closed({ first: Count, spans: Type.Array(TraceSpan, { maxItems: spansPieceMax }) })
export type EnclaveSpans = Static<typeof EnclaveSpans>

export const ENCLAVE_RESPONSES = [
  Closed({ id, ok: Type.Literal(true), next: EnclaveNext }),
  Closed({ id, ok: Type.Literal(true), revision: Count }),
  Closed({ id, ok: Type.Literal(true), report: EnclaveReport }),
  Closed({ id, ok: Type.Literal(true), traced: EnclaveSpans }),
  /** Reserved, and used but not booked here. Null if it has lowered nothing, because it is requesting more. */
  Closed({ id, ok: Type.Literal(true), kept: OrNull(Amounts) }),
] as const
