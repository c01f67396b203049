// Packs source files as a tar.gz, reproducibly: sorted names, fixed time and owner; ustar and pax. Effects: reads
// files.

import { closeSync, fstatSync, lstatSync, openSync, readlinkSync, readSync } from 'node:fs'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { createGzip } from 'node:zlib'
import { fromUtf8 } from '../../base/bytes.ts'
import { encodePax, type NewUstarHeader, type TarEntry, USTAR, writeTar } from '../../base/ustar.codec.ts'
import { InputFault } from '../../terminal/exit.ts'
import { bytesText } from '../../terminal/render.ts'

/** 1980-01-01, which every archive format can represent. */
const mtimeSeconds = 315_532_800

export type Packed = { readonly bytes: Uint8Array; readonly fileCount: number }

/** Packs files. Throws Fault invalid_request if the result is larger than `bytesMax`, or a file is unreadable. */
export async function packSource(directory: string, paths: readonly string[], bytesMax: number): Promise<Packed> {
  const parts: Uint8Array[] = []
  let sizeBytes = 0
  const entries = sourceEntries(directory, paths, () => sizeBytes > bytesMax)
  await pipeline(writeTar(entries), createGzip({ level: 6 }), async (packed: AsyncIterable<Uint8Array>) => {
    for await (const part of packed) {
      sizeBytes += part.length
      if (sizeBytes <= bytesMax) parts.push(part)
    }
  })
  if (sizeBytes > bytesMax) {
    throw new InputFault(`the source is larger than ${bytesText(bytesMax)}, packed`, {
      param: 'source',
      remedy: 'name what is no source in .gitignore',
    })
  }
  return { bytes: Buffer.concat(parts), fileCount: paths.length }
}

function* sourceEntries(directory: string, paths: readonly string[], isFull: () => boolean): Generator<TarEntry> {
  for (const path of paths) {
    if (isFull()) return
    const file = join(directory, path)
    if (lstatSync(file).isSymbolicLink()) {
      yield* withNames({ path, type: '2', mode: 0o777, sizeBytes: 0, target: readlinkSync(file) }, [])
      continue
    }
    const fd = openSync(file, 'r')
    try {
      const { size: sizeBytes, mode } = fstatSync(fd)
      const header = { path, type: '0', mode: (mode & 0o100) === 0 ? 0o644 : 0o755, sizeBytes, target: '' } as const
      yield* withNames(header, contentOf(fd, path, sizeBytes))
    } finally {
      closeSync(fd)
    }
  }
}

function* contentOf(fd: number, path: string, sizeBytes: number): Generator<Uint8Array> {
  for (let at = 0; at < sizeBytes; ) {
    const buffer = Buffer.alloc(Math.min(1_048_576, sizeBytes - at))
    const count = readSync(fd, buffer, 0, buffer.length, at)
    if (count === 0) {
      throw new InputFault(`${path} changed while it was read`, {
        param: 'source',
        remedy: 'try again when nothing writes there',
      })
    }
    yield buffer.subarray(0, count)
    at += count
  }
}

type Header = {
  readonly path: string
  readonly type: '0' | '2' | 'x'
  readonly mode: number
  readonly sizeBytes: number
  readonly target: string
}

/** Yields the entry, preceded by a pax record if its header cannot hold the names. */
function* withNames(header: Header, content: Iterable<Uint8Array>): Generator<TarEntry> {
  const records = Buffer.concat([...paxOf('path', header.path), ...paxOf('linkpath', header.target)])
  if (records.length > 0) {
    const pax = { path: 'pax', type: 'x', mode: 0o644, sizeBytes: records.length, target: '' } as const
    yield { header: fieldsOf(pax), content: [records] }
  }
  yield { header: fieldsOf(header), content }
}

const nameBytesMax = USTAR.name[1]

/** Returns a record if the name does not fit the header, or is not ASCII. */
function paxOf(key: string, value: string): Uint8Array[] {
  if (Buffer.byteLength(value) <= nameBytesMax && /^[\x20-\x7e]*$/.test(value)) return []
  return [encodePax(key, value)]
}

function fieldsOf({ path, type, mode, sizeBytes, target }: Header): NewUstarHeader {
  const names = { name: cut(path), prefix: '', linkName: cut(target) }
  return { ...names, type, mode, sizeBytes, mtimeSeconds }
}

/** Returns the part of a name that fits the header; a pax record contains the full name. */
function cut(text: string): string {
  const bytes = new Uint8Array(nameBytesMax)
  const { written } = new TextEncoder().encodeInto(text, bytes)
  return fromUtf8(bytes.subarray(0, written))
}
