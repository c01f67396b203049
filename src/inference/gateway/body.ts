// The body of an upstream's response, within bytes and time. Effects: reads one response.

import type { Deadlines } from '../../base/work/deadlines.ts'
import type { BodyLimits } from '../../http/body.ts'
import { UpstreamFault } from '../failure.ts'
import type { UpstreamResponse } from '../upstream/connection.ts'

/** The whole body as text. UpstreamFault too_large, idle_timeout, cut, malformed. */
export async function readUpstreamBody(
  response: UpstreamResponse,
  limits: BodyLimits,
  deadlines: Deadlines,
): Promise<string> {
  const { contentLength } = response.head
  if ((contentLength ?? 0) > limits.bytesMax) throw new UpstreamFault('too_large')
  let isLate = false
  const stop = deadlines.after(limits.timeoutMs, () => {
    isLate = true
    response.abort()
  })
  const chunks: Uint8Array[] = []
  let lengthBytes = 0
  try {
    // A declared length ends the body with its last byte, without a wait for its end.
    while (lengthBytes !== contentLength) {
      const bytes = await response.read()
      if (bytes === null) break
      lengthBytes += bytes.length
      if (lengthBytes > limits.bytesMax) throw new UpstreamFault('too_large')
      chunks.push(bytes)
    }
  } catch (error) {
    throw isLate ? new UpstreamFault('idle_timeout') : error
  } finally {
    stop()
  }
  try {
    const [first] = chunks
    return decoder.decode(chunks.length === 1 ? first : Buffer.concat(chunks))
  } catch {
    throw new UpstreamFault('malformed')
  }
}

const decoder = new TextDecoder('utf-8', { fatal: true })
