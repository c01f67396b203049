// Requests that the owner answers for a relay, with complete bodies in both directions. Effects: those of the
// request.

import { targetOf } from '../../http/head.ts'
import type { Gateway } from '../gateway/gateway.ts'
import type { Asks } from './wire.ts'

export type Forwarded = Asks['forward']['value']

/** Longest response. workload.json may have a megabyte, the OpenAPI document less. */
const responseBytesMax = 8 * 1_048_576

/** Not used by any route; the Host that a client sends need not be valid. */
const origin = 'http://gateway.invalid'

/** Used by the owner: answers the request as received, but without its body, which no forwarded route reads. */
export async function forward(
  { fetch }: Pick<Gateway, 'fetch'>,
  { method, target, headers, address }: Asks['forward']['asked'],
  signal: AbortSignal,
): Promise<Forwarded> {
  const request = new Request(origin + target, {
    method,
    headers: headers.map(([name, value]): [string, string] => [name, value]),
    signal,
  })
  const response = await fetch(request, () => address)
  const body = new Uint8Array(await response.arrayBuffer())
  if (body.length > responseBytesMax) throw new Error('a response that is too long to be forwarded')
  return { status: response.status, headers: [...response.headers], body: body.toBase64() }
}

/** Used by the relay: returns the request to forward. */
export function forwardedRequest(request: Request, address: string): Asks['forward']['asked'] {
  return { method: request.method, target: targetOf(request.url), headers: [...request.headers], address }
}

export function forwardedResponse({ status, headers, body }: Forwarded): Response {
  const all = new Headers()
  for (const [name, value] of headers) all.append(name, value)
  return new Response(Uint8Array.fromBase64(body), { status, headers: all })
}
