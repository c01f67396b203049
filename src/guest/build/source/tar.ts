// Reads tar: POSIX.1-2017 pax (pax(1), "ustar Interchange Format" and "pax Interchange Format") and GNU's long names. No effects of its own.
//
// Stricter than libraries for tar, which are made to read what any tar wrote: one name for one entry, from one place; no hard links,
// devices, sparse files; an unknown keyword is refused, not skipped, for another reader may act on it.

import { fromUtf8 } from '../../../base/bytes.ts'
import { BuildFailure } from '../failure.ts'
import type { ByteReader } from './byte-reader.ts'
import { nameBytesMax, showName } from './tree.plan.ts'

export type ArchiveEntry = {
  /** As it stands in the archive; not checked. */
  readonly name: Uint8Array
  readonly executable: boolean
} & (
  | { readonly kind: 'file'; readonly sizeBytes: number; readonly content: AsyncIterable<Uint8Array> }
  | { readonly kind: 'directory' }
  | { readonly kind: 'link'; readonly target: string }
)

const blockBytes = 512
/** Header records of one entry. */
const extensionBytesMax = 64 * 1024

/** [offset, size] of the ustar header. */
const HEADER = {
  name: [0, 100],
  mode: [100, 8],
  size: [124, 12],
  checksum: [148, 8],
  type: [156, 1],
  linkName: [157, 100],
  magic: [257, 8],
  prefix: [345, 155],
} as const satisfies Record<string, readonly [offset: number, sizeBytes: number]>

export const tarMagicOffset = HEADER.magic[0]

/** Keywords that say nothing about what is on disk here. */
const paxIgnored =
  /^(?:mtime|atime|ctime|uid|gid|uname|gname|comment|SCHILY\.(?:xattr\..*|fflags|dev|ino|nlink)|LIBARCHIVE\.(?:xattr\..*|creationtime))$/

/** What the records before an entry say of it. */
type Extension = { name: Uint8Array | null; target: string | null; seen: Set<string> }

/** The content of a file is read or skipped before the next entry. Failure `source_invalid`. */
export async function* readTar(reader: ByteReader): AsyncGenerator<ArchiveEntry> {
  let extension: Extension = { name: null, target: null, seen: new Set() }
  let sawGlobal = false
  for (;;) {
    const header = await reader.piece(blockBytes)
    if (header === null) throw invalid('the tar ends without its two empty blocks; pack it anew')
    if (header.every(byte => byte === 0)) break
    const { type, sizeBytes } = checkHeader(header)
    if (type === 'x' || type === 'g') {
      const records = paxRecords(await extensionBytes(reader, sizeBytes, type))
      if (type === 'g') {
        if (sawGlobal || records.some(([key]) => key !== 'comment'))
          throw invalid('a global pax header of more than a comment')
        sawGlobal = true
      } else {
        for (const [key, value] of records) takePax(extension, key, value)
      }
      continue
    }
    if (type === 'L' || type === 'K') {
      takeGnu(extension, type, await extensionBytes(reader, sizeBytes, type))
      continue
    }
    const entry = entryOf(header, type, extension)
    extension = { name: null, target: null, seen: new Set() }
    if (entry.kind !== 'file') {
      if (sizeBytes !== 0) throw invalid(`${shown(entry.name)}: a ${entry.kind} with content`)
      yield entry
      continue
    }
    let readAll = false
    async function* content() {
      yield* reader.parts(sizeBytes)
      readAll = true
    }
    yield { ...entry, sizeBytes, content: content() }
    if (!readAll && sizeBytes > 0) throw new Error('invariant broken: an entry was not read to its end')
    await skip(reader, padding(sizeBytes))
  }
  if (extension.seen.size > 0) throw invalid('a name without its entry')
  await checkEnd(reader)
}

function invalid(problem: string): BuildFailure {
  return new BuildFailure('source_invalid', `source: ${problem}`)
}

function shown(name: Uint8Array): string {
  return showName(Buffer.from(name).toString('utf8'))
}

function field(header: Uint8Array, name: keyof typeof HEADER): Uint8Array {
  const [offset, sizeBytes] = HEADER[name]
  return header.subarray(offset, offset + sizeBytes)
}

/** Up to the first NUL. */
function untilNul(bytes: Uint8Array): Uint8Array {
  const at = bytes.indexOf(0)
  return at === -1 ? bytes : bytes.subarray(0, at)
}

function checkHeader(header: Uint8Array): { type: string; sizeBytes: number } {
  const magic = Buffer.from(field(header, 'magic')).toString('latin1')
  if (magic !== 'ustar\x0000' && magic !== 'ustar  \0')
    throw invalid('a tar header without its magic; write ustar, pax or GNU tar')
  const [from, sizeBytes] = HEADER.checksum
  const sum = header.reduce((total, byte, at) => total + (at >= from && at < from + sizeBytes ? 0x20 : byte), 0)
  if (octal(field(header, 'checksum'), 'checksum') !== sum)
    throw invalid('a tar header with a wrong checksum; the archive is damaged')
  const type = String.fromCharCode(field(header, 'type')[0] ?? 0)
  return { type: type === '\0' ? '0' : type, sizeBytes: sizeBytesOf(header) }
}

function sizeBytesOf(header: Uint8Array): number {
  return octal(field(header, 'size'), 'size')
}

