// Decides which requests are traced and records them. Effects: reads a clock and randomness; passes finished spans on.
//
// An untraced request has no object here. A traced one costs a few calls per attempt and at its end, none per chunk.

import type { Clock } from '../../base/clock.ts'
import type { RandomBytes } from '../../base/ids.ts'
import { FINISH_REASONS, type FinishReason, finishReasonsMax } from '../../contract/vm/finish-reasons.ts'
import type { AttemptSpan, RequestSpan, TraceSpan } from '../../contract/vm/span.ts'
import type { TraceSettings } from '../../contract/vm/workload.ts'
import type { Operation } from '../types.ts'
import { parseTraceparent, type TraceParent, traceparentOf } from './traceparent.codec.ts'

export type TracerDeps = {
  readonly settings: TraceSettings
  /** Receives a finished span; must not throw. */
  readonly offer: (span: TraceSpan) => void
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'>
  readonly random: RandomBytes
}

/** The model's operation in the terms of the conventions; translated APIs are chats. */
const SPAN_OPERATIONS: Readonly<Record<Operation, TraceSpan['operation']>> = {
  chat: 'chat',
  text_completion: 'text_completion',
  responses: 'chat',
  compact: 'chat',
  messages: 'chat',
  count_tokens: 'chat',
  input_tokens: 'chat',
  embeddings: 'embeddings',
  rerank: 'rerank',
}

export type TracedRequest = { readonly headers: Headers; readonly id: string; readonly operation: Operation }

/** The end of a request as its account reports it. */
export type TraceEnd = {
  readonly model: string
  readonly upstream: string | null
  readonly status: number
  readonly outcome: RequestSpan['outcome']
  readonly errorCode: string | null
  readonly tokens: { readonly prompt: number; readonly completion: number }
  readonly tokensSource: RequestSpan['tokensSource']
  readonly queueMs: number
  readonly firstChunkMs: number | null
}

/** Begins the trace of a request; null if the request is not traced. */
export type BeginTrace = (request: TracedRequest) => RequestTrace | null

const [traceIdBytes, spanIdBytes] = [16, 8]
/** Resolution of the sampling ratio. */
const shares = 2 ** 32

export function createTracer(deps: TracerDeps): BeginTrace {
  const { settings, random } = deps
  return ({ headers, id, operation }) => {
    const parent = parseTraceparent(headers.get('traceparent'))
    // Not derived from the trace's id, because the client chooses it and must not choose the sampling.
    const isSampled =
      settings.followParent && parent !== null
        ? parent.isSampled
        : Buffer.from(random(4)).readUInt32LE() < settings.sampleRatio * shares
    return isSampled ? new RequestTrace(deps, { id, operation, parent }) : null
  }
}

type StartedTrace = { readonly id: string; readonly operation: Operation; readonly parent: TraceParent | null }
type OpenAttempt = { readonly spanId: string; readonly upstream: string; readonly startedMs: number }

export class RequestTrace {
  /** Whether the client requested a stream; null until the request has been read. */
  isStream: boolean | null = null
  /** Finish reasons as sent to the client. */
  finishReasons: readonly string[] = []
  readonly #deps: TracerDeps
  readonly #begun: StartedTrace
  readonly #traceId: string
  readonly #spanId: string
  readonly #startUs: number
  readonly #startedMs: number
  #attempt: OpenAttempt | null = null
  readonly #attempts: Omit<AttemptSpan, 'model'>[] = []
  #isOpen = true

  constructor(deps: TracerDeps, begun: StartedTrace) {
    const { clock, random } = deps
    this.#deps = deps
    this.#begun = begun
    this.#traceId = begun.parent?.traceId ?? newId(random, traceIdBytes)
    this.#spanId = newId(random, spanIdBytes)
    this.#startUs = microsOf(clock.nowMs())
    this.#startedMs = clock.monotonicMs()
  }

  /** Returns the header that names this attempt to its upstream; null if the upstream gets none. */
  beginAttempt(upstream: string): string | null {
    const { clock, random, settings } = this.#deps
    this.#attempt = { spanId: newId(random, spanIdBytes), upstream, startedMs: clock.monotonicMs() }
    return settings.forwardParent ? traceparentOf(this.#traceId, this.#attempt.spanId) : null
  }

  /** Ends the attempt. `error`: a code; null if it succeeded. No effect without a running attempt. */
  endAttempt(error: string | null): void {
    if (this.#attempt === null) return
    const { spanId, upstream, startedMs } = this.#attempt
    this.#attempt = null
    this.#attempts.push({
      kind: 'attempt',
      traceId: this.#traceId,
      spanId,
      parentId: this.#spanId,
      upstream,
      error,
      operation: SPAN_OPERATIONS[this.#begun.operation],
      startUs: this.#startUs + microsOf(startedMs - this.#startedMs),
      durationUs: microsOf(this.#deps.clock.monotonicMs() - startedMs),
    })
  }

  /** Passes the spans on, once. */
  end({ model, upstream, status, outcome, errorCode, tokens, tokensSource, queueMs, firstChunkMs }: TraceEnd): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    this.endAttempt(outcome === 'completed' ? null : (errorCode ?? outcome))
    const { clock, offer } = this.#deps
    const { id, parent } = this.#begun
    const operation = SPAN_OPERATIONS[this.#begun.operation]
    for (const attempt of this.#attempts) offer({ ...attempt, model })
    offer({
      kind: 'request',
      traceId: this.#traceId,
      spanId: this.#spanId,
      parentId: parent?.spanId ?? null,
      requestId: id,
      operation,
      model,
      upstream,
      stream: this.isStream,
      status,
      outcome,
      error: errorCode,
      startUs: this.#startUs,
      durationUs: microsOf(clock.monotonicMs() - this.#startedMs),
      inputTokens: countOf(tokens.prompt),
      outputTokens: countOf(tokens.completion),
      tokensSource,
      finishReasons: this.finishReasons.filter(isFinishReason).slice(0, finishReasonsMax),
      queueUs: microsOf(queueMs),
      firstChunkUs: firstChunkMs === null ? null : microsOf(firstChunkMs),
    })
  }
}

/** Returns an id that is not all zeros, because that value is invalid. */
function newId(random: RandomBytes, lengthBytes: number): string {
  const bytes = random(lengthBytes)
  if (bytes.every(byte => byte === 0)) bytes[0] = 1
  return bytes.toHex()
}

function microsOf(ms: number): number {
  return Math.max(0, Math.round(ms * 1_000))
}

function isFinishReason(reason: string): reason is FinishReason {
  return (FINISH_REASONS as readonly string[]).includes(reason)
}

function countOf(value: number): number {
  return Number.isNaN(value) ? 0 : Math.trunc(Math.min(Math.max(value, 0), Number.MAX_SAFE_INTEGER))
}
