// Request bodies, with a declared length or chunked: header checks, size limit, deadline. Effects: reads a request.

import { Fault } from '../base/fault.ts'
import type { Deadlines } from '../base/work/deadlines.ts'

export type BodyLimits = {
  readonly bytesMax: number
  /** From the first look at the body to its last byte. */
  readonly timeoutMs: number
}

export type AcceptedBody = {
  readonly bytesMax: number
  /** Charsets that Content-Type may name. JSON is UTF-8 by definition (RFC 8259 8.1): `any` ignores the parameter. */
  readonly charset: 'utf-8' | 'any'
  /** Whether the caller decodes bodies, and checks Content-Encoding itself. */
  readonly mayBeCoded?: true
}

/**
 * Checks the headers before the body is read: declared length, and plain JSON. A body without a Content-Type counts
 * as JSON, because the contract requires no header. Faults: body_too_large, invalid_request.
 */
export function checkBodyHeaders(headers: Headers, { bytesMax, charset, mayBeCoded }: AcceptedBody): void {
  const length = headers.get('content-length')
  if (length !== null && Number(length) > bytesMax) throw tooLarge(bytesMax)
  const type = headers.get('content-type')
  if (type !== null && type !== 'application/json' && !JSON_TYPES[charset].test(type)) {
    throw new Fault('invalid_request', 'The Content-Type header must be application/json.')
  }
  const encoding = headers.get('content-encoding')
  if (mayBeCoded !== true && encoding !== null && encoding !== '' && encoding.toLowerCase() !== 'identity') {
    throw new Fault('invalid_request', 'The Content-Encoding header must be left out; compressed bodies are not read.')
  }
}

const JSON_TYPES = {
  'utf-8': /^application\/json[ \t]*(;[ \t]*charset="?utf-8"?[ \t]*)?;?[ \t]*$/i,
  any: /^application\/json[ \t]*(;|$)/i,
} as const

/** The bytes of a body with checked headers. Faults: body_too_large, body_timeout, invalid_request (cut, empty). */
export function readBody(request: Request, limits: BodyLimits, deadlines: Deadlines): Promise<Uint8Array> {
  const length = request.headers.get('content-length')
  return length === null || Number(length) > wholeBytesMax
    ? readInPieces(request, limits, deadlines)
    : readWhole(request, limits, deadlines)
}

/** Longer bodies are read piece by piece: to join 32 MiB holds the event loop for 70 to 200 ms. */
const wholeBytesMax = 131_072

/**
 * A body with a declared length in one go, several times faster than piece by piece. Reading the property
 * `request.body` would already turn the body into a stream.
 */
function readWhole(request: Request, limits: BodyLimits, deadlines: Deadlines): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const stop = deadlines.after(limits.timeoutMs, () => reject(late(limits)))
    const end = (buffer: ArrayBuffer) => {
      stop()
      const bytes = new Uint8Array(buffer)
      const fault = faultOf(bytes, limits)
      if (fault === null) resolve(bytes)
      else reject(fault)
    }
    request.arrayBuffer().then(end, cause => {
      stop()
      reject(cut(cause))
    })
  })
}

async function readInPieces(request: Request, limits: BodyLimits, deadlines: Deadlines): Promise<Uint8Array> {
  const reader = request.body?.getReader()
  if (reader === undefined) throw empty()
  let isLate = false
  const stop = deadlines.after(limits.timeoutMs, () => {
    isLate = true
    void reader.cancel().catch(() => {})
  })
  const discardAll = () => {
    stop()
    return discardRest(reader, deadlines)
  }
  const lengthBytes = declaredOf(request)
  let bytes: Uint8Array | null
  try {
    bytes = await readPieces(reader, { lengthBytes, bytesMax: limits.bytesMax }, discardAll)
  } catch (cause) {
    throw isLate ? late(limits) : cut(cause)
  } finally {
    stop()
  }
  if (isLate) throw late(limits)
  const fault = bytes === null ? tooLarge(limits.bytesMax) : faultOf(bytes, limits)
  if (fault !== null || bytes === null) throw fault
  if (lengthBytes !== null && bytes.length < lengthBytes) throw cut(null)
  return bytes
}

function faultOf(bytes: Uint8Array, { bytesMax }: BodyLimits): Fault | null {
  if (bytes.length > bytesMax) return tooLarge(bytesMax)
  return bytes.length === 0 ? empty() : null
}

function late({ timeoutMs }: BodyLimits): Fault {
  return new Fault('body_timeout', `The body did not arrive within ${timeoutMs} ms.`)
}

