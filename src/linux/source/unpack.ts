// Unpacks a source archive, whose first bytes name its format, into our empty directory. Effects:
// reads one file; writes below one directory, to which no other process writes meanwhile; runs xz(1).

import * as fs from 'node:fs'
import { constants, createGunzip, createZstdDecompress } from 'node:zlib'
import { ByteReader } from '../../base/byte-reader.ts'
import { looksLikeTar } from '../../base/ustar.codec.ts'
import { refuseUnless, SourceFailure } from './failure.ts'
import { dropMacFiles } from './mac-files.ts'
import { type ArchiveEntry, readTar } from './tar.ts'
import { isMacFile, readName, showName, TreePlan } from './tree.plan.ts'
import { unxz } from './xz.ts'
import { readZip } from './zip.ts'

export type UnpackOrder = {
  /** The exchange disk, where the archive starts at byte 0. */
  readonly device: string
  readonly sizeBytes: number
  /** Empty. */
  readonly into: string
  readonly bytesMax: number
  readonly entriesMax: number
  /** Prefix of a decoder's command line. Drops root's rights in a build VM; empty for a client. */
  readonly unprivileged: readonly string[]
}

const FORMATS = ['tar.gz', 'tar.xz', 'tar.zst', 'tar', 'zip'] as const
type Format = (typeof FORMATS)[number]

export type Unpacked = {
  readonly format: Format
  readonly fileCount: number
  /** Remarks on entries that are not in the tree, each a noun phrase. */
  readonly leftOut: readonly string[]
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

function tarReader(order: UnpackOrder, format: Exclude<Format, 'zip'>): ByteReader {
  const bytesMax = tarBytesMax(order)
  return new ByteReader(tarBytes(order, format), {
    bytesMax,
    tooMuch: () => new SourceFailure(`source: more than ${bytesMax} bytes unpacked; send less`),
    tooLittle: () => new SourceFailure('source: the archive ends early; pack it again'),
  })
}

/** Content, and for each entry its headers and padding: three blocks, or more with long names. */
function tarBytesMax({ bytesMax, entriesMax }: UnpackOrder): number {
  return bytesMax + entriesMax * 4096 + 1024 * 1024
}

/** First bytes of a file: RFC 1952 2.3.1, xz-file-format 2.1.1.1, RFC 8878 3.1.1, APPNOTE.TXT 4.3.7. */
const MAGIC = {
  'tar.gz': [0x1f, 0x8b],
  'tar.xz': [0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00],
  'tar.zst': [0x28, 0xb5, 0x2f, 0xfd],
  zip: [0x50, 0x4b, 0x03, 0x04],
} as const satisfies Partial<Record<Format, readonly number[]>>

async function formatOf(handle: fs.promises.FileHandle, sizeBytes: number): Promise<Format> {
  const head = Buffer.alloc(Math.min(sizeBytes, 512))
  await handle.read(head, 0, head.length, 0)
  for (const format of FORMATS) {
    const isFormat = format === 'tar' ? looksLikeTar(head) : MAGIC[format].every((byte, at) => head[at] === byte)
    if (isFormat) return format
  }
  throw new SourceFailure(`source: neither gzip, xz, zstd, tar nor zip with content; send one of ${FORMATS.join(', ')}`)
}

/** A window of at most 128 MiB: what zstd itself takes without an option. */
const zstdOptions = { chunkSize: 256 * 1024, params: { [constants.ZSTD_d_windowLogMax]: 27 } }

async function* tarBytes(order: UnpackOrder, format: Exclude<Format, 'zip'>): AsyncGenerator<Uint8Array> {
  const { device, sizeBytes, unprivileged } = order
  const file = fs.createReadStream(device, { start: 0, end: sizeBytes - 1, highWaterMark: 256 * 1024 })
  try {
    if (format === 'tar') return yield* file
    if (format === 'tar.xz') return yield* unxz(file, unprivileged)
    const decoder = format === 'tar.gz' ? createGunzip() : createZstdDecompress(zstdOptions)
    file.on('error', error => decoder.destroy(error))
    file.pipe(decoder)
    try {
      yield* decoder
    } catch (cause) {
      throw new SourceFailure(`source: damaged ${format === 'tar.gz' ? 'gzip' : 'zstd'}; pack it again`, { cause })
    } finally {
      decoder.destroy()
    }
  } finally {
    file.destroy()
  }
}

async function writeTree(
  entries: AsyncIterable<ArchiveEntry>,
  order: UnpackOrder,
): Promise<Pick<Unpacked, 'fileCount' | 'leftOut'>> {
  const plan = new TreePlan(order.entriesMax)
  const must = (problem: string | null) =>
    refuseUnless(problem === null, () => `source: ${problem}; correct the archive`)
  const leftOutCounts = { git: 0, finder: 0 }
  const macFiles: string[] = []
  let unpackedBytes = 0
  const countBytes = (sizeBytes: number) => {
    unpackedBytes += sizeBytes
    must(unpackedBytes > order.bytesMax ? `more than ${order.bytesMax} bytes unpacked` : null)
  }
  let entryCount = 0
  for await (const entry of entries) {
    entryCount += 1
    must(entryCount > order.entriesMax ? `more than ${order.entriesMax} entries` : null)
    const name = readName(entry.name)
    if (name.kind === 'refused') must(name.problem)
    if (name.kind === 'git' || name.kind === 'finder') {
      leftOutCounts[name.kind] += 1
      if (entry.kind !== 'file') continue
      // Skipping the content still decompresses it.
      countBytes(entry.sizeBytes)
      for await (const _ of entry.content);
      continue
    }
    if (entry.kind === 'other') must(`${showName(entry.name)}: ${entry.problem}`)
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
    if (entry.kind !== 'file') continue
    must(name.isDirectory ? `${showName(components.join('/'))}: a file whose name ends with a slash` : null)
    must(plan.addFile(components))
    countBytes(entry.sizeBytes)
    await writeFile(`${order.into}/${components.join('/')}`, entry)
    if (isMacFile(components)) macFiles.push(components.join('/'))
  }
  must(plan.linkProblem())
  const dropped = dropMacFiles(order.into, macFiles)
  for (const { path, target } of plan.links()) {
    makeParent(`${order.into}/${path}`)
    fs.symlinkSync(target, `${order.into}/${path}`)
  }
  const leftOut = [
    ...(leftOutCounts.git === 0 ? [] : [`.git with ${leftOutCounts.git} entries, which is not trusted`]),
    ...(leftOutCounts.finder === 0
      ? []
      : [`__MACOSX with ${leftOutCounts.finder} entries, which Finder adds to a zip`]),
    ...(dropped.length === 0 ? [] : [`files that macOS adds: ${shortList(dropped)}`]),
  ]
  return { fileCount: plan.fileCount() - dropped.length, leftOut }
}

/** No share: limits one archive. */
const shownMax = 20

function shortList(paths: readonly string[]): string {
  const shown = paths.slice(0, shownMax).map(showName).join(', ')
  return paths.length > shownMax ? `${shown} and ${paths.length - shownMax} more` : shown
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
