// One bounded GET. Effects: the network. What comes back is nobody's word until its signature is verified.

import { messageOf } from '../../base/fault.ts'

export type HttpAnswer =
  | { readonly kind: 'body'; readonly bytes: Uint8Array }
  | { readonly kind: 'status'; readonly status: number; readonly retryAfter: string | null }
  | { readonly kind: 'too-large' }
  | { readonly kind: 'unreachable'; readonly reason: string }

/** Follows no redirects. Never rejects; ends within `timeoutMs`, the whole body included. */
export async function getBounded(
  url: string,
  limits: { timeoutMs: number; bodyBytesMax: number },
): Promise<HttpAnswer> {
  const { timeoutMs, bodyBytesMax } = limits
  const stop = new AbortController()
  const timer = setTimeout(() => stop.abort(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs)
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
    // Ends a body that nobody reads on.
    stop.abort()
  }
}

async function readAtMost(response: Response, bodyBytesMax: number): Promise<Uint8Array | null> {
  const chunks: Uint8Array[] = []
  let sizeBytes = 0
  for await (const chunk of response.body ?? []) {
    sizeBytes += chunk.length
    if (sizeBytes > bodyBytesMax) return null
    chunks.push(chunk)
  }
  return new Uint8Array(Buffer.concat(chunks))
}
