// Reads zip (PKWARE APPNOTE.TXT 6.3.10, sections 4.3 and 4.4). Effects: reads one file, and unpacks in this process.
//
// Stricter than libraries for zip: central directory and local headers agree, entries lie one after the other from the
// first byte to the directory, without overlap or rest. Encryption, zip64 and methods other than stored and deflated
// are refused.

import { isUtf8 } from 'node:buffer'
import type * as fs from 'node:fs'
import { createInflateRaw } from 'node:zlib'
import { fromUtf8 } from '../../base/bytes.ts'
import { invalid, SourceFailure } from './failure.ts'
import type { ArchiveEntry } from './tar.ts'
import { nameBytesMax, showName } from './tree.plan.ts'

type ZipFile = {
  readonly handle: fs.promises.FileHandle
  readonly sizeBytes: number
  readonly entriesMax: number
}

const SIGNATURE = { local: 0x04034b50, central: 0x02014b50, end: 0x06054b50, descriptor: 0x08074b50 } as const
const SIZE = { local: 30, central: 46, end: 22, zip64Locator: 20 } as const
const commentBytesMax = 65_535
const FLAG = { encrypted: 0x0001, descriptor: 0x0008, strong: 0x0040, masked: 0x2000, patched: 0x0020 } as const
const METHOD = { stored: 0, deflated: 8 } as const
/** Extra fields that change what an entry is: zip64, AES, another name. */
const EXTRA = { zip64: 0x0001, aes: 0x9901, unicodePath: 0x7075 } as const
/** Upper byte of `version made by`. */
const MADE_BY_UNIX: ReadonlySet<number> = new Set([3, 19])
/** FAT, NTFS and VFAT; Info-ZIP's number of NTFS is 11. */
const MADE_BY_WINDOWS: ReadonlySet<number> = new Set([0, 10, 11, 14])
const MODE = { mask: 0o170000, file: 0o100000, directory: 0o040000, link: 0o120000 } as const
const chunkBytes = 256 * 1024

type Central = {
  readonly name: Uint8Array
  /** Value in both headers. */
  readonly rawName: Uint8Array
  readonly unicodeName: Uint8Array
  readonly flags: number
  readonly method: number
  readonly crc: number
  readonly packedBytes: number
  readonly sizeBytes: number
  readonly localOffset: number
  /** 0: the archive does not say. */
  readonly unixMode: number
}

/** The content of a file is read before the next entry. SourceFailure. */
export async function* readZip(file: ZipFile): AsyncGenerator<ArchiveEntry> {
  const { entries, directoryOffset } = await readDirectory(file)
  const ordered = [...entries].sort((a, b) => a.localOffset - b.localOffset)
  let at = 0
  for (const entry of ordered) {
    if (entry.localOffset !== at)
      throw invalid(`${showName(entry.name)}: zip entries that overlap, or bytes between them`)
    const dataOffset = await checkLocal(file, entry, directoryOffset)
    at = await endOf(file, entry, dataOffset + entry.packedBytes, directoryOffset)
    yield await entryOf(file, entry, dataOffset)
  }
  if (at !== directoryOffset) throw invalid('zip: bytes between the last entry and the directory')
}

async function read({ handle, sizeBytes }: ZipFile, offset: number, count: number): Promise<DataView> {
  if (offset < 0 || count < 0 || offset + count > sizeBytes) throw invalid('zip: an offset outside of the file')
  const bytes = new Uint8Array(count)
  for (let done = 0; done < count; ) {
    const { bytesRead } = await handle.read(bytes, done, count - done, offset + done)
    if (bytesRead === 0) throw invalid('the archive ends early; pack it again')
    done += bytesRead
  }
  return new DataView(bytes.buffer)
}

function sliceBytes(view: DataView, offset: number, count: number): Uint8Array {
  return new Uint8Array(view.buffer, offset, count)
}

