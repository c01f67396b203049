// Bodies of known bounds: a request's within bytes and time, an upstream's answer likewise. Effects: reads one of them.

import type { Deadlines } from '../../base/deadlines.ts'
import { Fault } from '../../base/fault.ts'
import type { UpstreamResponse } from '../upstream/connection.ts'
import { UpstreamFault } from '../upstream/fault.ts'

export type BodyLimits = { readonly bytesMax: number; readonly timeoutMs: number }

/** Refuses before the first byte where the sender says how much there is, or sends what is no JSON. Faults: body_too_large, invalid_request. */
export function checkBodyHeaders(headers: Headers, bytesMax: number): void {
  const length = headers.get('content-length')
  if (length !== null && Number(length) > bytesMax) throw tooLarge(bytesMax)
  const type = headers.get('content-type')
  if (type !== null && type !== 'application/json' && !/^application\/json[ \t]*(;|$)/i.test(type)) {
    throw new Fault('invalid_request', 'The Content-Type header must be application/json.')
  }
  const encoding = headers.get('content-encoding')
  if (encoding !== null && encoding.toLowerCase() !== 'identity') {
    throw new Fault('invalid_request', 'The Content-Encoding header must be left out; compressed bodies are not read.')
  }
}

/** The request's body. Faults: body_too_large at one byte more than the limit, body_timeout, invalid_request when it is cut or empty. */
export async function readRequestBody(request: Request, limits: BodyLimits, deadlines: Deadlines): Promise<Uint8Array> {
  const read = await readBounded(request, limits, deadlines)
  if (read.kind === 'too_large') throw tooLarge(limits.bytesMax)
  if (read.kind === 'late') {
    throw new Fault('body_timeout', `The body did not arrive within ${limits.timeoutMs} ms.`)
  }
  if (read.kind === 'cut') throw new Fault('invalid_request', 'The body ended early.')
  if (read.bytes.length === 0) throw new Fault('invalid_request', 'The body is empty; a JSON object is expected.')
  return read.bytes
}

/** An upstream's whole answer as text. UpstreamFault too_large, idle_timeout, cut, malformed. */
export async function readUpstreamBody(
  answer: UpstreamResponse,
  limits: BodyLimits,
  deadlines: Deadlines,
): Promise<string> {
  if ((answer.head.contentLength ?? 0) > limits.bytesMax) throw new UpstreamFault('too_large')
  let isLate = false
  const stop = deadlines.after(limits.timeoutMs, () => {
    isLate = true
    answer.abort()
  })
  const chunks: Uint8Array[] = []
  let lengthBytes = 0
  try {
    for (let bytes = await answer.read(); bytes !== null; bytes = await answer.read()) {
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

type Read = { kind: 'whole'; bytes: Uint8Array } | { kind: 'too_large' } | { kind: 'late' } | { kind: 'cut' }

/** What declares its length is read in one go, several times faster than piece by piece: then not even `body` may be looked at, as that makes a stream. */
async function readBounded(request: Request, limits: BodyLimits, deadlines: Deadlines): Promise<Read> {
  const late = Promise.withResolvers<Read>()
  const reader = request.headers.has('content-length') ? null : (request.body?.getReader() ?? null)
  const stop = deadlines.after(limits.timeoutMs, () => {
    late.resolve({ kind: 'late' })
    void reader?.cancel().catch(() => {})
  })
  const read: Promise<Read> = reader === null ? readDeclared(request, limits) : readPieces(reader, limits)
  try {
    return await Promise.race([read.catch((): Read => ({ kind: 'cut' })), late.promise])
  } finally {
    stop()
  }
}

async function readDeclared(request: Request, limits: BodyLimits): Promise<Read> {
  const bytes = new Uint8Array(await request.arrayBuffer())
  return bytes.length > limits.bytesMax ? { kind: 'too_large' } : { kind: 'whole', bytes }
}

type Reader = Pick<ReadableStreamDefaultReader<Uint8Array>, 'read' | 'cancel'>

async function readPieces(reader: Reader, limits: BodyLimits): Promise<Read> {
  const chunks: Uint8Array[] = []
  let lengthBytes = 0
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    lengthBytes += next.value.length
    if (lengthBytes > limits.bytesMax) {
      void reader.cancel().catch(() => {})
      return { kind: 'too_large' }
    }
    chunks.push(next.value)
  }
  return { kind: 'whole', bytes: Buffer.concat(chunks) }
}

function tooLarge(bytesMax: number): Fault {
  return new Fault('body_too_large', `The body is larger than ${bytesMax} bytes.`)
}
