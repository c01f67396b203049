// Messages as bytes. A frame is its length, u32 little-endian, then a JSON array of the messages of one turn of the
// event loop. Pure.

/** Longest frame. The largest hold a setup with certificates of 64 upstreams, or a forwarded response. */
export const frameBytesMax = 64 * 1_048_576

/** Encodes a frame. `messages`: each as JSON. */
export function encodeFrame(messages: readonly string[]): Buffer {
  const text = `[${messages.join(',')}]`
  const length = Buffer.byteLength(text)
  if (length > frameBytesMax) throw new RangeError(`a frame of ${length} bytes`)
  const bytes = Buffer.allocUnsafe(4 + length)
  bytes.writeUInt32LE(length)
  bytes.write(text, 4)
  return bytes
}

/** Takes bytes as they arrive and returns the messages of the complete frames. */
export class FrameReader {
  #pieces: Uint8Array[] = []
  #bytes = 0
  /** Number of bytes that must be present before anything can be read. */
  #wanted = 4

  /** Adds bytes, copying those that it keeps. Throws on an invalid frame. */
  push(chunk: Uint8Array): unknown[] {
    if (this.#bytes === 0 && chunk.length >= 4)
      return this.#read(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length))
    this.#pieces.push(new Uint8Array(chunk))
    this.#bytes += chunk.length
    if (this.#bytes < this.#wanted) return []
    const all = Buffer.concat(this.#pieces)
    this.#pieces = []
    this.#bytes = 0
    this.#wanted = 4
    return this.#read(all)
  }

  #read(bytes: Buffer): unknown[] {
    const found: unknown[] = []
    let at = 0
    while (bytes.length - at >= 4) {
      const length = bytes.readUInt32LE(at)
      if (length > frameBytesMax) throw new RangeError(`a frame of ${length} bytes`)
      this.#wanted = 4 + length
      if (bytes.length - at < this.#wanted) break
      const messages: unknown = JSON.parse(bytes.toString('utf8', at + 4, at + 4 + length))
      if (!Array.isArray(messages)) throw new TypeError('a frame that is not a list')
      found.push(...messages)
      at += this.#wanted
      this.#wanted = 4
    }
    if (at < bytes.length) {
      this.#pieces.push(new Uint8Array(bytes.subarray(at)))
      this.#bytes = bytes.length - at
    }
    return found
  }
}
