// One bounded GET. Effects: the network. The body proves nothing until its signature is verified.

import { onAbort } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'

export type GetResult =
  | { readonly kind: 'body'; readonly bytes: Uint8Array }
  | { readonly kind: 'status'; readonly status: number; readonly retryAfter: string | null }
  | { readonly kind: 'too-large' }
  | { readonly kind: 'unreachable'; readonly reason: string }

export type GetLimits = {
  /** For the whole exchange, body included. */
  readonly timeoutMs: number
  readonly bodyBytesMax: number
  /** Ends the request early, as `unreachable`. */
  readonly signal: AbortSignal
}

/** Follows no redirects. Never rejects. */
export async function getBounded(url: string, { timeoutMs, bodyBytesMax, signal }: GetLimits): Promise<GetResult> {
  const stop = new AbortController()
  const timer = setTimeout(() => stop.abort(new Error(`no response within ${timeoutMs} ms`)), timeoutMs)
  const forget = onAbort(signal, () => stop.abort(new Error('stopped')))
  try {
    const response = await fetch(url, { redirect: 'manual', signal: stop.signal })
    if (response.status !== 200) {
      return { kind: 'status', status: response.status, retryAfter: response.headers.get('retry-after') }
    }
    const bytes = await readAtMost(response, bodyBytesMax)
    return bytes === null ? { kind: 'too-large' } : { kind: 'body', bytes }
  } catch (error) {
    return { kind: 'unreachable', reason: messageOf(stop.signal.aborted ? stop.signal.reason : error) }
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
