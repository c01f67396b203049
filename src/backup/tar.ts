// Files to a tar and back, in streams of bounded pieces. Effects: reads files while the stream is pulled.

import { closeSync, openSync, readSync } from 'node:fs'
import { Fault } from '../base/fault.ts'
import { decodeUstar, encodeUstar, tarBlockBytes, tarPaddingBytes } from '../base/ustar.codec.ts'

/** Content in memory, or in a file of exactly that size. */
export type TarFile = {
  readonly name: string
  readonly bytes: number
  readonly content: Uint8Array | { readonly file: string }
}

const pieceBytes = 1_048_576

/** An error of the stream: a file that is shorter than said. */
export function tarStream(files: readonly TarFile[], mtimeSeconds: number): ReadableStream<Uint8Array> {
  const pieces = tarPieces(files, mtimeSeconds)
  return new ReadableStream(
    {
      pull: controller => {
        const { done, value } = pieces.next()
        if (done === true) controller.close()
        else controller.enqueue(value)
      },
      cancel: () => void pieces.return(),
    },
    { highWaterMark: 0 },
  )
}

function* tarPieces(files: readonly TarFile[], mtimeSeconds: number): Generator<Uint8Array, void, void> {
  for (const { name, bytes, content } of files) {
    yield encodeUstar({ name, prefix: '', type: '0', mode: 0o600, sizeBytes: bytes, mtimeSeconds, linkName: '' })
    if (content instanceof Uint8Array) {
      if (content.length > 0) yield content
    } else yield* filePieces(content.file, bytes)
    const padding = tarPaddingBytes(bytes)
    if (padding > 0) yield new Uint8Array(padding)
  }
  yield new Uint8Array(2 * tarBlockBytes)
}

function* filePieces(path: string, sizeBytes: number): Generator<Uint8Array, void, void> {
  const fd = openSync(path, 'r')
  try {
    for (let at = 0; at < sizeBytes; ) {
      const piece = new Uint8Array(Math.min(pieceBytes, sizeBytes - at))
      const count = readSync(fd, piece, 0, piece.length, at)
      if (count === 0) throw new Fault('internal', `${path} became shorter while it was read`)
      at += count
      yield piece.subarray(0, count)
    }
  } finally {
    closeSync(fd)
  }
}

/** Reads a tar of plain files, in order. Fault invalid_request: anything else, or an end in the middle. */
export class TarReader {
  readonly #pieces: AsyncIterator<Uint8Array>
  #kept = new Uint8Array(0)

  constructor(stream: ReadableStream<Uint8Array>) {
    this.#pieces = stream[Symbol.asyncIterator]()
  }

  /** The next file's name and size; its content must be read whole before the one after it. Null: the end. */
  async next(): Promise<{ readonly name: string; readonly bytes: number } | null> {
    const read = decodeUstar(await this.#exactly(tarBlockBytes))
    if (read.kind === 'empty') return null
    if (read.kind !== 'header') throw refused('no tar')
    const { type, sizeBytes, name } = read.header
    if (type !== '0' || typeof sizeBytes !== 'number') throw refused('an entry is no plain file')
    return { name: new TextDecoder('latin1').decode(name), bytes: sizeBytes }
  }

  /** The content of the file that `next` named, in pieces. */
  async *content(sizeBytes: number): AsyncGenerator<Uint8Array, void, void> {
    for (let left = sizeBytes; left > 0; ) {
      const piece = await this.#atMost(left)
      left -= piece.length
      yield piece
    }
    await this.#exactly(tarPaddingBytes(sizeBytes))
  }

  /** Reads on to the end of the sealed file, whose last piece is what proves that nothing is missing. */
  async end(): Promise<void> {
    for (let bytes = 0; bytes <= trailerBytesMax; ) {
      const { done, value } = await this.#pieces.next()
      if (done === true) return
      bytes += value.length
    }
    throw refused('there is more behind its end')
  }

  async #exactly(bytes: number): Promise<Uint8Array> {
    const whole = new Uint8Array(bytes)
    for (let at = 0; at < bytes; ) {
      const piece = await this.#atMost(bytes - at)
      whole.set(piece, at)
      at += piece.length
    }
    return whole
  }

  async #atMost(bytes: number): Promise<Uint8Array> {
    while (this.#kept.length === 0) {
      const { done, value } = await this.#pieces.next()
      if (done === true) throw refused('it ends in the middle')
      this.#kept = new Uint8Array(value)
    }
    const piece = this.#kept.subarray(0, bytes)
    this.#kept = this.#kept.subarray(piece.length)
    return piece
  }
}

const trailerBytesMax = 65_536

function refused(why: string): Fault {
  return new Fault('invalid_request', `the backup cannot be read: ${why}`)
}
