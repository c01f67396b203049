// Spans as OTLP/JSON, written by OpenTelemetry's own encoder. Names follow the semantic conventions for generative AI
// (gen-ai-spans) and the general ones (error, server, http); `strongroom.` covers the rest. Pure.

import { SpanKind, SpanStatusCode } from '@opentelemetry/api'
import { JsonTraceSerializer } from '@opentelemetry/otlp-transformer'
import { resourceFromAttributes } from '@opentelemetry/resources'
import type { ReadableSpan } from '@opentelemetry/sdk-trace'
import { version } from '../../base/version.ts'
import { GATEWAY_ERROR_CODES } from '../../contract/http/gateway-error.ts'
import type { AttemptSpan, RequestSpan, TraceSpan } from '../../contract/vm/span.ts'
import { REASONS } from '../failure.ts'

/** An upstream as configured. */
export type TracedUpstream = {
  readonly engine: string
  /** Null if it has no address. */
  readonly server: { readonly address: string; readonly port: number } | null
}

/** Names that may be exported, because the sender of spans may be hostile. */
export type OtlpNames = {
  readonly models: ReadonlySet<string>
  readonly upstreams: ReadonlyMap<string, TracedUpstream>
}

type Attributes = ReadableSpan['attributes']

const resource = resourceFromAttributes({ 'service.name': 'strongroom-gateway', 'service.version': version })
const instrumentationScope = { name: 'strongroom', version }
/** The convention's fallback. */
const otherError = '_OTHER'
const ERRORS: ReadonlySet<string> = new Set([
  ...GATEWAY_ERROR_CODES,
  ...Object.keys(REASONS),
  ...['busy', 'aborted', 'failed'],
])
/** A model that is not in the catalog, as in metrics. */
const otherName = 'other'
const sampledFlag = 1

/** Encodes the body of one export. */
export function encodeSpans(spans: readonly TraceSpan[], names: OtlpNames): Uint8Array {
  return JsonTraceSerializer.serializeRequest(spans.map(span => readableSpan(span, names))) ?? new Uint8Array(0)
}

function readableSpan(span: TraceSpan, names: OtlpNames): ReadableSpan {
  const model = names.models.has(span.model) ? span.model : otherName
  const error = span.error === null ? null : ERRORS.has(span.error) ? span.error : otherError
  const common: Attributes = {
    'gen_ai.operation.name': span.operation,
    'gen_ai.request.model': model,
    ...(error === null ? {} : { 'error.type': error }),
  }
  const { traceId, spanId, parentId } = span
  const isRequest = span.kind === 'request'
  return {
    name: `${span.operation} ${model}`,
    kind: isRequest ? SpanKind.SERVER : SpanKind.CLIENT,
    spanContext: () => ({ traceId, spanId, traceFlags: sampledFlag }),
    ...(parentId === null
      ? {}
      : { parentSpanContext: { traceId, spanId: parentId, traceFlags: sampledFlag, isRemote: isRequest } }),
    startTime: hrTime(span.startUs),
    endTime: hrTime(span.startUs + span.durationUs),
    duration: hrTime(span.durationUs),
    // A client's own mistake is not an error of the server (semantic conventions, http-spans: status).
    status: { code: isFailure(span) ? SpanStatusCode.ERROR : SpanStatusCode.UNSET },
    attributes: { ...common, ...(isRequest ? requestAttributes(span, model, names) : attemptAttributes(span, names)) },
    links: [],
    events: [],
    ended: true,
    resource,
    instrumentationScope,
    droppedAttributesCount: 0,
    droppedEventsCount: 0,
    droppedLinksCount: 0,
  }
}

function isFailure(span: TraceSpan): boolean {
  if (span.kind === 'attempt') return span.error !== null && span.error !== 'aborted'
  return span.status >= 500 || (span.outcome === 'failed' && span.status < 400)
}

function requestAttributes(span: RequestSpan, model: string, { upstreams }: OtlpNames): Attributes {
  const { stream, firstChunkUs } = span
  return {
    'gen_ai.provider.name': 'strongroom',
    'http.response.status_code': span.status,
    'strongroom.request.id': span.requestId,
    'strongroom.outcome': span.outcome,
    'strongroom.queue.duration_us': span.queueUs,
    ...(span.upstream === null ? {} : { 'strongroom.upstream': knownName(span.upstream, upstreams) }),
    ...(stream === null ? {} : { 'gen_ai.request.stream': stream }),
    ...(span.outcome === 'completed' ? { 'gen_ai.response.model': model } : {}),
    ...(span.finishReasons.length === 0 ? {} : { 'gen_ai.response.finish_reasons': [...span.finishReasons] }),
    ...(stream === true && firstChunkUs !== null ? { 'gen_ai.response.time_to_first_chunk': firstChunkUs / 1e6 } : {}),
    // A request without an upstream has no token counts, which differs from zero tokens.
    ...(span.upstream === null
      ? {}
      : {
          'gen_ai.usage.input_tokens': span.inputTokens,
          'gen_ai.usage.output_tokens': span.outputTokens,
          'strongroom.usage.source': span.tokensSource,
        }),
  }
}

function attemptAttributes(span: AttemptSpan, { upstreams }: OtlpNames): Attributes {
  const known = upstreams.get(span.upstream)
  const server = known?.server ?? null
  return {
    'gen_ai.provider.name': known?.engine ?? otherName,
    'strongroom.upstream': knownName(span.upstream, upstreams),
    ...(server === null ? {} : { 'server.address': server.address, 'server.port': server.port }),
  }
}

function knownName(name: string, names: ReadonlyMap<string, unknown>): string {
  return names.has(name) ? name : otherName
}

/** Returns the seconds, and the nanoseconds of the current second. */
function hrTime(micros: number): [number, number] {
  return [Math.floor(micros / 1e6), (micros % 1e6) * 1_000]
}