/** The client closed the connection: this response is not read, but the failure is the client's. */
function cut(cause: unknown): Fault {
  return new Fault('invalid_request', 'The body ended early.', { cause })
}

function empty(): Fault {
  return new Fault('invalid_request', 'The body is empty; a JSON object is expected.')
}

type Reader = Pick<ReadableStreamDefaultReader<Uint8Array>, 'read' | 'cancel'>

/** Content-Length, which the runtime has checked; null for a body that is chunked. */
function declaredOf({ headers }: Request): number | null {
  const length = headers.get('content-length')
  return length === null ? null : Number(length)
}

type PieceLimits = {
  /** Null for a body of unknown length. */
  readonly lengthBytes: number | null
  readonly bytesMax: number
}

/** Null for a body of more than `bytesMax`. */
async function readPieces(
  reader: Reader,
  { lengthBytes, bytesMax }: PieceLimits,
  discardAll: () => Promise<void>,
): Promise<Uint8Array | null> {
  const body = new GrowingBytes(lengthBytes === null ? firstBytes : Math.min(lengthBytes, bytesMax), bytesMax)
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    if (body.length + next.value.length > bytesMax) {
      await discardAll()
      return null
    }
    await body.add(next.value)
  }
  return body.whole()
}

const firstBytes = 65_536
/** Copied in one turn of the event loop. */
const copiedPerTurn = 524_288

/** Collects bytes as they arrive, up to `bytesMax`, in memory that doubles and is copied in turns of the event loop. */
export class GrowingBytes {
  readonly #bytesMax: number
  #bytes: Uint8Array
  #length = 0

  constructor(capacityBytes: number, bytesMax: number) {
    this.#bytesMax = bytesMax
    this.#bytes = new Uint8Array(capacityBytes)
  }

  get length(): number {
    return this.#length
  }

  async add(piece: Uint8Array): Promise<void> {
    if (this.#length + piece.length > this.#bytes.length) {
      const doubled = Math.min(2 * this.#bytes.length, this.#bytesMax)
      const larger = new Uint8Array(Math.max(doubled, this.#length + piece.length))
      await copyInTurns(larger, this.whole(), 0)
      this.#bytes = larger
    }
    await copyInTurns(this.#bytes, piece, this.#length)
    this.#length += piece.length
  }

  whole(): Uint8Array {
    return this.#bytes.subarray(0, this.#length)
  }
}

async function copyInTurns(to: Uint8Array, from: Uint8Array, start: number): Promise<void> {
  for (let at = 0; at < from.length; at += copiedPerTurn) {
    if (at > 0) await new Promise<void>(resolve => setImmediate(resolve))
    to.set(from.subarray(at, at + copiedPerTurn), start + at)
  }
}

/**
 * How much of the rest of a body that is too large is read and thrown away before the refusal is sent, and for how
 * long. A client that writes its whole body before it reads would lose the refusal: the connection is reset while bytes
 * wait unread. One that sends nothing for a moment waits for the refusal.
 */
const discardBytes = 64 * 1024 * 1024
const discardMs = 10_000
const discardIdleMs = 2_000

/** Before a body that its headers call too large is refused; no effect for another failure. Never rejects. */
export async function discardTooLarge(error: unknown, request: Request, deadlines: Deadlines): Promise<void> {
  if (error instanceof Fault && error.code === 'body_too_large') await discardBody(request, deadlines)
}

/** Call it before a body is refused of which nothing was read. Never rejects. */
export async function discardBody(request: Request, deadlines: Deadlines): Promise<void> {
  const reader = request.bodyUsed ? undefined : request.body?.getReader()
  if (reader !== undefined) await discardRest(reader, deadlines)
}

/** Reads the rest of a body that is too large. Never rejects: a client that goes away needs no refusal. */
export function discardRest(reader: Reader, deadlines: Deadlines): Promise<void> {
  return new Promise(resolve => {
    const end = () => {
      stop()
      idle.clear()
      resolve()
      void reader.cancel().catch(() => {})
    }
    const stop = deadlines.after(discardMs, end)
    const idle = deadlines.moving(end)
    const read = async () => {
      let left = discardBytes
      idle.set(discardIdleMs)
      for (let next = await reader.read(); !next.done && left > 0; next = await reader.read()) {
        left -= next.value.length
        idle.set(discardIdleMs)
      }
    }
    read().then(end, end)
  })
}

export function tooLarge(bytesMax: number): Fault {
  return new Fault('body_too_large', `The body is larger than ${bytesMax} bytes.`)
}
