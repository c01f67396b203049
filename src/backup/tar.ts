// Files to a tar and back, in streams of bounded pieces. Effects: reads files while the stream is pulled.

import { closeSync, openSync, readSync } from 'node:fs'
import { ByteReader } from '../base/byte-reader.ts'
import { Fault } from '../base/fault.ts'
import { decodeUstar, tarBlockBytes, tarPaddingBytes, writeTar } from '../base/ustar.codec.ts'

/** Content in memory, or in a file of exactly that size. */
export type TarFile = {
  readonly name: string
  readonly bytes: number
  readonly content: Uint8Array | { readonly file: string }
}

const pieceBytes = 1_048_576

/** An error of the stream: a file that is shorter than said. */
export function tarStream(files: readonly TarFile[], mtimeSeconds: number): ReadableStream<Uint8Array> {
  const pieces = writeTar(
    files.map(({ name, bytes, content }) => ({
      header: { name, prefix: '', type: '0', mode: 0o600, sizeBytes: bytes, mtimeSeconds, linkName: '' },
      content: content instanceof Uint8Array ? [content] : filePieces(content.file, bytes),
    })),
  )
  return new ReadableStream(
    {
      pull: async controller => {
        const { done, value } = await pieces.next()
        if (done === true) controller.close()
        else controller.enqueue(value)
      },
      cancel: async () => void (await pieces.return()),
    },
    { highWaterMark: 0 },
  )
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
  readonly #reader: ByteReader

  constructor(stream: ReadableStream<Uint8Array>) {
    this.#reader = new ByteReader(stream, {
      bytesMax: Number.MAX_SAFE_INTEGER,
      tooMuch: () => refused('it is too large'),
      tooLittle: endsEarly,
    })
  }

  /** The next file's name and size; its content must be read whole before the one after it. Null at the end. */
  async next(): Promise<{ readonly name: string; readonly bytes: number } | null> {
    const block = await this.#reader.piece(tarBlockBytes)
    if (block === null) throw endsEarly()
    const read = decodeUstar(block)
    if (read.kind === 'empty') return null
    if (read.kind !== 'header') throw refused('no tar')
    const { type, sizeBytes, name } = read.header
    if (type !== '0' || typeof sizeBytes !== 'number') throw refused('an entry is no plain file')
    return { name: new TextDecoder('latin1').decode(name), bytes: sizeBytes }
  }

  /** The content of the file that `next` named, in pieces. */
  async *content(sizeBytes: number): AsyncGenerator<Uint8Array, void, void> {
    yield* this.#reader.parts(sizeBytes)
    await this.#reader.skip(tarPaddingBytes(sizeBytes))
  }

  /** Reads on to the end of the sealed file, whose last piece is what proves that nothing is missing. */
  async end(): Promise<void> {
    let bytes = 0
    for await (const part of this.#reader.rest()) {
      bytes += part.length
      if (bytes > trailerBytesMax) throw refused('there is more behind its end')
    }
  }
}

const trailerBytesMax = 65_536

function refused(why: string): Fault {
  return new Fault('invalid_request', `the backup cannot be read: ${why}`)
}

function endsEarly(): Fault {
  return refused('it ends in the middle')
}
