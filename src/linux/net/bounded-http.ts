// One bounded GET or POST. Effects: the network. The body proves nothing until its signature is verified.

import { onAbort } from '../../base/clock.ts'
import type { Outgoing } from './outgoing.ts'
import { fetchReason } from './proxy.plan.ts'

export type GetResult =
  | { readonly kind: 'body'; readonly bytes: Uint8Array; readonly headers: Headers }
  | { readonly kind: 'status'; readonly status: number; readonly retryAfter: string | null }
  | { readonly kind: 'too-large' }
  | { readonly kind: 'unreachable'; readonly reason: string }

export type GetLimits = {
  /** For the whole exchange, body included. */
  readonly timeoutMs: number
  readonly bodyBytesMax: number
  /** Ends the request early, as `unreachable`. */
  readonly signal: AbortSignal
  /** Makes the request a POST with this body and Content-Type. */
  readonly post?: { readonly type: string; readonly bytes: Uint8Array } | undefined
  /** The host's requests need it. By default fetch, for clients: it obeys the proxy variables of their environment. */
  readonly send?: Outgoing | undefined
}

/** Follows no redirects. Never rejects. */
export async function getBounded(url: string, limits: GetLimits): Promise<GetResult> {
  const { timeoutMs, bodyBytesMax, signal, post, send = fetch } = limits
  const stop = new AbortController()
  const timer = setTimeout(() => stop.abort(new Error(`no response within ${timeoutMs} ms`)), timeoutMs)
  const forget = onAbort(signal, () => stop.abort(new Error('stopped')))
  try {
    const sent = post && { method: 'POST', body: post.bytes.slice(), headers: { 'content-type': post.type } }
    const response = await send(url, { ...sent, redirect: 'manual', signal: stop.signal })
    if (response.status !== 200) {
      return { kind: 'status', status: response.status, retryAfter: response.headers.get('retry-after') }
    }
    const bytes = await readAtMost(response, bodyBytesMax)
    return bytes === null ? { kind: 'too-large' } : { kind: 'body', bytes, headers: response.headers }
  } catch (error) {
    return { kind: 'unreachable', reason: fetchReason(stop.signal.aborted ? stop.signal.reason : error) }
  } finally {
    clearTimeout(timer)
    forget()
    // A body that was not read to its end must not stay open.
    stop.abort()
  }
}

/** Null if the body is longer. */
export async function readAtMost(response: Response, bodyBytesMax: number): Promise<Uint8Array | null> {
  const chunks: Uint8Array[] = []
  let sizeBytes = 0
  for await (const chunk of response.body ?? []) {
    sizeBytes += chunk.length
    if (sizeBytes > bodyBytesMax) return null
    chunks.push(chunk)
  }
  return new Uint8Array(Buffer.concat(chunks))
}
