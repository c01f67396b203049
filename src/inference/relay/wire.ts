// Messages between the process that decides (the owner) and those that serve clients (the relays). Types only. Both
// ends run the same executable over a private socket.
//
// An ask has a number and gets one reply. A note has no reply. Both keep their order: the owner handles everything that
// a relay sent before a request's end before it ends the request.

import type { TraceSpan } from '../../contract/vm/span.ts'
import type { GatewaySettings } from '../../contract/vm/workload.ts'
import type { NamedCertificate } from '../../http/pair.ts'
import type { ReplayVerdict } from '../encryption/replays.ts'
import type { UpstreamReason } from '../failure.ts'
import type { EnteredCaller } from '../gateway/enter.ts'
import type { EarlierDigests, EarlierSurvey, ResponseFacts } from '../gateway/response-memory.ts'
import type { RequestEnd } from '../metering/account.ts'
import type { EndUser, UsageLabels } from '../metering/labels.ts'
import type { EncryptionCounts, Operation, Refusal, Tokens } from '../types.ts'
import type { QueuePlace } from '../upstream/queue.ts'
import type { TargetHealth } from '../upstream/router.ts'
import type { UpstreamTarget } from '../upstream/target.ts'

/** A Fault with all members of its kind. */
export type WireFault = {
  readonly code: string
  readonly message: string
  readonly param?: string
  readonly reason?: UpstreamReason
  readonly retryAfterSeconds?: number
  readonly mayFitSoon?: boolean
}

/**
 * The first message to a relay: its configuration. Secrets are sent only here, never in arguments or the environment.
 */
export type Setup = {
  readonly kind: 'setup'
  readonly listen: { readonly hostname: string; readonly port: number }
  /** Null for plain HTTP. */
  readonly tls: RelayTls | null
  readonly settings: GatewaySettings
  readonly padsStreams: boolean
  /** Names of the upstreams that are workloads of the attestation. */
  readonly inside: readonly string[]
  /** In the owner's order; later messages refer to them by index. */
  readonly upstreams: readonly UpstreamTarget[]
  readonly keptReceiptsMs: number
  /** Whether the owner keeps the items of responses. */
  readonly keepsResponses: boolean
  /** Seeds of the receipt keys, in hexadecimal. */
  readonly receiptSeeds: string
  /** Secret of the salts of prompt caches, in hexadecimal. */
  readonly cacheSecret: string
  readonly isDraining: boolean
}

export type RelayTls = {
  readonly cert: string
  readonly key: string
  readonly guests: string
  readonly guestName: string
  readonly named: readonly NamedCertificate[]
}

export type FromOwner =
  | Setup
  | { readonly kind: 'reply'; readonly to: number; readonly value: unknown }
  | { readonly kind: 'refusal'; readonly to: number; readonly fault: WireFault }
  | { readonly kind: 'tls'; readonly tls: RelayTls }
  /** Makes clients reconnect from now on. */
  | { readonly kind: 'drain' }
  | { readonly kind: 'ping' }
  /** With `isGraceful`, requests in flight may end; then the relay ends. */
  | { readonly kind: 'stop'; readonly isGraceful: boolean }

type OfRequest = { readonly id: string }

export type Asks = {
  readonly enter: {
    readonly asked: OfRequest & {
      readonly operation: Operation
      readonly authorization: string | null
      readonly fault: WireFault | null
      readonly tokens: number
    }
    readonly value:
      | {
          readonly ok: true
          readonly caller: EnteredCaller
          readonly hasBudget: boolean
          readonly countsEndUser: boolean
          readonly headers: Record<string, string>
        }
      | { readonly ok: false; readonly refusal: Refusal }
  }
  readonly reserve: {
    readonly asked: OfRequest & { readonly model: string; readonly worst: Tokens; readonly endUser: EndUser | null }
    readonly value: null
  }
  readonly acquire: {
    readonly asked: OfRequest & {
      readonly model: string
      readonly except: readonly number[]
      readonly promptEstimate: number
    }
    /** `key`: the upstream's key, if it has changed since the relay last received it. */
    readonly value: {
      readonly target: number
      readonly paceMs: number
      readonly key?: string | null
      /** The TLS key that its evidence names; absent if it shows none. */
      readonly attestedKey?: string | null
    }
  }
  /** Queue position of a waiting request. */
  readonly place: {
    readonly asked: OfRequest
    readonly value: QueuePlace | null
  }
  readonly close: {
    readonly asked: OfRequest & {
      readonly end: RequestEnd
      readonly model: string
      readonly upstream: string | null
      readonly queueMs: number
      readonly firstChunkMs: number | null
      readonly wantsCost: boolean
      readonly labels: UsageLabels
      readonly spans: readonly TraceSpan[]
      /** Replaces the note `release`; null if the request has sent that note, or holds no upstream. */
      readonly released: TargetHealth | null
    }
    /** Cost from the account. */
    readonly value: { readonly costNanoUsd: string | null }
  }
  /** More tokens than at `enter`. */
  readonly reserveTokens: {
    readonly asked: OfRequest & { readonly tokens: number }
    readonly value: null
  }
  /** See the memory of responses. The owner never receives the id of a response. */
  readonly surveyResponses: {
    readonly asked: OfRequest & { readonly digests: EarlierDigests }
    readonly value: EarlierSurvey | null
  }
  /** Text of an earlier response of the same key; null if none is kept. */
  readonly findResponse: {
    readonly asked: OfRequest & { readonly digest: string }
    readonly value: string | null
  }
  /** Marks an encrypted body that was opened. */
  readonly checkReplay: {
    readonly asked: OfRequest & { readonly epoch: string | null; readonly mark: string }
    readonly value: ReplayVerdict
  }
  /** A request that the owner answers. Its body is not sent: none of these requests has a meaningful one. */
  readonly forward: {
    readonly asked: {
      readonly method: string
      /** Path and query. */
      readonly target: string
      readonly headers: readonly (readonly [string, string])[]
      readonly address: string
    }
    readonly value: {
      readonly status: number
      readonly headers: readonly (readonly [string, string])[]
      readonly body: string
    }
  }
}
export type AskName = keyof Asks

export type Ask = { [Name in AskName]: { readonly kind: Name; readonly ask: number } & Asks[Name]['asked'] }[AskName]

export type Note =
  /** The client has left while its request waits for an upstream. */
  | ({ readonly kind: 'cancel' } & OfRequest)
  | ({ readonly kind: 'release'; readonly health: TargetHealth } & OfRequest)
  /** Number of chunks that the clients of streams have received so far. */
  | { readonly kind: 'progress'; readonly delivered: readonly (readonly [id: string, count: number])[] }
  | ({ readonly kind: 'keepReceipt'; readonly text: string } & OfRequest)
  | ({
      readonly kind: 'keepResponse'
      readonly digest: string
      readonly text: string
      readonly facts: ResponseFacts
    } & OfRequest)
  | {
      readonly kind: 'counted'
      readonly suite: keyof EncryptionCounts
      readonly outcome: keyof EncryptionCounts['xwing']
    }
  /** A line of the relay's log. */
  | { readonly kind: 'log'; readonly line: string }
  | { readonly kind: 'listening' }
  | { readonly kind: 'pong' }
  /** The client of a forwarded request has left. */
  | { readonly kind: 'forget'; readonly ask: number }

export type FromRelay = Ask | Note