async function readDirectory(file: ZipFile): Promise<{ entries: readonly Central[]; directoryOffset: number }> {
  const tailBytes = Math.min(file.sizeBytes, SIZE.end + commentBytesMax)
  const tail = await read(file, file.sizeBytes - tailBytes, tailBytes)
  const ends: number[] = []
  for (let at = tailBytes - SIZE.end; at >= 0; at -= 1) if (tail.getUint32(at, true) === SIGNATURE.end) ends.push(at)
  const [at] = ends
  // With a second end record in a comment, two readers may find two archives.
  if (at === undefined || ends.length > 1) throw invalid(`zip: ${ends.length} end records in place of one`)
  const [disk, directoryDisk, entriesHere, entryCount] = [4, 6, 8, 10].map(offset => tail.getUint16(at + offset, true))
  const directoryBytes = tail.getUint32(at + 12, true)
  const directoryOffset = tail.getUint32(at + 16, true)
  if (at + SIZE.end + tail.getUint16(at + 20, true) !== tailBytes) throw invalid('zip: bytes after the end record')
  if (entryCount === 0xffff || directoryBytes === 0xffffffff || directoryOffset === 0xffffffff) throw zip64()
  if (disk !== 0 || directoryDisk !== 0 || entriesHere !== entryCount)
    throw invalid('zip: in several parts; send one file')
  const endOffset = file.sizeBytes - tailBytes + at
  if (directoryOffset + directoryBytes !== endOffset)
    throw invalid('zip: the directory does not end where the end record begins')
  if (entryCount === undefined || entryCount > file.entriesMax)
    throw invalid(`more than ${file.entriesMax} files and directories`)
  /** No share: limits one archive. */
  const perEntryMax = SIZE.central + 3 * 65_535
  if (directoryBytes > entryCount * perEntryMax || directoryBytes > directoryBytesMax)
    throw invalid('zip: a directory that is too large')
  const view = await read(file, directoryOffset, directoryBytes)
  const entries: Central[] = []
  let offset = 0
  for (let index = 0; index < entryCount; index += 1) {
    const { entry, nextOffset } = centralAt(view, offset)
    entries.push(entry)
    offset = nextOffset
  }
  if (offset !== directoryBytes) throw invalid('zip: bytes in the directory beside its entries')
  return { entries, directoryOffset }
}

const directoryBytesMax = 64 * 1024 * 1024

function zip64(): SourceFailure {
  return invalid('zip64; send a tar.gz, or a zip of fewer than 65,535 entries and 4 GiB')
}

function centralAt(view: DataView, at: number): { entry: Central; nextOffset: number } {
  if (at + SIZE.central > view.byteLength || view.getUint32(at, true) !== SIGNATURE.central) {
    throw invalid('zip: a malformed directory')
  }
  const [nameBytes = 0, extraBytes = 0, commentBytes = 0] = [28, 30, 32].map(offset =>
    view.getUint16(at + offset, true),
  )
  const nextOffset = at + SIZE.central + nameBytes + extraBytes + commentBytes
  if (nextOffset > view.byteLength) throw invalid('zip: a malformed directory')
  const rawName = sliceBytes(view, at + SIZE.central, nameBytes)
  if (nameBytes === 0) throw invalid('a name of 0 bytes')
  const unicodeName = readExtra(sliceBytes(view, at + SIZE.central + nameBytes, extraBytes), rawName)
  const madeBy = view.getUint8(at + 5)
  const entry: Central = {
    name: MADE_BY_WINDOWS.has(madeBy) ? withSlashes(unicodeName) : unicodeName,
    rawName,
    unicodeName,
    flags: view.getUint16(at + 8, true),
    method: view.getUint16(at + 10, true),
    crc: view.getUint32(at + 16, true),
    packedBytes: view.getUint32(at + 20, true),
    sizeBytes: view.getUint32(at + 24, true),
    localOffset: view.getUint32(at + 42, true),
    unixMode: MADE_BY_UNIX.has(madeBy) ? view.getUint16(at + 40, true) : 0,
  }
  if ([entry.packedBytes, entry.sizeBytes, entry.localOffset].includes(0xffffffff)) throw zip64()
  if (view.getUint16(at + 34, true) !== 0) throw invalid('zip: in several parts; send one file')
  checkFlags(entry)
  return { entry, nextOffset }
}

/** Replaces backslashes: old .NET and PowerShell write these alone (against 4.4.17.1). */
function withSlashes(name: Uint8Array): Uint8Array {
  return name.includes(slash) ? name : name.map(byte => (byte === backslash ? slash : byte))
}

