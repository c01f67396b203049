// One side of a proxied connection: a source of bytes, and writing at the pace of the receiver. Effects: the socket.

import type { Duplex } from 'node:stream'
import { ByteSource } from './source.ts'
import { within } from './within.ts'

export class Connection {
  readonly source: ByteSource
  readonly #socket: Duplex

  constructor(socket: Duplex) {
    this.#socket = socket
    // Errors reach the reader or the writer that waits; without a listener they would end the process.
    socket.on('error', () => {})
    this.source = new ByteSource(socket.iterator({ destroyOnReturn: false }))
  }

  get isOpen(): boolean {
    return !this.#socket.destroyed && this.#socket.writable
  }

  /** Reports whether it is open, and no byte has arrived that was not read. */
  get isIdle(): boolean {
    return this.isOpen && this.source.isEmpty && this.#socket.readableLength === 0
  }

  /** Resolves when more may be sent. Throws an Error if the other side is gone, or reads nothing for too long. */
  async send(bytes: Uint8Array): Promise<void> {
    if (bytes.length === 0) return
    if (!this.isOpen) throw new Error('the connection is closed')
    if (this.#socket.write(bytes)) return
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const closed = () => reject(new Error('the connection was closed'))
    this.#socket.once('drain', resolve)
    this.#socket.once('close', closed)
    try {
      await within(promise)
    } finally {
      this.#socket.off('drain', resolve)
      this.#socket.off('close', closed)
    }
  }

  /** Sends what was written, then closes. */
  async end(): Promise<void> {
    if (!this.isOpen) return
    const closed = new Promise<void>(resolve => this.#socket.once('close', () => resolve()))
    this.#socket.end()
    await within(closed, lingerMs).catch(() => {})
    this.close()
  }

  close(): void {
    this.#socket.destroy()
  }
}

/** How long the last response may take to arrive after the connection is at its end. */
const lingerMs = 5_000
