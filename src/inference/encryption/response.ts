// Encrypts a response. The status stays in plaintext; headers that would reveal content and each piece of the body, as
// it arrives, are encrypted. Effects: reads one response.

import { responseNonceHeader, sealedHeaderNames, sealedHeadersHeader } from '../../attest/ehbp/protocol.ts'
import type { ResponseSealing } from '../../attest/ehbp/server.ts'

export async function encryptResponse(response: Response, sealing: ResponseSealing): Promise<Response> {
  const { status, body } = response
  if (body === null) return response
  const headers = await encryptHeaders(response.headers, sealing)
  const isStream = headers.get('content-type')?.startsWith('text/event-stream') === true
  const encrypted = isStream
    ? encryptStream(body, sealing)
    : encryptWhole(new Uint8Array(await response.arrayBuffer()), sealing)
  return new Response(encrypted, { status, headers })
}

async function encryptHeaders(plain: Headers, sealing: ResponseSealing): Promise<Headers> {
  const headers = new Headers(plain)
  const hidden = sealedHeaderNames.flatMap(name => {
    const value = headers.get(name)
    headers.delete(name)
    return value === null ? [] : [[name, value] as const]
  })
  if (hidden.length > 0) headers.set(sealedHeadersHeader, await sealing.sealHeaders(Object.fromEntries(hidden)))
  headers.set(responseNonceHeader, sealing.nonce)
  return headers
}

/** Encrypts piece by piece as the client reads; nothing is buffered. */
function encryptStream(body: ReadableStream<Uint8Array>, sealing: ResponseSealing): ReadableStream<Uint8Array> {
  const reader = body.getReader()
  return new ReadableStream<Uint8Array>(
    {
      pull: async controller => {
        const next = await reader.read()
        if (next.done) controller.close()
        else controller.enqueue(await sealing.seal(next.value))
      },
      cancel: reason => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  )
}

/** Returns a stream, because EHBP's responses have no Content-Length (SPEC.md section 4.2). */
function encryptWhole(plain: Uint8Array, sealing: ResponseSealing): ReadableStream<Uint8Array> {
  let at = 0
  return new ReadableStream<Uint8Array>(
    {
      pull: async controller => {
        controller.enqueue(await sealing.seal(plain.subarray(at, at + turnBytes)))
        at += turnBytes
        if (at >= plain.length) controller.close()
      },
    },
    { highWaterMark: 0 },
  )
}

/** Bytes encrypted before yielding: about 0.2 ms. */
const turnBytes = 524_288
