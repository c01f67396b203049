// Request bodies: media type, byte limit and deadline, the same for Content-Length and chunked. Effects: reads one request.

import type { Clock } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { parseJson } from '../base/json.ts'

export type BodyLimits = {
  readonly bodyBytesMax: number
  /** From the first look at the body to its last byte. */
  readonly bodyTimeoutMs: number
  readonly jsonDepthMax: number
}

/** The body as strict JSON. Faults: invalid_request, body_too_large, body_timeout. */
export async function readJson(request: Request, limits: BodyLimits, clock: Pick<Clock, 'sleep'>): Promise<unknown> {
  checkMediaType(request.headers)
  const bytes = await readBytes(request, limits, clock)
  if (bytes.length === 0) throw new Fault('invalid_request', 'The body is empty; a JSON object is expected.')
  return parseJson(bytes, { depthMax: limits.jsonDepthMax })
}

/** A body without a Content-Type is taken for JSON: the contract asks for no header. Any other type is refused. */
function checkMediaType(headers: Headers): void {
  const type = headers.get('content-type')
  if (type !== null && !/^application\/json[ \t]*(;[ \t]*charset="?utf-8"?[ \t]*)?;?[ \t]*$/i.test(type)) {
    throw new Fault('invalid_request', 'The Content-Type header must be application/json.')
  }
  if (!['', 'identity'].includes((headers.get('content-encoding') ?? '').toLowerCase())) {
    throw new Fault('invalid_request', 'The Content-Encoding header must be left out; compressed bodies are not read.')
  }
}

async function readBytes(request: Request, limits: BodyLimits, clock: Pick<Clock, 'sleep'>): Promise<Uint8Array> {
  const tooLarge = () => new Fault('body_too_large', `The body is larger than ${limits.bodyBytesMax} bytes.`)
  // Refused before the first byte where the sender says how much there is.
  if (Number(request.headers.get('content-length') ?? 0) > limits.bodyBytesMax) throw tooLarge()
  if (request.body === null) return new Uint8Array(0)
  const reader = request.body.getReader()
  const finished = new AbortController()
  const deadline = clock.sleep(limits.bodyTimeoutMs, finished.signal).then(
    () => 'late' as const,
    () => 'late' as const,
  )
  const chunks: Uint8Array[] = []
  let lengthBytes = 0
  try {
    while (true) {
      const next = await Promise.race([reader.read().catch(cutShort), deadline])
      if (next === 'late') {
        throw new Fault('body_timeout', `The body did not arrive within ${limits.bodyTimeoutMs} ms.`)
      }
      if (next.done) return Buffer.concat(chunks)
      lengthBytes += next.value.length
      if (lengthBytes > limits.bodyBytesMax) throw tooLarge()
      chunks.push(next.value)
    }
  } finally {
    finished.abort()
    // After the last chunk this does nothing; before it, the rest of the body is not waited for.
    void reader.cancel().catch(() => {})
  }
}

/** The connection went away mid-body: nobody will read this, but it is the client's failure, not ours. */
function cutShort(error: unknown): never {
  throw new Fault('invalid_request', 'The body ended early.', { cause: error })
}
