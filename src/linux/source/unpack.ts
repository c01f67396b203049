// Unpacks a source archive into our empty directory; its first bytes say tar.gz, tar or zip. Effects: reads one file,
// writes below one directory, which nobody else writes meanwhile.

import * as fs from 'node:fs'
import { createGunzip } from 'node:zlib'
import { ByteReader } from '../../base/byte-reader.ts'
import { looksLikeTar } from '../../base/ustar.codec.ts'
import { refuseUnless, SourceFailure } from './failure.ts'
import { type ArchiveEntry, readTar } from './tar.ts'
import { readName, showName, TreePlan } from './tree.plan.ts'
import { readZip } from './zip.ts'

export type UnpackOrder = {
  /** The exchange disk, where the archive starts at byte 0. */
  readonly device: string
  readonly sizeBytes: number
  /** Empty. */
  readonly into: string
  readonly bytesMax: number
  readonly entriesMax: number
}

export type Unpacked = {
  readonly format: 'tar.gz' | 'tar' | 'zip'
  readonly fileCount: number
  /** Parts of a `.git` that were left out. */
  readonly ignoredCount: number
}

/** SourceFailure, after which `into` holds a part of the source. */
export async function unpackArchive(order: UnpackOrder): Promise<Unpacked> {
  const handle = await fs.promises.open(order.device, fs.constants.O_RDONLY)
  try {
    const format = await formatOf(handle, order.sizeBytes)
    const entries =
      format === 'zip'
        ? readZip({ handle, sizeBytes: order.sizeBytes, entriesMax: order.entriesMax })
        : readTar(tarReader(order, format))
    return { format, ...(await writeTree(entries, order)) }
  } finally {
    await handle.close()
  }
}

function tarReader(order: UnpackOrder, format: 'tar.gz' | 'tar'): ByteReader {
  const bytesMax = tarBytesMax(order)
  return new ByteReader(tarBytes(order, format), {
    bytesMax,
    tooMuch: () => new SourceFailure(`source: more than ${bytesMax} bytes unpacked; send less`),
    tooLittle: () => new SourceFailure('source: the archive ends early; pack it anew'),
  })
}

/** Content, and for each entry its headers and padding: three blocks, or more with long names. */
function tarBytesMax({ bytesMax, entriesMax }: UnpackOrder): number {
  return bytesMax + entriesMax * 4096 + 1024 * 1024
}

async function formatOf(handle: fs.promises.FileHandle, sizeBytes: number): Promise<Unpacked['format']> {
  const head = Buffer.alloc(Math.min(sizeBytes, 512))
  await handle.read(head, 0, head.length, 0)
  const startsWith = (...bytes: number[]) => bytes.every((byte, at) => head[at] === byte)
  if (startsWith(0x1f, 0x8b)) return 'tar.gz'
  if (startsWith(0x50, 0x4b, 0x03, 0x04)) return 'zip'
  if (looksLikeTar(head)) return 'tar'
  throw new SourceFailure('source: neither gzip, tar nor zip with content; send a tar.gz, tar or zip')
}

async function* tarBytes({ device, sizeBytes }: UnpackOrder, format: 'tar.gz' | 'tar'): AsyncGenerator<Uint8Array> {
  const file = fs.createReadStream(device, { start: 0, end: sizeBytes - 1, highWaterMark: 256 * 1024 })
  try {
    if (format === 'tar') return yield* file
    const gunzip = createGunzip()
    file.on('error', error => gunzip.destroy(error))
    file.pipe(gunzip)
    try {
      yield* gunzip
    } catch (cause) {
      throw new SourceFailure('source: damaged gzip; pack it anew', { cause })
    } finally {
      gunzip.destroy()
    }
  } finally {
    file.destroy()
  }
}

async function writeTree(
  entries: AsyncIterable<ArchiveEntry>,
  order: UnpackOrder,
): Promise<Pick<Unpacked, 'fileCount' | 'ignoredCount'>> {
  const plan = new TreePlan(order.entriesMax)
  const must = (problem: string | null) =>
    refuseUnless(problem === null, () => `source: ${problem}; correct the archive`)
  let ignoredCount = 0
  let writtenBytes = 0
  let entryCount = 0
  for await (const entry of entries) {
    entryCount += 1
    must(entryCount > order.entriesMax ? `more than ${order.entriesMax} entries` : null)
    const name = readName(entry.name)
    if (name.kind === 'refused') must(name.problem)
    if (name.kind === 'ignored') {
      ignoredCount += 1
      if (entry.kind === 'file') for await (const _ of entry.content);
      continue
    }
    if (name.kind !== 'path') {
      must(entry.kind === 'directory' ? null : 'an entry without a name')
      continue
    }
    const { components } = name
    if (entry.kind === 'link') {
      must(plan.addLink(components, entry.target))
      continue
    }
    if (entry.kind === 'directory') {
      must(plan.addDirectory(components))
      continue
    }
    must(name.isDirectory ? `${showName(components.join('/'))}: a file whose name ends with a slash` : null)
    must(plan.addFile(components))
    writtenBytes += entry.sizeBytes
    must(writtenBytes > order.bytesMax ? `more than ${order.bytesMax} bytes unpacked` : null)
    await writeFile(`${order.into}/${components.join('/')}`, entry)
  }
  must(plan.linkProblem())
  for (const { path, target } of plan.links()) {
    makeParent(`${order.into}/${path}`)
    fs.symlinkSync(target, `${order.into}/${path}`)
  }
  return { fileCount: plan.fileCount(), ignoredCount }
}

/** Links are made last, so none is on the way. Directories without a file are not made: no git tree has them. */
async function writeFile(path: string, entry: Extract<ArchiveEntry, { kind: 'file' }>): Promise<void> {
  makeParent(path)
  const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = fs.constants
  const file = await fs.promises.open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, entry.executable ? 0o755 : 0o644)
  try {
    for await (const part of entry.content) await writeAll(file, part)
  } finally {
    await file.close()
  }
}

async function writeAll(file: fs.promises.FileHandle, part: Uint8Array): Promise<void> {
  for (let at = 0; at < part.length; ) at += (await file.write(part, at, part.length - at)).bytesWritten
}

function makeParent(path: string): void {
  fs.mkdirSync(path.slice(0, path.lastIndexOf('/')), { recursive: true, mode: 0o755 })
}
