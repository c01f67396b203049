// Converts one request on a connection with a known peer to a web request, and sends the response back. Effects: that
// connection.

import type { IncomingMessage, ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { ReadableStream as NodeStream } from 'node:stream/web'
import type { AdminProblem } from '../../contract/admin/admin.ts'

/** Handles one request. Never rejects. The request's signal is aborted if the connection ends first. */
export async function exchange(
  { incoming, outgoing }: { readonly incoming: IncomingMessage; readonly outgoing: ServerResponse },
  handle: (request: Request) => Promise<Response>,
): Promise<void> {
  const gone = new AbortController()
  outgoing.on('close', () => gone.abort())
  // The connection may end before the response.
  outgoing.on('error', () => gone.abort())
  try {
    const request = requestOf(incoming, gone.signal)
    await send(outgoing, request === null ? problemResponse(400, BAD_TARGET) : await handle(request))
  } catch {
    outgoing.destroy()
  }
}

const BAD_TARGET: AdminProblem = {
  error: { code: 'invalid_request', message: 'the request is none for a path of this interface' },
}

export function problemResponse(status: number, problem: AdminProblem): Response {
  return Response.json(problem, { status })
}

/** Returns the web request; null if the request cannot be meant for this server. Ignores the Host header. */
function requestOf(incoming: IncomingMessage, signal: AbortSignal): Request | null {
  const { method = '', url = '' } = incoming
  if (!METHODS.has(method) || !url.startsWith('/') || url.startsWith('//')) return null
  const headers = new Headers()
  for (let at = 0; at + 1 < incoming.rawHeaders.length; at += 2) {
    headers.append(incoming.rawHeaders[at] ?? '', incoming.rawHeaders[at + 1] ?? '')
  }
  const hasBody = headers.has('content-length') || headers.has('transfer-encoding')
  const body = !hasBody || method === 'GET' || method === 'HEAD' ? null : bodyOf(incoming)
  return new Request(`http://strongroom${url}`, { method, headers, signal, body })
}

const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'DELETE', 'PUT', 'PATCH', 'OPTIONS'])

function bodyOf(incoming: IncomingMessage): ReadableStream<Uint8Array> {
  return Readable.toWeb(incoming) as unknown as ReadableStream<Uint8Array>
}

async function send(outgoing: ServerResponse, response: Response): Promise<void> {
  const headers = Object.fromEntries(response.headers)
  outgoing.writeHead(response.status, headers)
  if (response.body === null) {
    outgoing.end()
    return
  }
  outgoing.flushHeaders()
  // Also ends the body's stream when the client leaves.
  await pipeline(Readable.fromWeb(response.body as unknown as NodeStream), outgoing)
}
