// Exact pieces out of a stream of chunks, with a bound on how much may come in all. No effects of its own.

type ByteReaderOptions = {
  readonly bytesMax: number
  /** The error after more than `bytesMax`: a small archive may unpack to a bomb. */
  readonly tooMuch: () => Error
  /** The error when the stream ends within a piece. */
  readonly tooLittle: () => Error
}

export class ByteReader {
  readonly #chunks: AsyncIterator<Uint8Array>
  readonly #options: ByteReaderOptions
  #held: Uint8Array = new Uint8Array(0)
  #readBytes = 0

  constructor(chunks: AsyncIterable<Uint8Array>, options: ByteReaderOptions) {
    this.#chunks = chunks[Symbol.asyncIterator]()
    this.#options = options
  }

  /** The next `count` bytes, copied; null if the stream ends before the first of them. */
  async piece(count: number): Promise<Uint8Array | null> {
    if (this.#held.length === 0 && !(await this.#fill())) return null
    const whole = new Uint8Array(count)
    let at = 0
    for await (const part of this.parts(count)) {
      whole.set(part, at)
      at += part.length
    }
    return whole
  }

  /** The next `count` bytes in parts that are valid until the next one is requested. */
  async *parts(count: number): AsyncGenerator<Uint8Array> {
    let left = count
    while (left > 0) {
      if (this.#held.length === 0 && !(await this.#fill())) throw this.#options.tooLittle()
      const part = this.#held.subarray(0, left)
      this.#held = this.#held.subarray(part.length)
      left -= part.length
      yield part
    }
  }

  async skip(count: number): Promise<void> {
    for await (const _ of this.parts(count));
  }

  /** The remaining bytes, in parts. */
  async *rest(): AsyncGenerator<Uint8Array> {
    for (;;) {
      if (this.#held.length === 0 && !(await this.#fill())) return
      const part = this.#held
      this.#held = new Uint8Array(0)
      yield part
    }
  }

  async #fill(): Promise<boolean> {
    for (;;) {
      const { done, value } = await this.#chunks.next()
      if (done === true) return false
      this.#readBytes += value.length
      if (this.#readBytes > this.#options.bytesMax) throw this.#options.tooMuch()
      if (value.length === 0) continue
      this.#held = value
      return true
    }
  }
}
