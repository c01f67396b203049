// Spans of a made-up request, and what the configuration knows of its upstreams. Pure.

import type { AttemptSpan, RequestSpan } from '../../../src/contract/vm/span.ts'
import type { OtlpNames } from '../../../src/inference/traces/otlp.codec.ts'

const traceId = '0af7651916cd43dd8448eb211c80319c'
export const startUs = 1_763_800_000_123_456

export function requestSpan(changes: Partial<RequestSpan> = {}): RequestSpan {
  return {
    kind: 'request',
    traceId,
    spanId: 'b7ad6b7169203331',
    parentId: 'c7ad6b7169203331',
    startUs,
    durationUs: 1_500_000,
    operation: 'chat',
    model: 'm',
    error: null,
    upstream: 'far',
    stream: true,
    requestId: '0190b1a0-0000-7000-8000-000000000000',
    status: 200,
    outcome: 'completed',
    inputTokens: 11,
    outputTokens: 3,
    tokensSource: 'reported',
    finishReasons: ['stop'],
    queueUs: 250,
    firstChunkUs: 20_500,
    ...changes,
  }
}

export function attemptSpan(changes: Partial<AttemptSpan> = {}): AttemptSpan {
  return {
    kind: 'attempt',
    traceId,
    spanId: 'd7ad6b7169203331',
    parentId: 'b7ad6b7169203331',
    startUs: startUs + 300,
    durationUs: 1_400_000,
    operation: 'chat',
    model: 'm',
    error: null,
    upstream: 'far',
    ...changes,
  }
}

export const traceNames: OtlpNames = {
  models: new Set(['m', 'unknown']),
  upstreams: new Map([
    ['far', { engine: 'vllm', server: { address: 'far.example', port: 8443 } }],
    ['built-in', { engine: 'llama-server', server: null }],
  ]),
}
