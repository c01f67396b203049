// UNIX stream sockets: a listener on which another process accepts, and a client with bounded memory and reading rate,
// and backpressure. Effects: sockets.
//
// The other end is QEMU or, through it, a guest that may flood or stall. Reading pauses while `onData` works and above
// the rate, so a noisy VM exhausts neither our memory nor our only thread.

import { closeSync } from 'node:fs'
import type { Socket } from 'bun'
import { type Clock, systemClock } from '../../base/clock.ts'
import { Fault, type FaultCode, messageOf } from '../../base/fault.ts'
import { TokenBucket } from '../../base/work/token-bucket.ts'
import { removeFile } from '../../linux/files/removal.ts'
import { bindUnix, listen, unixStreamSocket } from '../../linux/libc/sockets.ts'
import { errnoName } from '../../linux/libc.ts'
import { checkSocketPath } from './socket-path.ts'

export type UnixSocketOptions = {
  /** Time to connect; a socket that is missing or refuses is retried until then. */
  readonly timeoutMs: number
  /** When aborted, ends the wait for the connection, for example because the other process has exited. */
  readonly signal?: AbortSignal | undefined
  /** Code of the Fault if there is no connection. */
  readonly code: FaultCode
  /** Maximum reading rate. */
  readonly bytesPerSecondMax: number
  /** Maximum number of bytes accepted by `write` and not yet by the kernel. */
  readonly queuedBytesMax: number
  /** Receives a chunk. Reading pauses until a returned promise settles; the chunk may be used only until then. */
  readonly onData: (chunk: Uint8Array) => undefined | Promise<void>
  /** Called once when the other end or an error ends the connection; never after our own `close`. */
  readonly onClose: (reason: string) => void
  readonly clock?: Clock
}

export type UnixSocket = {
  /** Sends bytes. False if the queue is full or the connection has ended; then nothing was accepted. */
  readonly write: (bytes: Uint8Array) => boolean
  readonly close: () => void
}

/** Connects, waiting for the listener to appear. Faults: `code`, host.unsupported (path too long). */
export async function connectUnix(path: string, options: UnixSocketOptions): Promise<UnixSocket> {
  checkSocketPath(path)
  const clock = options.clock ?? systemClock
  const deadlineMs = clock.monotonicMs() + options.timeoutMs
  for (;;) {
    try {
      return await connectOnce(path, options, clock)
    } catch (error) {
      const gaveUp = options.signal?.aborted ? 'stopped waiting: ' : ''
      if (gaveUp || clock.monotonicMs() + retryMs >= deadlineMs) {
        throw new Fault(options.code, `connect ${path}: ${gaveUp}${messageOf(error)}`, { cause: error })
      }
    }
    await clock.sleep(retryMs)
  }
}

const retryMs = 25

export type ListeningSocket = { readonly fd: number } & Disposable

/**
 * Creates a socket that listens at `path`, for another process to inherit and accept on. Removes an existing file at
 * the path, so the directory must be ours alone. Connections queue until that process accepts them or ends. Throws
 * Fault host.unsupported.
 */
export function listenUnix(path: string): ListeningSocket {
  checkSocketPath(path)
  removeFile(path)
  const opened = unixStreamSocket()
  if (!opened.ok) throw new Fault('host.unsupported', `socket for ${path}: ${errnoName(opened.errno)}`)
  const fd = opened.value
  const bound = bindUnix(fd, path)
  const listening = bound.ok ? listen(fd, listenBacklog) : bound
  if (!listening.ok) {
    closeSync(fd)
    throw new Fault('host.unsupported', `listen at ${path}: ${errnoName(listening.errno)}`)
  }
  return { fd, [Symbol.dispose]: () => closeSync(fd) }
}

const listenBacklog = 8

async function connectOnce(path: string, options: UnixSocketOptions, clock: Clock): Promise<UnixSocket> {
  const intake = createIntake(options, clock)
  let outgoing: Uint8Array = new Uint8Array(0)
  let ended = false
  const end = (reason: string) => {
    if (ended) return
    ended = true
    intake.stop()
    options.onClose(reason)
  }
  const flush = (socket: Socket) => {
    if (outgoing.length === 0) return
    const written = socket.write(outgoing)
    if (written > 0) outgoing = outgoing.subarray(written)
  }
  const socket = await Bun.connect({
    unix: path,
    socket: {
      open: () => {},
      data: (from, chunk) => intake.take(from, chunk),
      drain: flush,
      end: () => end('the other end closed the connection'),
      close: (_, error) => end(error ? messageOf(error) : 'the other end closed the connection'),
      error: (_, error) => end(messageOf(error)),
    },
  })
  return {
    write: bytes => {
      if (ended || outgoing.length + bytes.length > options.queuedBytesMax) return false
      outgoing = outgoing.length === 0 ? bytes : Buffer.concat([outgoing, bytes])
      flush(socket)
      return true
    },
    close: () => {
      ended = true
      intake.stop()
      socket.terminate()
    },
  }
}

/** Passes chunks on one after the other, pausing the socket for the consumer and for the rate. */
function createIntake(options: UnixSocketOptions, clock: Clock) {
  let stopped = false
  let chunks = 0
  let working: Promise<void> = Promise.resolve()
  const allowance = new TokenBucket(options.bytesPerSecondMax, clock)
  return {
    take: (socket: Socket, chunk: Uint8Array) => {
      if (stopped) return
      const pauseMs = allowance.take(chunk.length)
      const work = options.onData(chunk)
      if (pauseMs === 0 && work === undefined) return
      socket.pause()
      chunks += 1
      const mine = chunks
      working = Promise.allSettled([working, work, pauseMs === 0 ? undefined : clock.sleep(pauseMs)]).then(() => {
        if (!stopped && chunks === mine) socket.resume()
      })
    },
    stop: () => {
      stopped = true
    },
  }
}