const slash = 0x2f
const backslash = 0x5c

function checkFlags({ name, flags, method, packedBytes, sizeBytes }: Central): void {
  if ((flags & (FLAG.encrypted | FLAG.strong | FLAG.masked)) !== 0) throw invalid(`${showName(name)}: encrypted`)
  if ((flags & FLAG.patched) !== 0) throw invalid(`${showName(name)}: patch data`)
  if (method !== METHOD.stored && method !== METHOD.deflated)
    throw invalid(`${showName(name)}: zip method ${method}; use stored or deflated`)
  if (method === METHOD.stored && packedBytes !== sizeBytes) throw invalid(`${showName(name)}: stored, in another size`)
}

/** Returns the name: Windows tools write it in a code page, and beside it in UTF-8 (4.6.9). */
function readExtra(extra: Uint8Array, name: Uint8Array): Uint8Array {
  let found = name
  const view = new DataView(extra.buffer, extra.byteOffset, extra.byteLength)
  for (let at = 0; at < extra.length; ) {
    if (at + 4 > extra.length) throw invalid(`${showName(name)}: a malformed extra field`)
    const id = view.getUint16(at, true)
    const end = at + 4 + view.getUint16(at + 2, true)
    if (end > extra.length) throw invalid(`${showName(name)}: a malformed extra field`)
    if (id === EXTRA.zip64) throw zip64()
    if (id === EXTRA.aes) throw invalid(`${showName(name)}: encrypted`)
    if (id === EXTRA.unicodePath) {
      // Version, CRC of the other name, then the name itself.
      const other = extra.subarray(at + 9, end)
      const isFirst = found === name && at + 9 <= end
      const isTranslation = isFirst && !isUtf8(name) && view.getUint32(at + 5, true) === Bun.hash.crc32(name)
      if (!isTranslation && !isSame(other, name)) throw invalid(`${showName(name)}: a second, other name`)
      found = other
    }
    at = end
  }
  return found
}

function isSame(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, at) => byte === b[at])
}

/** Offset of the entry's data. */
async function checkLocal(file: ZipFile, entry: Central, directoryOffset: number): Promise<number> {
  const { name, rawName, localOffset } = entry
  const header = await read(file, localOffset, SIZE.local)
  const nameBytes = header.getUint16(26, true)
  const extraBytes = header.getUint16(28, true)
  const dataOffset = localOffset + SIZE.local + nameBytes + extraBytes
  if (header.getUint32(0, true) !== SIGNATURE.local || dataOffset + entry.packedBytes > directoryOffset) {
    throw invalid(`${showName(name)}: a malformed local header`)
  }
  const rest = await read(file, localOffset + SIZE.local, nameBytes + extraBytes)
  const unicodeName = readExtra(sliceBytes(rest, nameBytes, extraBytes), rawName)
  const hasDescriptor = (entry.flags & FLAG.descriptor) !== 0
  const [crc, packedBytes, sizeBytes] = [14, 18, 22].map(offset => header.getUint32(offset, true))
  const isUnset = hasDescriptor && crc === 0 && packedBytes === 0 && sizeBytes === 0
  const sameSizes = crc === entry.crc && packedBytes === entry.packedBytes && sizeBytes === entry.sizeBytes
  const same =
    isSame(sliceBytes(rest, 0, nameBytes), rawName) &&
    (isSame(unicodeName, rawName) || isSame(unicodeName, entry.unicodeName)) &&
    header.getUint16(6, true) === entry.flags &&
    header.getUint16(8, true) === entry.method &&
    (isUnset || sameSizes)
  if (!same) throw invalid(`${showName(name)}: local header and directory differ`)
  return dataOffset
}

