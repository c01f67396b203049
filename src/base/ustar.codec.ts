// Reads and writes blocks of a tar (POSIX.1-2017 pax(1), "ustar Interchange Format" and "pax Interchange Format").
// Pure.
//
// Each reader decides which entries it accepts and words its refusals: sources come from strangers to a build VM,
// results from there to a client.

import { assert } from './assert.ts'
import { concat, utf8 } from './bytes.ts'

export const tarBlockBytes = 512

/** [offset, size] of each field of a header. */
export const USTAR = {
  name: [0, 100],
  mode: [100, 8],
  uid: [108, 8],
  gid: [116, 8],
  size: [124, 12],
  mtime: [136, 12],
  checksum: [148, 8],
  type: [156, 1],
  linkName: [157, 100],
  /** With the version behind it. */
  magic: [257, 8],
  userName: [265, 32],
  groupName: [297, 32],
  deviceMajor: [329, 8],
  deviceMinor: [337, 8],
  prefix: [345, 155],
} as const satisfies Record<string, readonly [offset: number, sizeBytes: number]>

type Field = keyof typeof USTAR

/** An octal number. `blank`: no digit, which some writers mean as 0. Base-256, for 8 GiB and more, is malformed. */
export type UstarNumber = number | 'blank' | 'malformed'

export type UstarHeader = {
  /** With the prefix before it. GNU's format has times where ustar has the prefix. */
  readonly name: Uint8Array
  /** `0` for a file, also where old writers left a NUL. */
  readonly type: string
  readonly sizeBytes: UstarNumber
  readonly mode: UstarNumber
  readonly linkName: Uint8Array
}

type UstarRead =
  | { readonly kind: 'header'; readonly header: UstarHeader }
  /** Each of the two empty blocks at the end. */
  | { readonly kind: 'empty' }
  | { readonly kind: 'no-magic' }
  | { readonly kind: 'wrong-checksum' }

const posixMagic = 'ustar\x0000'
const gnuMagic = 'ustar  \0'
const magicWord = posixMagic.slice(0, 5)

/** Decodes a block at a header's place. */
export function decodeUstar(block: Uint8Array): UstarRead {
  assert(block.length === tarBlockBytes, 'a header is one block')
  if (block.every(byte => byte === 0)) return { kind: 'empty' }
  const magic = latin1(fieldOf(block, 'magic'))
  if (magic !== posixMagic && magic !== gnuMagic) return { kind: 'no-magic' }
  if (numberOf(fieldOf(block, 'checksum')) !== checksumOf(block)) return { kind: 'wrong-checksum' }
  const type = latin1(fieldOf(block, 'type'))
  const name = untilNul(fieldOf(block, 'name'))
  const prefix = magic === posixMagic ? untilNul(fieldOf(block, 'prefix')) : new Uint8Array(0)
  const header = {
    name: prefix.length === 0 ? name : concat(prefix, Uint8Array.of(slash), name),
    type: type === '\0' ? '0' : type,
    sizeBytes: numberOf(fieldOf(block, 'size')),
    mode: numberOf(fieldOf(block, 'mode')),
    linkName: untilNul(fieldOf(block, 'linkName')),
  }
  return { kind: 'header', header }
}

/** Whether the first bytes of a file, at least a block of them unless it is shorter, may be a tar with content. */
export function looksLikeTar(head: Uint8Array): boolean {
  const [offset] = USTAR.magic
  return latin1(head.subarray(offset, offset + magicWord.length)) === magicWord
}

export type NewUstarHeader = {
  /** Result of ustarPath. */
  readonly name: string
  readonly prefix: string
  readonly type: '0' | '2' | '5' | 'x'
  readonly mode: number
  readonly sizeBytes: number
  readonly mtimeSeconds: number
  readonly linkName: string
}

/** Sizes end below this. */
export const ustarSizeBytesEnd = 8 ** 11

/** Owner and group are 0, and have no names. */
export function encodeUstar(header: NewUstarHeader): Uint8Array {
  const block = new Uint8Array(tarBlockBytes)
  const put = (field: Field, bytes: Uint8Array) => {
    const [offset, sizeBytes] = USTAR[field]
    assert(bytes.length <= sizeBytes, `${field} of a tar header fits`)
    block.set(bytes, offset)
  }
  const octal = (field: Field, value: number) => {
    put(field, utf8(`${value.toString(8).padStart(USTAR[field][1] - 1, '0')}\0`))
  }
  put('name', utf8(header.name))
  octal('mode', header.mode)
  for (const field of ['uid', 'gid', 'deviceMajor', 'deviceMinor'] as const) octal(field, 0)
  octal('size', header.sizeBytes)
  octal('mtime', header.mtimeSeconds)
  put('type', utf8(header.type))
  put('linkName', utf8(header.linkName))
  put('magic', utf8(posixMagic))
  put('prefix', utf8(header.prefix))
  put('checksum', utf8(`${checksumOf(block).toString(8).padStart(6, '0')}\0 `))
  return block
}

