// IGVM v1 files: fixed header, variable headers, data (microsoft/igvm, igvm_defs). Pure. headers.ts reads the variable
// headers.

import { isZero, type Layout, layoutBytes, readFields, readRecord, writeRecord } from '../encoding/layout.ts'
import { reader } from '../encoding/reader.ts'
import { wellFormed } from '../malformed.ts'
import { IGVM_PLATFORMS, type IgvmHeader, igvmSection, readIgvmHeader, writeIgvmHeader } from './headers.ts'

export const IGVM_FIXED_HEADER = {
  magic: [0, 4],
  formatVersion: [4, 4],
  headersOffset: [8, 4],
  headersBytes: [12, 4],
  fileBytes: [16, 4],
  checksum: [20, 4],
} as const satisfies Layout

/** Header of each structure; `length` excludes the structure's padding. */
export const IGVM_HEADER_PREFIX = { type: [0, 4], length: [4, 4] } as const satisfies Layout

const fixedBytes = layoutBytes(IGVM_FIXED_HEADER)
const magic = 0x4d564749 // "IGVM"
const formatVersion = 1
const prefixBytes = layoutBytes(IGVM_HEADER_PREFIX)
export const igvmBytesMax = 256 * 1024 * 1024
const headerCountMax = 1 << 17

/** The headers in file order, each with its data. */
export type IgvmFile = { readonly headers: readonly IgvmHeader[] }

/** Reads a whole file. Data are views of `bytes`. Throws Malformed for a file that a version 1 loader would refuse. */
export function readIgvm(bytes: Uint8Array): IgvmFile {
  wellFormed(bytes.length >= fixedBytes && bytes.length <= igvmBytesMax, `IGVM: ${bytes.length} bytes`)
  const fixed = readFields('IGVM fixed header', bytes, IGVM_FIXED_HEADER)
  wellFormed(fixed.magic === magic, 'IGVM: magic')
  wellFormed(fixed.formatVersion === formatVersion, `IGVM: format version ${fixed.formatVersion}, not 1`)
  wellFormed(fixed.headersOffset === fixedBytes, 'IGVM: variable headers do not follow the fixed header')
  wellFormed(fixed.fileBytes === bytes.length, `IGVM: ${bytes.length} bytes, but its header has ${fixed.fileBytes}`)
  const end = fixedBytes + fixed.headersBytes
  wellFormed(end <= bytes.length, 'IGVM: variable headers end outside the file')
  wellFormed(checksumOf(bytes.subarray(0, end)) === fixed.checksum, 'IGVM: checksum')
  return { headers: readHeaders(bytes, end) }
}

/** Computes the checksum with the checksum field as zero. */
function checksumOf(headers: Uint8Array): number {
  const copy = headers.slice()
  const [at, sizeBytes] = IGVM_FIXED_HEADER.checksum
  copy.fill(0, at, at + sizeBytes)
  return crc32(copy)
}

function readHeaders(bytes: Uint8Array, end: number): IgvmHeader[] {
  const read = reader(bytes.subarray(fixedBytes, end), 'IGVM headers', 'little')
  const take = (offset: number, sizeBytes: number) => {
    if (offset === 0) return null
    wellFormed(offset >= end && offset + sizeBytes <= bytes.length, 'IGVM: data outside the file')
    return bytes.subarray(offset, offset + sizeBytes)
  }
  const references = new References()
  const isVmsa = (mask: number) => references.isVmsa(mask)
  const headers: IgvmHeader[] = []
  let section = 0
  while (read.left() > 0) {
    wellFormed(headers.length < headerCountMax, `IGVM: more than ${headerCountMax} headers`)
    const { type, length } = readRecord('IGVM header', read.bytes(prefixBytes), IGVM_HEADER_PREFIX)
    const body = read.bytes(length)
    const padding = read.bytes(paddingBytes(length))
    const own = igvmSection(type)
    wellFormed(own !== null && own >= section, `IGVM: header 0x${type.toString(16)} in the wrong section`)
    section = own
    const header = readIgvmHeader(type, body, padding, { take, isVmsa })
    wellFormed(header.kind === 'vpContext' || isZero(padding), 'IGVM: padding is not zero')
    references.add(header)
    headers.push(header)
  }
  return headers
}

/** Returns the padding to a multiple of 8, at which every header begins. */
function paddingBytes(length: number): number {
  return Math.ceil(length / 8) * 8 - length
}

/** Rules between headers: masks are declared before use; parameter areas are declared and inserted once each. */
class References {
  readonly #platforms = new Map<number, number>()
  readonly #areas = new Map<number, { sizeBytes: number; isInserted: boolean }>()

