// Reads the tar of a build's result: POSIX.1-2017 ustar and pax, and GNU's long names. Pure. Throws Malformed.
//
// Accepts only files and directories, each name once and inside of the archive. Writes nothing to disk.

import { Malformed, wellFormed } from '../../../attest/malformed.ts'
import { ByteReader } from '../../../base/byte-reader.ts'
import {
  decodePax,
  decodeUstar,
  tarBlockBytes,
  tarPaddingBytes,
  type UstarHeader,
  type UstarNumber,
  untilNul,
} from '../../../base/ustar.codec.ts'

export type TarFile = {
  readonly path: string
  readonly sizeBytes: number
  /** Whether its owner may execute it. */
  readonly isExecutable: boolean
  readonly content: AsyncIterable<Uint8Array>
}

const extensionBytesMax = 64 * 1024

/** Yields files. Read each file's content to its end before requesting the next one. */
export async function* readResultTar(
  chunks: AsyncIterable<Uint8Array>,
  limits: { bytesMax: number },
): AsyncGenerator<TarFile> {
  const reader = new ByteReader(chunks, {
    ...limits,
    tooMuch: () => new Malformed(`archive: more than ${limits.bytesMax} bytes, unpacked`),
    tooLittle: endsEarly,
  })
  let longName: string | null = null
  for (;;) {
    const header = headerOf(await exactly(reader, tarBlockBytes))
    if (header === null) break
    const { type } = header
    const sizeBytes = numberOf(header.sizeBytes)
    if (type === 'x' || type === 'g' || type === 'L') {
      wellFormed(sizeBytes <= extensionBytesMax, `archive: a record of ${sizeBytes} bytes before an entry`)
      const record = await exactly(reader, sizeBytes)
      await reader.skip(tarPaddingBytes(sizeBytes))
      if (type === 'L') longName = decodeText(untilNul(record))
      if (type === 'x') longName = paxPath(record) ?? longName
      continue
    }
    const path = longName ?? decodeText(header.name)
    longName = null
    wellFormed(type === '0' || type === '5', `archive: ${JSON.stringify(path)} is neither a file nor a directory`)
    if (type === '5') {
      wellFormed(sizeBytes === 0, `archive: the directory ${JSON.stringify(path)} has content`)
      continue
    }
    const content = reader.parts(sizeBytes)
    yield { path, sizeBytes, isExecutable: (numberOf(header.mode) & 0o100) !== 0, content }
    // Skip the bytes that the caller did not read, up to the next header.
    for await (const _ of content);
    await reader.skip(tarPaddingBytes(sizeBytes))
  }
}

function endsEarly(): Malformed {
  return new Malformed('archive: it ends early')
}

async function exactly(reader: ByteReader, count: number): Promise<Uint8Array> {
  const piece = await reader.piece(count)
  if (piece === null) throw endsEarly()
  return piece
}

function decodeText(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('utf8')
}

/** Decodes a header; null at the end. */
function headerOf(block: Uint8Array): UstarHeader | null {
  const read = decodeUstar(block)
  wellFormed(read.kind !== 'no-magic', 'archive: a header that is not of ustar, pax or GNU tar')
  wellFormed(read.kind !== 'wrong-checksum', 'archive: a header with a wrong checksum: it is damaged')
  return read.kind === 'empty' ? null : read.header
}

function numberOf(value: UstarNumber): number {
  if (typeof value !== 'number') throw new Malformed('archive: a header with a number that is not octal')
  return value
}

/** Returns the path of a pax header; null if no record is a path. Ignores times and owners. */
function paxPath(bytes: Uint8Array): string | null {
  const records = decodePax(bytes)
  if (records === null) throw new Malformed('archive: a malformed pax record')
  let found: string | null = null
  for (const [key, value] of records) {
    wellFormed(key !== 'size' && !key.startsWith('GNU.sparse'), `archive: a pax record of ${key}; pack it without`)
    if (key === 'path') found = decodeText(value)
  }
  return found
}
