// Reads the tar of a build's result, or of one that was packed anew: POSIX.1-2017 ustar and pax, and GNU's long names. Throws Malformed. No effects.
//
// Stricter than what any tar writes: files and directories alone, each name once and inside of the archive. Nothing is ever written to disk.

import { Malformed, wellFormed } from '../../attest/malformed.ts'

export type TarFile = {
  readonly path: string
  readonly sizeBytes: number
  /** By its owner. */
  readonly isExecutable: boolean
  readonly content: AsyncIterable<Uint8Array>
}

const blockBytes = 512
const extensionBytesMax = 64 * 1024

/** [offset, size] in a header. */
const HEADER = {
  name: [0, 100],
  mode: [100, 8],
  size: [124, 12],
  checksum: [148, 8],
  type: [156, 1],
  magic: [257, 8],
  prefix: [345, 155],
} as const satisfies Record<string, readonly [offset: number, sizeBytes: number]>

export const tarMagicOffset = HEADER.magic[0]

/** The content of each file is read to its end before the next one is asked for. */
export async function* readResultTar(
  chunks: AsyncIterable<Uint8Array>,
  limits: { bytesMax: number },
): AsyncGenerator<TarFile> {
  const reader = new Pieces(chunks, limits.bytesMax)
  let longName: string | null = null
  for (;;) {
    const header = await reader.exactly(blockBytes)
    if (header.every(byte => byte === 0)) break
    const { type, sizeBytes } = checkHeader(header)
    if (type === 'x' || type === 'g' || type === 'L') {
      wellFormed(sizeBytes <= extensionBytesMax, `archive: a record of ${sizeBytes} bytes before an entry`)
      const record = await reader.exactly(sizeBytes)
      await reader.skip(padding(sizeBytes))
      if (type === 'L') longName = textOf(untilNul(record))
      if (type === 'x') longName = paxPath(record) ?? longName
      continue
    }
    const path = longName ?? nameOf(header)
    longName = null
    wellFormed(type === '0' || type === '5', `archive: ${JSON.stringify(path)} is neither a file nor a directory`)
    if (type === '5') {
      wellFormed(sizeBytes === 0, `archive: the directory ${JSON.stringify(path)} has content`)
      continue
    }
    const content = reader.parts(sizeBytes)
    yield { path, sizeBytes, isExecutable: (octal(field(header, 'mode')) & 0o100) !== 0, content }
    // What the caller left is not lost: the next header must be where it belongs.
    for await (const _ of content);
    await reader.skip(padding(sizeBytes))
  }
}

function padding(sizeBytes: number): number {
  return (blockBytes - (sizeBytes % blockBytes)) % blockBytes
}

function field(header: Uint8Array, name: keyof typeof HEADER): Uint8Array {
  const [offset, sizeBytes] = HEADER[name]
  return header.subarray(offset, offset + sizeBytes)
}

function untilNul(bytes: Uint8Array): Uint8Array {
  const at = bytes.indexOf(0)
  return at === -1 ? bytes : bytes.subarray(0, at)
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('utf8')
}

function checkHeader(header: Uint8Array): { readonly type: string; readonly sizeBytes: number } {
  const magic = Buffer.from(field(header, 'magic')).toString('latin1')
  wellFormed(magic === 'ustar\x0000' || magic === 'ustar  \0', 'archive: a header that is not of ustar, pax or GNU tar')
  const [from, size] = HEADER.checksum
  const sum = header.reduce((total, byte, at) => total + (at >= from && at < from + size ? 0x20 : byte), 0)
  wellFormed(octal(field(header, 'checksum')) === sum, 'archive: a header with a wrong checksum: it is damaged')
  const type = String.fromCharCode(field(header, 'type')[0] ?? 0)
  return { type: type === '\0' ? '0' : type, sizeBytes: octal(field(header, 'size')) }
}

/** Base-256, for 8 GiB and more, is refused with the rest. */
function octal(bytes: Uint8Array): number {
  const digits = /^ *([0-7]+)[ \0]*$/.exec(Buffer.from(bytes).toString('latin1'))?.[1]
  if (digits === undefined) throw new Malformed('archive: a header with a number that is not octal')
  return Number.parseInt(digits, 8)
}

/** GNU's format has times where ustar has the prefix. */
function nameOf(header: Uint8Array): string {
  const name = textOf(untilNul(field(header, 'name')))
  const prefix = header[tarMagicOffset + 5] === 0 ? textOf(untilNul(field(header, 'prefix'))) : ''
  return prefix === '' ? name : `${prefix}/${name}`
}

/** `LENGTH KEY=VALUE\n`. Null when no record is a path; times and owners are of no interest. */
function paxPath(bytes: Uint8Array): string | null {
  let found: string | null = null
  for (let at = 0; at < bytes.length; ) {
    const length = /^([1-9][0-9]{0,5}) /.exec(Buffer.from(bytes.subarray(at, at + 8)).toString('latin1'))?.[1]
    const end = at + Number(length ?? 0)
    wellFormed(
      length !== undefined && end <= bytes.length && bytes[end - 1] === 0x0a,
      'archive: a malformed pax record',
    )
    const [key = '', ...value] = textOf(bytes.subarray(at + length.length + 1, end - 1)).split('=')
    wellFormed(key !== 'size' && !key.startsWith('GNU.sparse'), `archive: a pax record of ${key}; pack it without`)
    if (key === 'path') found = value.join('=')
    at = end
  }
  return found
}

/** Exact pieces out of a stream, with a bound on how much may come in all: what is packed small may be a bomb. */
class Pieces {
  readonly #chunks: AsyncIterator<Uint8Array>
  readonly #bytesMax: number
  #held = new Uint8Array(0) as Uint8Array
  #readBytes = 0

  constructor(chunks: AsyncIterable<Uint8Array>, bytesMax: number) {
    this.#chunks = chunks[Symbol.asyncIterator]()
    this.#bytesMax = bytesMax
  }

  async exactly(count: number): Promise<Uint8Array> {
    const whole = new Uint8Array(count)
    let at = 0
    for await (const part of this.parts(count)) {
      whole.set(part, at)
      at += part.length
    }
    return whole
  }

  async skip(count: number): Promise<void> {
    for await (const _ of this.parts(count));
  }

  /** Each part is valid until the next one is asked for. */
  async *parts(count: number): AsyncGenerator<Uint8Array> {
    let left = count
    while (left > 0) {
      if (this.#held.length === 0) await this.#fill()
      const part = this.#held.subarray(0, left)
      this.#held = this.#held.subarray(part.length)
      left -= part.length
      yield part
    }
  }

  async #fill(): Promise<void> {
    while (this.#held.length === 0) {
      const { done, value } = await this.#chunks.next()
      if (done === true) throw new Malformed('archive: it ends early')
      this.#readBytes += value.length
      wellFormed(this.#readBytes <= this.#bytesMax, `archive: more than ${this.#bytesMax} bytes, unpacked`)
      this.#held = value
    }
  }
}
