// Serial console of a VM, stored in a ring of two files. Effects: one connection, two files per VM.
//
// QEMU's own file back end has no limit. Reading no faster than the disk writes, and than a fixed rate, makes a guest
// that floods wait.

import { constants as fsConstants } from 'node:fs'
import { type FileHandle, lstat, open, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { type Clock, pause, systemClock } from '../../base/clock.ts'
import { messageOf, systemErrorCode, wrapFault } from '../../base/fault.ts'
import { type Logger, silentLogger } from '../../base/log.ts'
import { createSerial } from '../../base/work/serial.ts'
import { checkRegular, guardedFlags } from '../../linux/files/regular.ts'
import { connectUnix } from './unix-socket.ts'

export type ConsoleOptions = {
  /** The VM's directory, in which `console.log` and `console.log.1` are created. */
  readonly dir: string
  /** Limit of both files together. */
  readonly bytesMax: number
  /** Time for the socket to appear. */
  readonly timeoutMs: number
  /**
   * Called once when QEMU or an error ends the connection and everything received is written; never after our own
   * `close`.
   */
  readonly onClose: (reason: string) => void
  readonly signal?: AbortSignal
  readonly log?: Logger
}

export type Console = {
  /** Returns the number of bytes that could not be written. */
  readonly droppedBytes: () => number
  readonly close: () => Promise<void>
}

export const consoleFiles = { current: 'console.log', previous: 'console.log.1' } as const
const bytesPerSecondMax = 4_194_304

/**
 * Appends the console from now on. Faults: host.unsupported (path too long), qmp.closed (no socket), internal (disk).
 */
export async function connectConsole(path: string, options: ConsoleOptions): Promise<Console> {
  const log = options.log ?? silentLogger
  const ring = await ConsoleRing.open(options.dir, Math.max(1, Math.floor(options.bytesMax / 2)))
  const appends = createSerial()
  let droppedBytes = 0
  const append = async (chunk: Uint8Array): Promise<void> => {
    try {
      await ring.append(chunk)
    } catch (error) {
      // A full disk affects only the console text.
      if (droppedBytes === 0) log.warn('console text dropped', { dir: options.dir, error: messageOf(error) })
      droppedBytes += chunk.length
    }
  }
  const closeRing = () => appends.run(() => ring.close())
  try {
    const socket = await connectUnix(path, {
      timeoutMs: options.timeoutMs,
      signal: options.signal,
      code: 'qmp.closed',
      bytesPerSecondMax,
      queuedBytesMax: 0,
      onData: chunk => {
        // Copied, because the socket reuses its buffer.
        const copy = chunk.slice()
        return appends.run(() => append(copy))
      },
      onClose: reason => {
        void closeRing().then(() => options.onClose(reason))
      },
    })
    return {
      droppedBytes: () => droppedBytes,
      close: async () => {
        socket.close()
        await closeRing()
      },
    }
  } catch (error) {
    await ring.close()
    throw error
  }
}

/** Two segments of a file: when the current one is full, it replaces the previous one. */
class ConsoleRing {
  readonly #dir: string
  readonly #segmentBytesMax: number
  #file: FileHandle
  #sizeBytes: number
  #isOpen = true

  private constructor(dir: string, segmentBytesMax: number, current: Segment) {
    this.#dir = dir
    this.#segmentBytesMax = segmentBytesMax
    this.#file = current.file
    this.#sizeBytes = current.sizeBytes
  }

  /** Continues after the existing record. Throws Fault internal. */
  static async open(dir: string, segmentBytesMax: number): Promise<ConsoleRing> {
    const path = join(dir, consoleFiles.current)
    try {
      return new ConsoleRing(dir, segmentBytesMax, await openSegment(path))
    } catch (error) {
      throw wrapFault(error, `open console ${path}`)
    }
  }

  /** Appends bytes. Must not be called while another call runs. */
  async append(chunk: Uint8Array): Promise<void> {
    for (let at = 0; at < chunk.length; ) {
      if (this.#sizeBytes >= this.#segmentBytesMax) await this.#turn()
      const part = chunk.subarray(at, at + Math.max(1, this.#segmentBytesMax - this.#sizeBytes))
      const { bytesWritten } = await this.#file.write(part)
      this.#sizeBytes += bytesWritten
      at += bytesWritten
    }
  }

  async close(): Promise<void> {
    if (this.#isOpen) await this.#file.close()
    this.#isOpen = false
  }

  async #turn(): Promise<void> {
    const current = join(this.#dir, consoleFiles.current)
    // The file is missing if an earlier rotation failed between these steps.
    if (await isThere(current)) await rename(current, join(this.#dir, consoleFiles.previous))
    const full = this.#file
    const next = await openSegment(current)
    this.#file = next.file
    this.#sizeBytes = next.sizeBytes
    await full.close()
  }
}

type Segment = { readonly file: FileHandle; readonly sizeBytes: number }

async function openSegment(path: string): Promise<Segment> {
  const { O_WRONLY, O_CREAT, O_APPEND } = fsConstants
  const file = await openRegularFile(path, O_WRONLY | O_CREAT | O_APPEND)
  return { file, sizeBytes: (await file.stat()).size }
}

/**
 * Opens the file without blocking, because a FIFO would block a thread of the file pool. Throws Fault internal if it is
 * not a regular file.
 */
async function openRegularFile(path: string, flags: number): Promise<FileHandle> {
  const file = await open(path, flags | guardedFlags, 0o600)
  try {
    checkRegular(await file.stat(), path)
    return file
  } catch (error) {
    await file.close()
    throw error
  }
}

async function isThere(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  )
}

/** Returns the last `tailBytes` recorded; empty if there are none. Throws Fault internal. */
export async function readConsole(dir: string, tailBytes: number): Promise<Uint8Array> {
  const current = await readTail(join(dir, consoleFiles.current), tailBytes)
  const previous = await readTail(join(dir, consoleFiles.previous), tailBytes - current.length)
  return Buffer.concat([previous, current])
}

async function readTail(path: string, tailBytes: number): Promise<Uint8Array> {
  if (tailBytes <= 0) return new Uint8Array(0)
  const file = await openIfThere(path)
  if (file === null) return new Uint8Array(0)
  try {
    const { size } = await file.stat()
    return await readFrom(file, Math.max(0, size - tailBytes), tailBytes)
  } finally {
    await file.close()
  }
}

async function readFrom(file: FileHandle, position: number, bytesMax: number): Promise<Uint8Array> {
  const buffer = new Uint8Array(bytesMax)
  const { bytesRead } = await file.read(buffer, 0, bytesMax, position)
  return buffer.subarray(0, bytesRead)
}

async function openIfThere(path: string): Promise<FileHandle | null> {
  try {
    return await openRegularFile(path, fsConstants.O_RDONLY)
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return null
    throw wrapFault(error, `open console ${path}`)
  }
}

export type FollowOptions = {
  readonly signal: AbortSignal
  /** Number of bytes of the existing record to begin with. */
  readonly tailBytes: number
  readonly pollMs?: number
  readonly clock?: Clock
}

const followChunkBytes = 65_536

/**
 * Yields the console from `tailBytes` back, and then as it grows, until aborted. A reader that is more than a segment
 * behind the guest misses what the ring dropped. Throws Fault internal.
 */
export async function* followConsole(dir: string, options: FollowOptions): AsyncGenerator<Uint8Array, void, void> {
  const { signal, tailBytes, pollMs = 200, clock = systemClock } = options
  const path = join(dir, consoleFiles.current)
  let file: FileHandle | null = null
  let position = 0
  try {
    file = await openIfThere(path)
    const recorded = file === null ? 0 : (await file.stat()).size
    position = recorded
    if (tailBytes > 0) {
      const current =
        file === null
          ? new Uint8Array(0)
          : await readFrom(file, Math.max(0, recorded - tailBytes), Math.min(tailBytes, recorded))
      const previous = await readTail(join(dir, consoleFiles.previous), tailBytes - current.length)
      if (previous.length + current.length > 0) yield Buffer.concat([previous, current])
    }
    while (!signal.aborted) {
      const chunk: Uint8Array = file === null ? new Uint8Array(0) : await readFrom(file, position, followChunkBytes)
      position += chunk.length
      if (chunk.length > 0) {
        yield chunk
        continue
      }
      const next = await successor(path, file)
      if (next !== null) {
        // Text may have arrived between the last read and the rotation.
        const rest: Uint8Array = file === null ? new Uint8Array(0) : await readFrom(file, position, followChunkBytes)
        if (rest.length > 0) {
          position += rest.length
          await next.close()
          yield rest
          continue
        }
        await file?.close()
        file = next
        position = 0
        continue
      }
      await pause(clock, pollMs, signal)
    }
  } finally {
    await file?.close()
  }
}

/** Opens the current segment; null if it is already the open one. */
async function successor(path: string, file: FileHandle | null): Promise<FileHandle | null> {
  try {
    const [now, held] = [await lstat(path), file === null ? null : await file.stat()]
    if (held !== null && now.ino === held.ino) return null
  } catch {
    return null
  }
  return openIfThere(path)
}