/** The fields for a path; null if it is too long. */
export function ustarPath(path: string): { readonly name: string; readonly prefix: string } | null {
  const [nameBytesMax, prefixBytesMax] = [USTAR.name[1], USTAR.prefix[1]]
  if (utf8(path).length <= nameBytesMax) return { prefix: '', name: path }
  for (let at = path.indexOf('/'); at !== -1; at = path.indexOf('/', at + 1)) {
    const [prefix, name] = [path.slice(0, at), path.slice(at + 1)]
    if (name !== '' && utf8(name).length <= nameBytesMax && utf8(prefix).length <= prefixBytesMax)
      return { prefix, name }
  }
  return null
}

/** Bytes between content and the next block. */
export function tarPaddingBytes(sizeBytes: number): number {
  return (tarBlockBytes - (sizeBytes % tarBlockBytes)) % tarBlockBytes
}

export type TarEntry = {
  readonly header: NewUstarHeader
  /** Exactly the number of bytes in the header. */
  readonly content: Iterable<Uint8Array> | AsyncIterable<Uint8Array>
}

/** A tar of the entries, in order; zeros at its end fill a record of `recordBytes`. */
export async function* writeTar(
  entries: Iterable<TarEntry>,
  recordBytes = tarBlockBytes,
): AsyncGenerator<Uint8Array, void, void> {
  let totalBytes = 2 * tarBlockBytes
  for (const { header, content } of entries) {
    yield encodeUstar(header)
    yield* content
    const paddingBytes = tarPaddingBytes(header.sizeBytes)
    if (paddingBytes > 0) yield new Uint8Array(paddingBytes)
    totalBytes += tarBlockBytes + header.sizeBytes + paddingBytes
  }
  yield new Uint8Array(2 * tarBlockBytes + ((recordBytes - (totalBytes % recordBytes)) % recordBytes))
}

/** `LENGTH KEY=VALUE\n`, where LENGTH counts the whole record. Null if malformed. */
export function decodePax(bytes: Uint8Array): (readonly [key: string, value: Uint8Array])[] | null {
  const records: [string, Uint8Array][] = []
  for (let at = 0; at < bytes.length; ) {
    const length = /^([1-9][0-9]{0,5}) /.exec(latin1(bytes.subarray(at, at + 8)))?.[1]
    if (length === undefined) return null
    const end = at + Number(length)
    const start = at + length.length + 1
    const equals = bytes.indexOf(equalsSign, start)
    if (end > bytes.length || bytes[end - 1] !== lineFeed || equals === -1 || equals >= end) return null
    records.push([latin1(bytes.subarray(start, equals)), bytes.subarray(equals + 1, end - 1)])
    at = end
  }
  return records
}

export function encodePax(key: string, value: string): Uint8Array {
  const rest = utf8(` ${key}=${value}\n`)
  let length = rest.length + 1
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length
  return concat(utf8(String(length)), rest)
}

/** Up to the first NUL. */
export function untilNul(bytes: Uint8Array): Uint8Array {
  const at = bytes.indexOf(0)
  return at === -1 ? bytes : bytes.subarray(0, at)
}

const slash = 0x2f
const equalsSign = 0x3d
const lineFeed = 0x0a
const space = 0x20

function fieldOf(block: Uint8Array, field: Field): Uint8Array {
  const [offset, sizeBytes] = USTAR[field]
  return block.subarray(offset, offset + sizeBytes)
}

function latin1(bytes: Uint8Array): string {
  let text = ''
  for (const byte of bytes) text += String.fromCharCode(byte)
  return text
}

/** Spaces before the digits, NUL or space after. */
function numberOf(bytes: Uint8Array): UstarNumber {
  const digits = /^ *([0-7]*)[ \0]*$/.exec(latin1(bytes))?.[1]
  if (digits === undefined) return 'malformed'
  return digits === '' ? 'blank' : Number.parseInt(digits, 8)
}

/** The checksum's own field counts as spaces. */
function checksumOf(block: Uint8Array): number {
  const [from, sizeBytes] = USTAR.checksum
  return block.reduce((sum, byte, at) => sum + (at >= from && at < from + sizeBytes ? space : byte), 0)
}