/** Where the entry ends, its data descriptor included (4.3.9). */
async function endOf(file: ZipFile, entry: Central, dataEnd: number, directoryOffset: number): Promise<number> {
  if ((entry.flags & FLAG.descriptor) === 0) return dataEnd
  if (dataEnd + 12 > directoryOffset) throw invalid(`${showName(entry.name)}: no data descriptor`)
  const view = await read(file, dataEnd, Math.min(16, directoryOffset - dataEnd))
  for (const start of [4, 0]) {
    if (start === 4 && view.getUint32(0, true) !== SIGNATURE.descriptor) continue
    if (start + 12 > view.byteLength) continue
    const [crc, packedBytes, sizeBytes] = [0, 4, 8].map(offset => view.getUint32(start + offset, true))
    if (crc === entry.crc && packedBytes === entry.packedBytes && sizeBytes === entry.sizeBytes)
      return dataEnd + start + 12
  }
  throw invalid(`${showName(entry.name)}: data descriptor and directory differ`)
}

async function entryOf(file: ZipFile, entry: Central, dataOffset: number): Promise<ArchiveEntry> {
  const { name, unixMode, sizeBytes } = entry
  const executable = (unixMode & 0o100) !== 0
  const type = unixMode & MODE.mask
  const isDirectory = name.at(-1) === slash
  if (isDirectory || type === MODE.directory) {
    if (sizeBytes !== 0 || (type !== 0 && type !== MODE.directory) || !isDirectory)
      throw invalid(`${showName(name)}: a directory with content`)
    return { kind: 'directory', name, executable }
  }
  if (type === MODE.link) {
    if (sizeBytes > nameBytesMax) throw invalid(`${showName(name)}: a link's target of ${sizeBytes} bytes`)
    const parts: Uint8Array[] = []
    for await (const part of contentOf(file, entry, dataOffset)) parts.push(part.slice())
    return { kind: 'link', name, executable, target: targetOf(Buffer.concat(parts), name) }
  }
  if (type !== 0 && type !== MODE.file) {
    if (sizeBytes !== 0) throw invalid(`${showName(name)}: neither file, directory nor link`)
    return { kind: 'other', name, executable, problem: 'neither file, directory nor link' }
  }
  return { kind: 'file', name, executable, sizeBytes, content: contentOf(file, entry, dataOffset) }
}

function targetOf(bytes: Uint8Array, name: Uint8Array): string {
  try {
    return fromUtf8(bytes)
  } catch {
    throw invalid(`${showName(name)}: a link's target that is not UTF-8`)
  }
}

async function* contentOf(file: ZipFile, entry: Central, dataOffset: number): AsyncGenerator<Uint8Array> {
  const { name, method, sizeBytes, crc } = entry
  let total = 0
  let sum = 0
  const unpacked = method === METHOD.stored ? packed(file, entry, dataOffset) : inflated(file, entry, dataOffset)
  for await (const part of unpacked) {
    total += part.length
    // Before the bytes go anywhere: an entry may unpack to a thousand times the directory's size.
    if (total > sizeBytes) throw invalid(`${showName(name)}: more content than the directory states`)
    sum = Bun.hash.crc32(part, sum)
    yield part
  }
  if (total !== sizeBytes || sum !== crc)
    throw invalid(`${showName(name)}: content and directory differ; the archive is damaged`)
}

async function* packed(file: ZipFile, { packedBytes }: Central, dataOffset: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < packedBytes; at += chunkBytes) {
    const count = Math.min(chunkBytes, packedBytes - at)
    yield sliceBytes(await read(file, dataOffset + at, count), 0, count)
  }
}

async function* inflated(file: ZipFile, entry: Central, dataOffset: number): AsyncGenerator<Uint8Array> {
  const inflate = createInflateRaw()
  const feeding = feed()
  feeding.catch(error => inflate.destroy(error))
  try {
    for await (const part of inflate) yield part
  } catch (error) {
    if (error instanceof SourceFailure) throw error
    throw invalid(`${showName(entry.name)}: cannot be inflated; the archive is damaged`)
  } finally {
    inflate.destroy()
  }

  async function feed(): Promise<void> {
    for await (const part of packed(file, entry, dataOffset)) {
      if (inflate.destroyed) return
      if (!inflate.write(part)) await drained()
    }
    inflate.end()
  }

  function drained(): Promise<void> {
    return new Promise(resolve => {
      const done = () => {
        inflate.off('drain', done)
        inflate.off('close', done)
        resolve()
      }
      inflate.on('drain', done)
      inflate.on('close', done)
      if (inflate.destroyed) done()
    })
  }
}
