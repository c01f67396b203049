// Messages between host and gateway VM beside contract/vm/agent.ts. Pure.
//
// The host sends requests and the VM answers, as with every guest. Requests of the VM itself (a certificate,
// certificates for its reports, an acknowledgement of usage) stand in its answer to `next`, which it may hold back for
// a while. Every answer repeats the open requests, so a restarted daemon loses none. Each side treats the other as
// hostile: the VM accepts what its report or the control key vouches for, the host what the VM's receipt keys have
// signed.
//
// Schemas of the VM's messages, which only the host checks, are in enclave-responses.ts.

import { concat, utf8 } from '../../base/bytes.ts'
import { OneOf } from '../check.ts'
import { Base64Url, Closed, OrNull, Sha256, Sha384 } from '../forms.ts'
import { EndUserBudget, KeyAliases, KeyModels, ShortBudgets } from '../key-rules.ts'
import { type Static, Type } from '../type.ts'
import { ShareGrant, sharesOfMessageMax } from './shares.ts'

export const id = Type.String({ minLength: 1, maxLength: 64 })
export const Count = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })

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

/** Budgets for a calendar month (UTC); null means no bound. VMs of earlier releases take none with `shortBudgets`. */
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
   * Set if the client made the key. By default the host minted it. VMs of earlier releases accept only keys without it.
   */
  clientMade: Type.Optional(Type.Literal(true)),
  ...budget,
  /** Default: end users have no budget. */
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
      /** Default: the price of other prompt tokens. */
      cached_prompt_usd_per_million: Type.Optional(Price),
    }),
    { maxItems: 1024 },
  ),
  /**
   * Set if hosts of a fleet share the keys' limits: a key is served within the part that the host is granted
   * (`shares_for`), and within its own limits. By default this gateway has all of the limits.
   */
  shared: Type.Optional(Type.Literal(true)),
  /** API keys to send to upstreams, by the upstream's name. */
  upstreamKeys: Type.Record(Type.String(), Type.String({ pattern: '^[\\x21-\\x7e]{1,4096}$' })),
})
export type ControlSnapshot = Static<typeof ControlSnapshot>

export const UsedModel = Type.String({ maxLength: 256 })
/** In UTC. */
export const Day = Type.String({ pattern: '^[0-9]{4}-[0-9]{2}-[0-9]{2}$' })

/** Longest labels of a request, in characters. */
export const usageLabelCharsMax = { endUser: 256, tags: 768 } as const

/** Rows of a batch. */
export const usageRowsMax = 128

/** The bytes that the control key signs for a snapshot. */
export function controlMessage(snapshot: Uint8Array): Uint8Array {
  return concat(utf8(controlDomain), snapshot)
}

export const ServerName = Type.String({ minLength: 1, maxLength: 255 })

/** A certificate for clients that call this name, a wildcard perhaps. */
const NamedCertificate = Closed({
  serverName: ServerName,
  cert: Type.String({ maxLength: 8_192 }),
})

export const Amounts = Closed({ nanoUsd: Count, tokens: Count })

const sums = { requests: Count, promptTokens: Count, completionTokens: Count, costNanoUsd: Count }
const MonthSum = Closed(sums)

/** `allowed`: so much of a budget this host may use in the month, spent and reserved. `spent`: by it, as booked. */
const Share = Closed({ spent: MonthSum, allowed: Amounts })

/** The answer to a request of kind `spent`: all of it as of one moment. */
export const MonthSums = Closed({
  key: MonthSum,
  /** All keys of the organization. */
  organization: MonthSum,
  /** Number of rows of this VM's usage that are in the sums. */
  booked: Count,
  /** Another VM, or another host, may add to them. */
  isShared: Type.Boolean(),
  /**
   * Only in a fleet, on request: these count for budgets, while the sums are of all hosts. Never less than in an
   * earlier answer to this VM, unless it was requested to lower it. `isKnown`: false while the fleet is unreachable.
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
  /** Number of rows of this VM's usage that are in the sums. */
  booked: Count,
})
export type DaySums = Static<typeof DaySums>

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
  /** A piece of a document: base64 of its bytes from `offset` on. Offset 0 starts over. */
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
   * Answered at once if a request is not in `known`, there is usage after `booked`, or the status differs from the last
   * one reported; otherwise when that happens, or after `waitMs`. `booked`: how many rows of this VM's usage are
   * recorded.
   */
  Closed({
    id,
    op: Type.Literal('next'),
    known: Type.Array(id, { maxItems: 16 }),
    booked: Count,
    waitMs: Type.Integer({ minimum: 0, maximum: 30_000 }),
  }),
  /** The answer to a request of kind `evidence`. `problem`: why it is unavailable now. */
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
  /** The host has other certificates, or other names: the VM requests them, unless its own have this stamp. */
  Closed({ id, op: Type.Literal('certificates'), stamp: Sha256 }),
  /** The answer to a request of kind `spent`. */
  Closed({ id, op: Type.Literal('spent_for'), want: id, sums: MonthSums }),
  /**
   * The VM is to count on nothing of this host's part of a budget (`shares` of an answer to `spent`; an empty key:
   * the organization's) before it has requested one again, and reports what it keeps.
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
   * A piece of its metrics as Prometheus text, from the character `metricsFrom` on, and lines of its log from
   * `logFrom` on. 0 takes a new text of the metrics; larger offsets continue the same text.
   */
  Closed({ id, op: Type.Literal('report'), logFrom: Count, metricsFrom: Count }),
  /**
   * Finished spans from number `from` on, counted from 0 in the life of one process, which drops earlier ones. Missing
   * numbers were dropped for lack of room.
   */
  Closed({ id, op: Type.Literal('spans'), from: Count }),
  /** No new requests from now on; those that run may end. */
  Closed({ id, op: Type.Literal('drain') }),
] as const

export type EnclaveRequest = Static<(typeof ENCLAVE_REQUESTS)[number]>

/** Longest piece of the metrics: beside log lines, and with any characters, it fits into a line of the channel. */
export const metricsPieceCharsMax = 32_768

/** In one answer. */
export const spansPieceMax = 64
