// Packs source files as a tar.gz, the same bytes for the same files: sorted names, fixed time and owner; ustar and pax.
// Effects: reads files.

import { closeSync, fstatSync, lstatSync, openSync, readlinkSync, readSync } from 'node:fs'
import { join } from 'node:path'
import { createGzip } from 'node:zlib'
import { fromUtf8 } from '../../base/bytes.ts'
import { encodePax, encodeUstar, tarBlockBytes, tarPaddingBytes, USTAR } from '../../base/ustar.codec.ts'
import { InputFault } from '../../terminal/exit.ts'
import { bytesText } from '../../terminal/render.ts'

/** 1980-01-01: what every archive format can say. */
const mtimeSeconds = 315_532_800

export type Packed = { readonly bytes: Uint8Array; readonly fileCount: number }

/** Fault invalid_request: it comes out larger than `bytesMax`, or a file cannot be read. */
export async function packSource(directory: string, paths: readonly string[], bytesMax: number): Promise<Packed> {
  const gzip = createGzip({ level: 6 })
  const parts: Uint8Array[] = []
  let sizeBytes = 0
  const done = new Promise<void>((resolve, reject) => {
    gzip.on('data', (part: Uint8Array) => {
      sizeBytes += part.length
      if (sizeBytes <= bytesMax) parts.push(part)
    })
    gzip.on('end', resolve)
    gzip.on('error', reject)
  })
  const write = async (bytes: Uint8Array) => {
    if (!gzip.write(bytes)) await new Promise(resolve => gzip.once('drain', resolve))
  }
  for (const path of paths) {
    await writeEntry(join(directory, path), path, write)
    if (sizeBytes > bytesMax) break
  }
  await write(new Uint8Array(tarBlockBytes * 2))
  gzip.end()
  await done
  if (sizeBytes > bytesMax) {
    throw new InputFault(`the source is larger than ${bytesText(bytesMax)}, packed`, {
      param: 'source',
      remedy: 'name what is no source in .gitignore',
    })
  }
  return { bytes: Buffer.concat(parts), fileCount: paths.length }
}

type Write = (bytes: Uint8Array) => Promise<void>

async function writeEntry(file: string, path: string, write: Write): Promise<void> {
  const stat = lstatSync(file)
  if (stat.isSymbolicLink()) {
    await writeHeader({ path, type: '2', mode: 0o777, sizeBytes: 0, target: readlinkSync(file) }, write)
    return
  }
  const fd = openSync(file, 'r')
  try {
    const { size, mode } = fstatSync(fd)
    await writeHeader(
      { path, type: '0', mode: (mode & 0o100) === 0 ? 0o644 : 0o755, sizeBytes: size, target: '' },
      write,
    )
    for (let at = 0; at < size; ) {
      const buffer = Buffer.alloc(Math.min(1_048_576, size - at))
      const count = readSync(fd, buffer, 0, buffer.length, at)
      if (count === 0) {
        throw new InputFault(`${path} changed while it was read`, {
          param: 'source',
          remedy: 'try again when nothing writes there',
        })
      }
      await write(buffer.subarray(0, count))
      at += count
    }
    await write(new Uint8Array(tarPaddingBytes(size)))
  } finally {
    closeSync(fd)
  }
}

type Header = {
  readonly path: string
  readonly type: '0' | '2' | 'x'
  readonly mode: number
  readonly sizeBytes: number
  readonly target: string
}

async function writeHeader(header: Header, write: Write): Promise<void> {
  const records = Buffer.concat([...paxOf('path', header.path), ...paxOf('linkpath', header.target)])
  if (records.length > 0) {
    await write(block({ path: 'pax', type: 'x', mode: 0o644, sizeBytes: records.length, target: '' }))
    await write(records)
    await write(new Uint8Array(tarPaddingBytes(records.length)))
  }
  await write(block(header))
}

const nameBytesMax = USTAR.name[1]

/** A record where the name has no place in the header, or is not of ASCII. */
function paxOf(key: string, value: string): Uint8Array[] {
  if (Buffer.byteLength(value) <= nameBytesMax && /^[\x20-\x7e]*$/.test(value)) return []
  return [encodePax(key, value)]
}

function block({ path, type, mode, sizeBytes, target }: Header): Uint8Array {
  const names = { name: cut(path), prefix: '', linkName: cut(target) }
  return encodeUstar({ ...names, type, mode, sizeBytes, mtimeSeconds })
}

/** The part of a name that fits the header; a pax record beside it holds the whole. */
function cut(text: string): string {
  const bytes = new Uint8Array(nameBytesMax)
  const { written } = new TextEncoder().encodeInto(text, bytes)
  return fromUtf8(bytes.subarray(0, written))
}
