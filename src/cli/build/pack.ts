// Packs source files as a tar.gz, the same bytes for the same files: sorted names, fixed time and owner. POSIX.1-2017 ustar, pax for long names.
// Effects: reads files.

import { closeSync, fstatSync, lstatSync, openSync, readlinkSync, readSync } from 'node:fs'
import { join } from 'node:path'
import { createGzip } from 'node:zlib'
import { InputFault } from '../exit.ts'
import { bytesText } from '../render.ts'

const blockBytes = 512
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
  await write(new Uint8Array(blockBytes * 2))
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
    await write(new Uint8Array((blockBytes - (size % blockBytes)) % blockBytes))
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
  const records = [...paxOf('path', header.path, 100), ...paxOf('linkpath', header.target, 100)].join('')
  if (records !== '') {
    const bytes = Buffer.from(records)
    await write(block({ path: 'pax', type: 'x', mode: 0o644, sizeBytes: bytes.length, target: '' }))
    await write(bytes)
    await write(new Uint8Array((blockBytes - (bytes.length % blockBytes)) % blockBytes))
  }
  await write(block(header))
}

/** A record where the name has no place in the header, or is not of ASCII. Its length counts itself. */
function paxOf(key: string, value: string, bytesMax: number): string[] {
  if (Buffer.byteLength(value) <= bytesMax && /^[\x20-\x7e]*$/.test(value)) return []
  const rest = ` ${key}=${value}\n`
  const size = Buffer.byteLength(rest)
  let length = size + 1
  while (String(length).length + size !== length) length = String(length).length + size
  return [`${length}${rest}`]
}

function block({ path, type, mode, sizeBytes, target }: Header): Uint8Array {
  const bytes = Buffer.alloc(blockBytes)
  const octal = (value: number, width: number) => `${value.toString(8).padStart(width - 1, '0')}\0`
  bytes.write(path.slice(0, 100), 0, 100, 'utf8')
  bytes.write(octal(mode, 8), 100)
  bytes.write(octal(0, 8), 108)
  bytes.write(octal(0, 8), 116)
  bytes.write(octal(sizeBytes, 12), 124)
  bytes.write(octal(mtimeSeconds, 12), 136)
  bytes.write(' '.repeat(8), 148)
  bytes.write(type, 156)
  bytes.write(target.slice(0, 100), 157, 100, 'utf8')
  bytes.write('ustar\x0000', 257, 'latin1')
  const sum = bytes.reduce((total, byte) => total + byte, 0)
  bytes.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  return bytes
}