  /** Reports whether every platform of the mask stores its contexts as VMSAs. */
  isVmsa(mask: number): boolean {
    const platforms = this.#platformsOf(mask)
    return platforms.every(platform => platform === IGVM_PLATFORMS.sevSnp || platform === IGVM_PLATFORMS.sevEs)
  }

  add(header: IgvmHeader): void {
    if (header.kind === 'supportedPlatform') this.#addPlatform(header)
    else if ('compatibilityMask' in header) this.#platformsOf(header.compatibilityMask)
    if (header.kind === 'parameterArea') {
      wellFormed(!this.#areas.has(header.index), `IGVM: parameter area ${header.index} twice`)
      this.#areas.set(header.index, { sizeBytes: header.sizeBytes, isInserted: false })
    }
    if (header.kind !== 'parameter' && header.kind !== 'parameterInsert') return
    const area = this.#areas.get(header.index)
    wellFormed(
      area !== undefined && !area.isInserted,
      `IGVM: parameter area ${header.index} is missing or inserted before`,
    )
    if (header.kind === 'parameterInsert') area.isInserted = true
    else wellFormed(header.byteOffset < area.sizeBytes, `IGVM: ${header.parameter} outside its parameter area`)
  }

  #addPlatform({
    compatibilityMask: mask,
    platform,
    platformVersion,
  }: IgvmHeader & { kind: 'supportedPlatform' }): void {
    const isOneBit = mask !== 0 && (mask & (mask - 1)) === 0
    wellFormed(isOneBit && !this.#platforms.has(mask), `IGVM: platform mask 0x${mask.toString(16)}`)
    wellFormed(![...this.#platforms.values()].includes(platform), `IGVM: platform ${platform} twice`)
    const isKnown = Object.values<number>(IGVM_PLATFORMS).includes(platform)
    wellFormed(isKnown && platformVersion === 1, `IGVM: platform ${platform} version ${platformVersion}`)
    this.#platforms.set(mask, platform)
  }

  #platformsOf(mask: number): number[] {
    const found = [...this.#platforms].filter(([own]) => (mask & own) !== 0)
    const sum = found.reduce((bits, [own]) => (bits | own) >>> 0, 0)
    wellFormed(mask !== 0 && sum === mask, `IGVM: compatibility mask 0x${mask.toString(16)} is not declared`)
    return found.map(([, platform]) => platform)
  }
}

/** Encodes a file: headers, then data in their order. Throws Malformed if `readIgvm` could not read it back. */
export function writeIgvm(file: IgvmFile): Uint8Array {
  // Data follow the headers, so their offsets depend on the total length of the headers: a first pass computes it.
  const end = fixedBytes + headerBytes(file, () => 0).length
  const chunks: Uint8Array[] = []
  let at = end
  const put = (data: Uint8Array | null) => {
    if (data === null) return 0
    const offset = at
    chunks.push(data)
    at += data.length
    wellFormed(at <= igvmBytesMax, 'IGVM: too large')
    return offset
  }
  const headers = headerBytes(file, put)
  const fixed = { magic, formatVersion, headersOffset: fixedBytes, headersBytes: headers.length, fileBytes: at }
  const withChecksum = (checksum: number) => writeRecord('IGVM fixed header', IGVM_FIXED_HEADER, { ...fixed, checksum })
  const checksum = crc32(join([withChecksum(0), headers]))
  const bytes = join([withChecksum(checksum), headers, ...chunks])
  readIgvm(bytes)
  return bytes
}

function headerBytes(file: IgvmFile, put: (data: Uint8Array | null) => number): Uint8Array {
  wellFormed(file.headers.length <= headerCountMax, `IGVM: more than ${headerCountMax} headers`)
  const parts = file.headers.flatMap(header => {
    const { type, body } = writeIgvmHeader(header, put)
    const padding = new Uint8Array(paddingBytes(body.length))
    if (header.kind === 'vpContext') {
      wellFormed(header.padding.length === padding.length, 'IGVM vpContext: padding')
      padding.set(header.padding)
    }
    return [writeRecord('IGVM header', IGVM_HEADER_PREFIX, { type, length: body.length }), body, padding]
  })
  return join(parts)
}

/** Concatenates parts. A file has more pages than a function call may have arguments. */
function join(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}

/** The polynomial in reflected form. */
const crcPolynomial = 0xedb88320

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte
  for (let bit = 0; bit < 8; bit += 1) value = (value & 1) === 0 ? value >>> 1 : (value >>> 1) ^ crcPolynomial
  return value >>> 0
})

/** Computes CRC-32 as IGVM and zlib define it (ISO-HDLC; RFC 1952 section 8). */
export function crc32(bytes: Uint8Array): number {
  let value = 0xffff_ffff
  for (const byte of bytes) value = (CRC_TABLE[(value ^ byte) & 0xff] ?? 0) ^ (value >>> 8)
  return (value ^ 0xffff_ffff) >>> 0
}
