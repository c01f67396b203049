// The body of a build request: keeps its JSON in memory with a limit, and decodes its source to disk while it arrives.
// Effects: reads a request, writes a file. Memory does not grow with the source: pieces are processed in slices, and
// other work runs in between.

import { createHash } from 'node:crypto'
import { constants as fsConstants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { Fault, wrapFault } from '../../base/fault.ts'
import { parseJson } from '../../base/json.ts'
import type { Deadlines } from '../../base/work/deadlines.ts'
import { checkBodyHeaders, discardRest, discardTooLarge } from '../../http/body.ts'
import { removeFile } from '../../linux/files/removal.ts'
import type { Upload } from '../request.codec.ts'
import { type ScanLimits, SourceScan } from './source-scan.ts'

export type SourceBodyLimits = ScanLimits & {
  /** Timeout from the first read of the body to its last byte. */
  readonly timeoutMs: number
  /** Interval at which the body's mean rate since its start must be at least `bytesPerSecondMin`. */
  readonly slowMs: number
  readonly depthMax: number
}

export type SourceBody = { readonly json: unknown; readonly upload: Upload | null }

/** Returns the largest body: base64 with a few escapes, plus the other fields. */
export function bodyBytesMax({ sourceBytesMax, documentBytesMax }: ScanLimits): number {
  return Math.ceil((sourceBytesMax * 5) / 3) + documentBytesMax
}

const sliceBytes = 65_536
/** A slow line sends a hundred times as fast; a client that drips bytes would occupy a slot. */
const bytesPerSecondMin = 8_192
/** Longest run before yielding to other work: awaiting a buffered piece or a completed write does not yield. */
const turnMs = 3

/**
 * Creates the file at `path`, and removes it on failure. Faults: invalid_request, body_too_large, body_timeout,
 * internal.
 */
export async function readSourceBody(
  request: Request,
  path: string,
  { limits, deadlines }: { readonly limits: SourceBodyLimits; readonly deadlines: Deadlines },
): Promise<SourceBody> {
  const bytesMax = bodyBytesMax(limits)
  try {
    checkBodyHeaders(request.headers, { bytesMax, charset: 'utf-8' })
  } catch (error) {
    await discardTooLarge(error, request, deadlines)
    throw error
  }
  const file = new SourceFile(path)
  try {
    const scan = new SourceScan(limits)
    await readPieces(request, { ...limits, bytesMax }, deadlines, async piece => {
      const decoded: Uint8Array[] = []
      scan.push(piece, bytes => decoded.push(bytes))
      for (const bytes of decoded) await file.write(bytes)
    })
    const json = parseJson(scan.end(), { depthMax: limits.depthMax })
    return { json, upload: await file.finish() }
  } catch (error) {
    await file.discard()
    throw error
  }
}

type Limits = { readonly timeoutMs: number; readonly slowMs: number; readonly bytesMax: number }

async function readPieces(
  request: Request,
  { timeoutMs, slowMs, bytesMax }: Limits,
  deadlines: Deadlines,
  take: (piece: Uint8Array) => Promise<void>,
): Promise<void> {
  const reader = request.body?.getReader()
  if (reader === undefined) return
  let late: string | null = null
  const end = (reason: string) => {
    late = reason
    void reader.cancel().catch(() => {})
  }
  let sizeBytes = 0
  const startedMs = performance.now()
  const checkRate = () => {
    const leastBytes = ((performance.now() - startedMs) / 1000) * bytesPerSecondMin
    if (sizeBytes < leastBytes) end(`The body arrived at less than ${bytesPerSecondMin} bytes per second.`)
    else stopRate = deadlines.after(slowMs, checkRate)
  }
  let stopRate = deadlines.after(slowMs, checkRate)
  const stopWhole = deadlines.after(timeoutMs, () => end(`The body did not arrive within ${timeoutMs} ms.`))
  let turnSinceMs = performance.now()
  try {
    for (;;) {
      const next = await reader.read().catch(cause => {
        throw new Fault('invalid_request', 'The body ended early.', { cause })
      })
      if (late !== null) throw new Fault('body_timeout', late)
      if (next.done) return
      sizeBytes += next.value.length
      if (sizeBytes > bytesMax) throw new Fault('body_too_large', `The body is larger than ${bytesMax} bytes.`)
      for (let at = 0; at < next.value.length; at += sliceBytes) {
        await take(next.value.subarray(at, at + sliceBytes))
        if (performance.now() - turnSinceMs < turnMs) continue
        await new Promise(resolve => setImmediate(resolve))
        turnSinceMs = performance.now()
      }
    }
  } catch (error) {
    if (error instanceof Fault && error.code === 'body_too_large') await discardRest(reader, deadlines)
    else void reader.cancel().catch(() => {})
    throw error
  } finally {
    stopWhole()
    stopRate()
  }
}

/** Writes the source to a file, which is created with the first byte. */
class SourceFile {
  readonly #path: string
  readonly #hash = createHash('sha256')
  #handle: FileHandle | null = null
  #sizeBytes = 0

  constructor(path: string) {
    this.#path = path
  }

  async write(bytes: Uint8Array): Promise<void> {
    const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = fsConstants
    try {
      this.#handle ??= await open(this.#path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
      this.#hash.update(bytes)
      for (let at = 0; at < bytes.length; ) {
        const { bytesWritten } = await this.#handle.write(bytes, at, bytes.length - at)
        at += bytesWritten
      }
      this.#sizeBytes += bytes.length
    } catch (error) {
      throw wrapFault(error, `write ${this.#path}`)
    }
  }

  /** Completes the file. Null if the body had no source. */
  async finish(): Promise<Upload | null> {
    if (this.#handle === null) return null
    await this.#handle.sync()
    await this.#handle.close()
    this.#handle = null
    return { path: this.#path, sizeBytes: this.#sizeBytes, sha256: this.#hash.digest('hex') }
  }

  async discard(): Promise<void> {
    await this.#handle?.close().catch(() => {})
    removeFile(this.#path)
  }
}
