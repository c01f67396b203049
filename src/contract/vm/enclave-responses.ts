// Messages of a gateway VM to its host (enclave.ts), as the host checks them. Pure.

import { OneOf } from '../check.ts'
import { Base64Url, Closed, OrNull, Sha256 } from '../forms.ts'
import { type Static, Type } from '../type.ts'
import {
  Amounts,
  Count,
  Day,
  id,
  metricsPieceCharsMax,
  ServerName,
  spansPieceMax,
  UsedModel,
  usageLabelCharsMax,
  usageRowsMax,
} from './enclave.ts'
import { ShareAsk, sharesOfMessageMax } from './shares.ts'
import { TraceSpan } from './span.ts'

/** One request's usage. Ids and counts; text of a request only if `usageLabels` of the workload allows it. */
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
  /** Number of tokens of the prompt that came from a cache. Default: none. */
  cachedTokens: Type.Optional(Count),
  tokensSource: OneOf(['reported', 'estimated', 'implausible']),
  outcome: OneOf(['completed', 'aborted', 'failed']),
  /** Default: none. */
  endUser: Type.Optional(Type.String({ minLength: 1, maxLength: usageLabelCharsMax.endUser })),
  /** JSON of an object of strings. Default: none. */
  tags: Type.Optional(Type.String({ minLength: 1, maxLength: usageLabelCharsMax.tags })),
})
export type UsageRow = Static<typeof UsageRow>

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

/**
 * Amounts beside what is booked: those that have to fit into a budget of a month, and those that would be of use. Null
 * if there is no such budget.
 */
const ShareAsked = OrNull(Closed({ need: Amounts, want: Amounts }))

/** A request of the VM. `id` stays the same until it is answered. */
export const HostRequest = Type.Union([
  Closed({
    id,
    kind: Type.Literal('evidence'),
    reportData: Base64Url(64, 64),
    /** The SNP report over these bytes; null if the host's simulation makes it. */
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
    /** The last row of the page before; null means the first page. */
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
   * budgets. Null if there are too many keys to list. Absent if it holds no budgets.
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

export const EnclaveReport = Closed({
  metrics: Type.String({ maxLength: metricsPieceCharsMax }),
  /** How many characters the whole text has. */
  metricsChars: Count,
  log: Type.Array(Closed({ seq: Count, line: Type.String({ maxLength: 1024 }) }), { maxItems: 32 }),
})
export type EnclaveReport = Static<typeof EnclaveReport>

/** `first`: the number of the first of them. */
export const EnclaveSpans = Closed({ first: Count, spans: Type.Array(TraceSpan, { maxItems: spansPieceMax }) })
export type EnclaveSpans = Static<typeof EnclaveSpans>

export const ENCLAVE_RESPONSES = [
  Closed({ id, ok: Type.Literal(true), next: EnclaveNext }),
  Closed({ id, ok: Type.Literal(true), revision: Count }),
  Closed({ id, ok: Type.Literal(true), report: EnclaveReport }),
  Closed({ id, ok: Type.Literal(true), traced: EnclaveSpans }),
  /** Reserved, and used but not booked here. Null if it has lowered nothing because it requests more. */
  Closed({ id, ok: Type.Literal(true), kept: OrNull(Amounts) }),
] as const
