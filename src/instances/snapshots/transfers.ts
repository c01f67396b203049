// Ciphertexts between this host and its VMs, over TCP at their next hop. Effects: a listener, while a transfer is
// expected, and its sockets.
//
// A VM connects and sends the token of a transfer as its first line. Then one side sends the ciphertext and closes. The
// port is open to every program of a VM, so a connection without a token of its VM ends soon, and costs little.

import { createServer, type Server, type Socket } from 'node:net'
import { Fault, messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'

export type TransferDeps = {
  /** Address and port that VMs use. */
  readonly hostname: string
  readonly port: number
  readonly log: Logger
  /** Time for the VM to connect. Default 120 s: its program waits for the owner's session, at most as long. */
  readonly connectTimeoutMs?: number
}

export type Expected = {
  readonly token: string
  /** Address of the VM. */
  readonly address: string
  readonly signal: AbortSignal
}

type Waiting = Expected & { readonly take: (socket: Socket, rest: Buffer) => void }

const tokenBytes = 64
const tokenTimeoutMs = 10_000
const idleTimeoutMs = 120_000
const connectTimeoutMsDefault = 120_000
/** Share: connections of one VM that have not named a transfer. */
const strangersPerVmMax = 4
/** Share: `strangersPerVmMax` for a VM. */
const socketsMax = 1_024
const listenRetryMs = 1_000
const chunkBytes = 262_144

export class Transfers {
  readonly #deps: TransferDeps
  readonly #waiting = new Map<string, Waiting>()
  readonly #strangers = new Map<string, number>()
  readonly #open = new Set<Socket>()
  #server: Server | null = null
  #retry: ReturnType<typeof setTimeout> | undefined
  #problem: string | null = null

  constructor(deps: TransferDeps) {
    this.#deps = deps
  }

  /**
   * Receives all bytes until the VM closes. Rejects if the connection breaks, `write` rejects, or the signal is
   * aborted.
   */
  receive(expected: Expected, write: (chunk: Uint8Array) => Promise<void>): Promise<void> {
    return this.#expect(expected, (socket, rest, done) => {
      let written = rest.length === 0 ? Promise.resolve() : write(rest)
      written.catch(done)
      socket.on('data', chunk => {
        socket.pause()
        written = written.then(() => write(chunk))
        written.then(() => socket.resume(), done)
      })
      // An end may come while the socket is paused.
      socket.on('end', () => written.then(() => done(null), done))
      socket.resume()
    })
  }

  /** Sends all bytes of a source, then closes. Resolves when the VM has closed, too; rejects as `receive`. */
  send(
    expected: Expected,
    source: () => AsyncIterable<Uint8Array> | Promise<AsyncIterable<Uint8Array>>,
  ): Promise<void> {
    return this.#expect(expected, (socket, _, done) => {
      // The VM sends nothing but its end.
      socket.on('data', () => socket.destroy())
      socket.resume()
      const sendAll = async () => {
        for await (const bytes of await source()) {
          for (let at = 0; at < bytes.length; at += chunkBytes)
            await written(socket, bytes.subarray(at, at + chunkBytes))
        }
        // A close before the end was sent is a failure.
        socket.end(() => socket.once('close', () => done(null)))
      }
      sendAll().catch(done)
    })
  }

  stop(): void {
    clearTimeout(this.#retry)
    for (const socket of this.#open) socket.destroy()
    this.#server?.close()
    this.#server = null
    this.#waiting.clear()
  }

  async #expect(
    expected: Expected,
    serve: (socket: Socket, rest: Buffer, done: (error: unknown) => void) => void,
  ): Promise<void> {
    const { token, signal } = expected
    const ended = Promise.withResolvers<void>()
    const done = (error: unknown) => (error === null ? ended.resolve() : ended.reject(error))
    let taken: Socket | null = null
    const { connectTimeoutMs = connectTimeoutMsDefault } = this.#deps
    const late = setTimeout(() => done(new Fault('channel.closed', 'the VM did not connect in time')), connectTimeoutMs)
    const take = (socket: Socket, rest: Buffer) => {
      // A token is for one connection.
      this.#waiting.delete(token)
      clearTimeout(late)
      taken = socket
      socket.setTimeout(idleTimeoutMs, () => socket.destroy(new Error('no bytes for two minutes')))
      socket.once('error', done)
      // Later than the listeners that `serve` adds.
      socket.once('close', () => setImmediate(done, new Fault('channel.closed', 'the connection of the VM broke off')))
      serve(socket, rest, done)
    }
    const onAbort = () => done(signal.reason ?? new Error('stopped'))
    signal.addEventListener('abort', onAbort)
    this.#waiting.set(token, { ...expected, take })
    this.#listen()
    try {
      await ended.promise
    } finally {
      clearTimeout(late)
      signal.removeEventListener('abort', onAbort)
      this.#waiting.delete(token)
      ;(taken as Socket | null)?.destroy()
      // Connections that were taken go on.
      if (this.#waiting.size === 0) this.#stopListening()
    }
  }

  #listen(): void {
    if (this.#server !== null) return
    const { hostname, port, log } = this.#deps
    const server = createServer({ allowHalfOpen: true }, socket => this.#meet(socket))
    server.maxConnections = socketsMax
    server.on('error', error => {
      // Once, although it is tried each second.
      if (this.#problem === null) log.warn('cannot listen for snapshots; retrying', { hostname, port, error })
      this.#problem = messageOf(error)
      if (this.#server !== server) return
      this.#server = null
      this.#retry = setTimeout(() => {
        if (this.#waiting.size > 0) this.#listen()
      }, listenRetryMs)
    })
    server.on('listening', () => {
      this.#problem = null
    })
    server.listen({ host: hostname, port, exclusive: true })
    this.#server = server
  }

  #stopListening(): void {
    clearTimeout(this.#retry)
    this.#server?.close()
    this.#server = null
  }

  /** The port in use; null while nothing is expected. */
  get listening(): { readonly port: number } | null {
    const address = this.#server?.address()
    return typeof address === 'object' && address !== null ? { port: address.port } : null
  }

  /** Why the last attempt to listen failed; null if it did not. */
  get problem(): string | null {
    return this.#problem
  }

  /** Reads the token, and hands the connection to its transfer. */
  #meet(socket: Socket): void {
    socket.on('error', () => socket.destroy())
    const from = socket.remoteAddress?.replace(/^::ffff:/, '') ?? ''
    const strangers = this.#strangers.get(from) ?? 0
    if (strangers >= strangersPerVmMax) {
      socket.destroy()
      return
    }
    this.#strangers.set(from, strangers + 1)
    this.#open.add(socket)
    const forget = once(() => {
      const left = (this.#strangers.get(from) ?? 1) - 1
      if (left === 0) this.#strangers.delete(from)
      else this.#strangers.set(from, left)
    })
    const timer = setTimeout(() => socket.destroy(), tokenTimeoutMs)
    socket.once('close', () => {
      clearTimeout(timer)
      forget()
      this.#open.delete(socket)
    })
    let bytes = Buffer.alloc(0)
    const onData = (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk])
      if (bytes.length <= tokenBytes) return
      socket.pause()
      socket.off('data', onData)
      clearTimeout(timer)
      const token = bytes.subarray(0, tokenBytes).toString('latin1')
      const waiting = bytes[tokenBytes] === lineFeed ? this.#waiting.get(token) : undefined
      if (waiting?.address !== from) {
        socket.destroy()
        return
      }
      forget()
      waiting.take(socket, bytes.subarray(tokenBytes + 1))
    }
    socket.on('data', onData)
  }
}

const lineFeed = 0x0a

function once(work: () => void): () => void {
  let isDone = false
  return () => {
    if (!isDone) work()
    isDone = true
  }
}

/** Resolves when the socket takes more. */
function written(socket: Socket, bytes: Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.write(bytes, error => (error == null ? resolve() : reject(error)))
  })
}
