// Spans of the inference gateway as they travel: from a gateway VM to its host, and to whatever exports them. Pure.
//
// Ids, counts, times and words of fixed lists. There is no field that could hold text of a request, a key, a user or a
// tool.

import { OneOf } from '../check.ts'
import { Closed, OrNull } from '../forms.ts'
import { type Static, Type } from '../type.ts'
import { FINISH_REASONS, finishReasonsMax } from './finish-reasons.ts'

const Count = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })
const Micros = Type.Integer({ minimum: 0, maximum: 4_000_000_000_000_000 })
const TraceId = Type.String({ pattern: '^[0-9a-f]{32}$' })
const SpanId = Type.String({ pattern: '^[0-9a-f]{16}$' })
const Model = Type.String({ minLength: 1, maxLength: 256 })
const Upstream = Type.String({ minLength: 1, maxLength: 64 })
/** Why it failed, as a code; null if it did not. */
const ErrorCode = OrNull(Type.String({ pattern: '^[a-z0-9_]{1,40}$' }))

const place = {
  traceId: TraceId,
  spanId: SpanId,
  /** Microseconds since the Unix epoch. */
  startUs: Micros,
  durationUs: Micros,
  operation: OneOf(['chat', 'text_completion', 'embeddings', 'rerank']),
  /** Model of the catalog; `unknown` if the request named another. */
  model: Model,
  error: ErrorCode,
}

/** One admitted request, from its headers to the end of its response. */
export const RequestSpan = Closed({
  kind: Type.Literal('request'),
  ...place,
  /** The client's span (W3C Trace Context); null if it named none. */
  parentId: OrNull(SpanId),
  /** The gateway's id of the request, as usage, log and `x-request-id` have it. */
  requestId: Type.String({ pattern: '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' }),
  /** Upstream of the last attempt; null if none was tried. */
  upstream: OrNull(Upstream),
  /** Null if the request could not be read. */
  stream: OrNull(Type.Boolean()),
  status: Type.Integer({ minimum: 100, maximum: 599 }),
  outcome: OneOf(['completed', 'aborted', 'failed']),
  inputTokens: Count,
  outputTokens: Count,
  tokensSource: OneOf(['reported', 'estimated', 'implausible']),
  /** Finish reasons of the choices that ended. */
  finishReasons: Type.Array(OneOf(FINISH_REASONS), { maxItems: finishReasonsMax }),
  /** Wait for an upstream. */
  queueUs: Micros,
  firstChunkUs: OrNull(Micros),
})
export type RequestSpan = Static<typeof RequestSpan>

/** One upstream that was tried for a request. */
export const AttemptSpan = Closed({
  kind: Type.Literal('attempt'),
  ...place,
  /** The request's span. */
  parentId: SpanId,
  upstream: Upstream,
})
export type AttemptSpan = Static<typeof AttemptSpan>

export const TraceSpan = Type.Union([RequestSpan, AttemptSpan])
export type TraceSpan = Static<typeof TraceSpan>
