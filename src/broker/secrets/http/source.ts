// Bytes of a connection, read when they are needed: unread bytes stay with the kernel, then with the sender. Effects:
// reads the connection.

import { within } from './within.ts'

/** The bytes up to a mark are more than allowed. */
export class TooLong extends Error {}

export class ByteSource {
  readonly #chunks: AsyncIterator<Uint8Array>
  #held: Buffer = Buffer.alloc(0)

  constructor(chunks: AsyncIterator<Uint8Array>) {
    this.#chunks = chunks
  }

  /** Whether nothing was received beyond what was read. */
  get isEmpty(): boolean {
    return this.#held.length === 0
  }

  /**
   * Returns the bytes up to and with the mark; null if the connection ends before the first byte. Throws TooLong, and
   * an Error if the connection ends later or stays silent.
   */
  async until(mark: Uint8Array, bytesMax: number, idleMs?: number): Promise<Uint8Array | null> {
    for (let from = 0; ; ) {
      const at = this.#held.indexOf(mark, from)
      const end = at + mark.length
      if (at !== -1 && end <= bytesMax) return this.#take(end)
      if (at !== -1 || this.#held.length >= bytesMax) throw new TooLong()
      from = Math.max(0, this.#held.length - mark.length + 1)
      const chunk = await this.#next(idleMs)
      if (chunk === null && this.isEmpty) return null
      if (chunk === null) throw new Error('the connection ended within a message')
      this.#held = Buffer.concat([this.#held, chunk])
    }
  }

  /** The next bytes, at least one; null at the end. */
  async some(bytesMax = Number.POSITIVE_INFINITY): Promise<Uint8Array | null> {
    if (this.isEmpty) this.#held = Buffer.from((await this.#next()) ?? [])
    return this.isEmpty ? null : this.#take(Math.min(bytesMax, this.#held.length))
  }

  #take(bytes: number): Uint8Array {
    const taken = this.#held.subarray(0, bytes)
    this.#held = this.#held.subarray(bytes)
    return taken
  }

  /** Never an empty chunk. */
  async #next(idleMs?: number): Promise<Uint8Array | null> {
    for (;;) {
      const { done, value } = await within(this.#chunks.next(), idleMs)
      if (done === true) return null
      if (value.length > 0) return value
    }
  }
}
