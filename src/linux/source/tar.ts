// Reads tar: POSIX.1-2017 pax (pax(1), "ustar Interchange Format" and "pax Interchange Format") and GNU's long names.
// No effects of its own.
//
// Stricter than libraries for tar, which read whatever any tar wrote: one name per entry, from one place; no hard
// links, devices or sparse files; an unknown keyword is refused, because another reader may act on it.

import { unreachable } from '../../base/assert.ts'
import type { ByteReader } from '../../base/byte-reader.ts'
import { fromUtf8 } from '../../base/bytes.ts'
import { resultOr } from '../../base/result-or.ts'
import {
  decodePax,
  decodeUstar,
  tarBlockBytes,
  tarPaddingBytes,
  type UstarHeader,
  type UstarNumber,
  untilNul,
} from '../../base/ustar.codec.ts'
import { invalid } from './failure.ts'
import { showName } from './tree.plan.ts'

export type ArchiveEntry = {
  /** Raw bytes from the archive, not checked. */
  readonly name: Uint8Array
  readonly executable: boolean
} & (
  | { readonly kind: 'file'; readonly sizeBytes: number; readonly content: AsyncIterable<Uint8Array> }
  | { readonly kind: 'directory' }
  | { readonly kind: 'link'; readonly target: string }
  /** Refused, unless it is excluded by its name. */
  | { readonly kind: 'other'; readonly problem: string }
)

/** Header records of one entry. */
const extensionBytesMax = 64 * 1024
/** Records of pax hold extended attributes, too. */
const paxBytesMax = 1024 * 1024

/** Keywords without effect on the unpacked file: times, owners and attributes of GNU tar, star and libarchive. */
const paxIgnored = new RegExp(
  `^(?:${[
    'mtime|atime|ctime|uid|gid|uname|gname|comment',
    'RHT\\.security\\.selinux',
    'SCHILY\\.(?:xattr\\..*|acl\\..*|fflags|dev|ino|nlink)',
    'LIBARCHIVE\\.(?:xattr\\..*|creationtime|symlinktype)',
    'MSWINDOWS\\.rawsd',
  ].join('|')})$`,
)

/** Content of the records before an entry. */
type Extension = { name: Uint8Array | null; target: Uint8Array | null; seen: Set<string> }

/** The content of a file is read or skipped before the next entry. SourceFailure. */
export async function* readTar(reader: ByteReader): AsyncGenerator<ArchiveEntry> {
  let extension: Extension = { name: null, target: null, seen: new Set() }
  let sawGlobal = false
  for (;;) {
    const block = await reader.piece(tarBlockBytes)
    if (block === null) throw invalid('the tar ends without its two empty blocks; pack it again')
    const header = headerOf(block)
    if (header === null) break
    const { type } = header
    const sizeBytes = numberOf(header.sizeBytes, 'size')
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
    const entry = entryOf(header, extension)
    extension = { name: null, target: null, seen: new Set() }
    if (entry.kind !== 'file') {
      const what = entry.kind === 'other' ? entry.problem : `a ${entry.kind}`
      if (sizeBytes !== 0) throw invalid(`${showName(entry.name)}: ${what} with content`)
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
    await reader.skip(tarPaddingBytes(sizeBytes))
  }
  if (extension.seen.size > 0) throw invalid('a name without its entry')
  await checkEnd(reader)
}

/** Null for the first of the two empty blocks. */
function headerOf(block: Uint8Array): UstarHeader | null {
  const read = decodeUstar(block)
  switch (read.kind) {
    case 'header':
      return read.header
    case 'empty':
      return null
    case 'no-magic':
      throw invalid('a tar header without its magic; write ustar, pax or GNU tar')
    case 'wrong-checksum':
      throw invalid('a tar header with a wrong checksum; the archive is damaged')
    default:
      return unreachable(read)
  }
}

function numberOf(value: UstarNumber, what: string): number {
  if (value === 'malformed') throw invalid(`a tar header whose ${what} is no octal number`)
  return value === 'blank' ? 0 : value
}

async function extensionBytes(reader: ByteReader, sizeBytes: number, type: string): Promise<Uint8Array> {
  const bytesMax = type === 'x' || type === 'g' ? paxBytesMax : extensionBytesMax
  if (sizeBytes === 0 || sizeBytes > bytesMax) throw invalid(`a tar record of type ${type} of ${sizeBytes} bytes`)
  const bytes = await reader.piece(sizeBytes)
  if (bytes === null) throw invalid('the archive ends early; pack it again')
  await reader.skip(tarPaddingBytes(sizeBytes))
  return bytes
}

function paxRecords(bytes: Uint8Array): readonly (readonly [key: string, value: Uint8Array])[] {
  const records = decodePax(bytes)
  if (records === null) throw invalid('a malformed pax record')
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
  if (value.length === 0 || value.includes(0)) throw invalid(`a long name of ${value.length} bytes`)
  extension.seen.add(key)
  extension.name = value
}

function setTarget(extension: Extension, key: string, value: Uint8Array): void {
  if (extension.seen.has(key)) throw invalid('a link with two long targets')
  extension.seen.add(key)
  extension.target = value
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
  | { readonly kind: 'other'; readonly problem: string }
)

function entryOf({ type, mode, ...header }: UstarHeader, extension: Extension): BareEntry {
  const name = extension.name ?? header.name
  const executable = (numberOf(mode, 'mode') & 0o100) !== 0
  if (type === '2') {
    const target = resultOr(() => fromUtf8(extension.target ?? header.linkName), null)
    if (target === null) return { kind: 'other', name, executable, problem: "a link's target that is not UTF-8" }
    return { kind: 'link', name, executable, target }
  }
  // GNU tar names a hard link's first name in a record of its own, too.
  if (extension.target !== null && type !== '1')
    throw invalid(`${showName(name)}: a link's target for an entry that is no link`)
  if (type === '0') return { kind: 'file', name, executable }
  if (type === '5') return { kind: 'directory', name, executable }
  const problem = REFUSED_TYPES[type]
  // An unknown type may have its content elsewhere, as a sparse file has a map before it.
  if (problem === undefined || type === 'S') {
    const what = problem ?? `an entry of type ${showName(type)}`
    throw invalid(`${showName(name)}: ${what}; ${onlyPlain}`)
  }
  return { kind: 'other', name, executable, problem: `${problem}; ${onlyPlain}` }
}

const onlyPlain = 'only files, directories and links may be in it'

/** The second empty block, and padding: nothing that another reader could take for more. */
async function checkEnd(reader: ByteReader): Promise<void> {
  const second = await reader.piece(tarBlockBytes)
  if (second === null || second.some(byte => byte !== 0))
    throw invalid('the tar ends without its two empty blocks; pack it again')
  for await (const part of reader.rest()) {
    if (part.some(byte => byte !== 0)) throw invalid('bytes after the end of the tar')
  }
}