/** Octal digits, spaces before them, NUL or space after. Base-256, for 8 GiB and more, is refused with the rest. */
function octal(bytes: Uint8Array, what: string): number {
  const text = Buffer.from(bytes).toString('latin1')
  const digits = /^ *([0-7]*)[ \0]*$/.exec(text)?.[1]
  if (digits === undefined) throw invalid(`a tar header whose ${what} is no octal number`)
  return digits === '' ? 0 : Number.parseInt(digits, 8)
}

function padding(sizeBytes: number): number {
  return (blockBytes - (sizeBytes % blockBytes)) % blockBytes
}

async function skip(reader: ByteReader, count: number): Promise<void> {
  for await (const _ of reader.parts(count));
}

async function extensionBytes(reader: ByteReader, sizeBytes: number, type: string): Promise<Uint8Array> {
  if (sizeBytes === 0 || sizeBytes > extensionBytesMax)
    throw invalid(`a tar record of type ${type} of ${sizeBytes} bytes`)
  const bytes = await reader.piece(sizeBytes)
  if (bytes === null) throw invalid('the archive ends early; pack it anew')
  await skip(reader, padding(sizeBytes))
  return bytes
}

/** `LENGTH KEY=VALUE\n`, where LENGTH counts the whole record. */
export function paxRecords(bytes: Uint8Array): [key: string, value: Uint8Array][] {
  const records: [string, Uint8Array][] = []
  for (let at = 0; at < bytes.length; ) {
    const length = /^([1-9][0-9]{0,5}) /.exec(Buffer.from(bytes.subarray(at, at + 8)).toString('latin1'))?.[1]
    const end = at + Number(length ?? 0)
    const start = at + (length?.length ?? 0) + 1
    const equals = bytes.indexOf(0x3d, start)
    if (length === undefined || end > bytes.length || bytes[end - 1] !== 0x0a || equals === -1 || equals >= end) {
      throw invalid('a malformed pax record')
    }
    records.push([Buffer.from(bytes.subarray(start, equals)).toString('latin1'), bytes.subarray(equals + 1, end - 1)])
    at = end
  }
  return records
}

function takePax(extension: Extension, key: string, value: Uint8Array): void {
  if (paxIgnored.test(key)) return
  if (extension.seen.has(key)) throw invalid(`pax keyword ${showName(key)} twice for one entry`)
  if (key === 'path') setName(extension, key, value)
  else if (key === 'linkpath') setTarget(extension, key, value)
  // `size` among them: a size that another reader does not see is how one archive becomes two.
  else throw invalid(`pax keyword ${showName(key)}; pack without it`)
}

function takeGnu(extension: Extension, type: 'L' | 'K', bytes: Uint8Array): void {
  const value = untilNul(bytes)
  if (value.length !== bytes.length - 1) throw invalid('a GNU long name that is not ended by one NUL')
  if (type === 'L') setName(extension, 'path', value)
  else setTarget(extension, 'linkpath', value)
}

function setName(extension: Extension, key: string, value: Uint8Array): void {
  if (extension.seen.has(key)) throw invalid('an entry with two long names')
  if (value.length === 0 || value.length > nameBytesMax || value.includes(0))
    throw invalid(`a long name of ${value.length} bytes`)
  extension.seen.add(key)
  extension.name = value
}

function setTarget(extension: Extension, key: string, value: Uint8Array): void {
  if (extension.seen.has(key)) throw invalid('a link with two long targets')
  extension.seen.add(key)
  extension.target = text(value, "a link's target")
}

function text(bytes: Uint8Array, what: string): string {
  try {
    return fromUtf8(bytes)
  } catch {
    throw invalid(`${what} that is not UTF-8`)
  }
}

const REFUSED_TYPES: Readonly<Record<string, string>> = {
  1: 'a hard link',
  3: 'a character device',
  4: 'a block device',
  6: 'a FIFO',
  S: 'a sparse file',
}

type BareEntry = { readonly name: Uint8Array; readonly executable: boolean } & (
  | { readonly kind: 'file' }
  | { readonly kind: 'directory' }
  | { readonly kind: 'link'; readonly target: string }
)

function entryOf(header: Uint8Array, type: string, extension: Extension): BareEntry {
  const name = extension.name ?? ustarName(header)
  const executable = (octal(field(header, 'mode'), 'mode') & 0o100) !== 0
  if (type === '2') {
    const target = extension.target ?? text(untilNul(field(header, 'linkName')), "a link's target")
    return { kind: 'link', name, executable, target }
  }
  if (extension.target !== null) throw invalid(`${shown(name)}: a link's target for what is no link`)
  if (type === '0') return { kind: 'file', name, executable }
  if (type === '5') return { kind: 'directory', name, executable }
  throw invalid(
    `${shown(name)}: ${REFUSED_TYPES[type] ?? `an entry of type ${showName(type)}`}; only files, directories and links may be in it`,
  )
}

/** GNU's format has times where ustar has the prefix. */
function ustarName(header: Uint8Array): Uint8Array {
  const name = untilNul(field(header, 'name'))
  const isPosix = header[HEADER.magic[0] + 5] === 0
  const prefix = isPosix ? untilNul(field(header, 'prefix')) : new Uint8Array(0)
  return prefix.length === 0 ? name : Buffer.concat([prefix, Buffer.from('/'), name])
}

/** The second empty block, and padding: nothing that another reader could take for more. */
async function checkEnd(reader: ByteReader): Promise<void> {
  const second = await reader.piece(blockBytes)
  if (second === null || second.some(byte => byte !== 0))
    throw invalid('the tar ends without its two empty blocks; pack it anew')
  for await (const part of reader.rest()) {
    if (part.some(byte => byte !== 0)) throw invalid('bytes after the end of the tar')
  }
}
