// The envelope of service A's responses (contract 2.1): request id, correlation id, and `data` or `error`. Pure.

import { fromUtf8, utf8 } from '../../base/bytes.ts'
import { resultOr } from '../../base/result-or.ts'
import type { FailureEnvelope, Problem } from '../../contract/http/problem.ts'
import type { EdgeContext } from '../../http/edge.ts'
import type { JsonPieces } from '../service.ts'

type EnvelopeRequest = Pick<EdgeContext, 'request' | 'requestId'>

/** The result of a handler. */
export class Reply {
  readonly data: unknown
  readonly status: number
  readonly headers: Readonly<Record<string, string>>

  constructor(data: unknown, { status = 200, headers = {} }: ReplyOptions = {}) {
    this.data = data
    this.status = status
    this.headers = headers
  }
}

type ReplyOptions = { readonly status?: number; readonly headers?: Readonly<Record<string, string>> }

/** `data` that is JSON already, in pieces. */
export class JsonData {
  readonly pieces: JsonPieces

  constructor(pieces: JsonPieces) {
    this.pieces = pieces
  }
}

export function successResponse(asked: EnvelopeRequest, { data, status, headers: own }: Reply): Response {
  if (!(data instanceof JsonData)) return Response.json({ ...ids(asked), data }, { status, headers: own })
  const head = JSON.stringify(ids(asked)).slice(0, -1)
  const headers = { ...own, 'Content-Type': 'application/json;charset=utf-8' }
  const pieces = [`${head},"data":`, ...data.pieces, '}'].map(piece =>
    typeof piece === 'string' ? utf8(piece) : piece,
  )
  return new Response(Buffer.concat(pieces), { status, headers })
}

export function failureEnvelope(asked: EnvelopeRequest, error: Problem): FailureEnvelope {
  return { ...ids(asked), error }
}

/** Returns X-Correlation-ID for the response: the request's value, unless it could end the header line. */
export function correlationHeaders({ request }: EnvelopeRequest): Readonly<Record<string, string>> {
  const correlation = correlationOf(request)
  // Characters of a field value (RFC 9110 5.5): visible characters, space, tab, and bytes from 0x80.
  return correlation !== null && /^[\t\x20-\x7e\x80-\xff]*$/.test(correlation)
    ? { 'X-Correlation-ID': correlation }
    : {}
}

function ids({ request, requestId }: EnvelopeRequest) {
  return { request_id: requestId, correlation_id: readable(correlationOf(request)) }
}

/** Returns the correlation id in Bun's form, one character per byte; null if there is none. */
function correlationOf(request: Request): string | null {
  return request.headers.get('x-correlation-id')
}

/** Decodes UTF-8 bytes, and shows others as Latin-1. */
function readable(correlation: string | null): string | null {
  if (correlation === null || /^[\x00-\x7f]*$/.test(correlation)) return correlation
  return resultOr(() => fromUtf8(Buffer.from(correlation, 'latin1')), correlation)
}
