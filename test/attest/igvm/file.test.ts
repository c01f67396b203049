// Goal: an IGVM file is what igvm_defs says: a fixed header, headers in their sections, and data behind them. Every
// other one is refused with the reason, so that no two loaders load different things.

import { describe, expect, test } from 'bun:test'
import { crc32, IGVM_FIXED_HEADER, IGVM_HEADER_PREFIX, readIgvm, writeIgvm } from '../../../src/attest/igvm/file.ts'
import type { IgvmHeader } from '../../../src/attest/igvm/headers.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { utf8 } from '../../../src/base/bytes.ts'

const u32 = (...words: number[]) => Buffer.from(new Uint8Array(Uint32Array.from(words).buffer))

/** Type, length and body, filled up to a multiple of 8 bytes. */
function header(type: number, body: Uint8Array, padding = 0): Buffer {
  const fill = Buffer.alloc(-body.length & 7, padding)
  return Buffer.concat([u32(type, body.length), body, fill])
}

/** "IGVM", version 1, where the headers begin, their length, the file's length, and the checksum, zero until then. */
function file(headers: readonly Uint8Array[], data: Uint8Array = Buffer.alloc(0), fixed: Record<number, number> = {}) {
  const body = Buffer.concat(headers)
  const words = [0x4d564749, 1, 24, body.length, 24 + body.length + data.length, 0]
  const bytes = Buffer.concat([u32(...words.map((word, at) => fixed[at] ?? word)), body, data])
  bytes.writeUInt32LE(fixed[5] ?? Bun.hash.crc32(bytes.subarray(0, 24 + body.length)), 20)
  return new Uint8Array(bytes)
}

const u64 = (value: bigint) => u32(Number(value & 0xffff_ffffn), Number(value >> 32n))
const platform = (mask: number, kind: number, version = 1) =>
  header(0x001, Buffer.concat([u32(mask), Buffer.from([0, kind, version, 0]), u64(1n << 47n)]))
const snp = platform(1, 2)
const page = (fileOffset: number, mask = 1) => header(0x302, Buffer.concat([u64(0x3000n), u32(mask, fileOffset, 0, 0)]))
const context = (mask: number, fileOffset: number, padding = 0) =>
  header(0x304, Buffer.concat([u64(0xfffffffff000n), u32(mask, fileOffset, 0)]), padding)
const area = (index: number) => header(0x301, Buffer.concat([u64(0x1000n), u32(index, 0)]))
const insert = (index: number, mask = 1) => header(0x303, Buffer.concat([u64(0x5000n), u32(mask, index)]))
const parameter = (index: number, byteOffset: number) => header(0x307, u32(index, byteOffset))
const guestPolicy = header(0x101, Buffer.concat([u64(0x30000n), u32(1, 0)]))
const data = Buffer.alloc(4096, 0x5a)

test('goal: where the fields of the fixed header and of each prefix stand', () => {
  expect(IGVM_FIXED_HEADER).toEqual({
    ...{ magic: [0, 4], formatVersion: [4, 4], headersOffset: [8, 4], headersBytes: [12, 4], fileBytes: [16, 4] },
    checksum: [20, 4],
  })
  expect(IGVM_HEADER_PREFIX).toEqual({ type: [0, 4], length: [4, 4] })
})

test('goal: CRC-32 as RFC 1952 has it', () => {
  expect(crc32(utf8('123456789'))).toBe(0xcbf43926)
  expect(crc32(new Uint8Array(0))).toBe(0)
  expect(crc32(new Uint8Array(32).fill(0xff))).toBe(0xff6cab0b)
})

describe('a file', () => {
  const end = 24 + 24 + 24 + 32 + 32
  const whole = file([snp, guestPolicy, page(end), context(1, end)], data)

  test('goal: it is read with its data, and written to the same bytes', () => {
    const { headers } = readIgvm(whole)
    expect(headers.map(({ kind }) => kind)).toEqual(['supportedPlatform', 'guestPolicy', 'pageData', 'vpContext'])
    expect(headers[2]).toMatchObject({ gpa: 0x3000n, data: new Uint8Array(data) })
    expect(headers[3]).toMatchObject({ state: new Uint8Array(data), padding: new Uint8Array(4) })
    const own = file([snp, page(24 + 24 + 32)], data)
    expect(writeIgvm(readIgvm(own))).toEqual(own)
    expect(readIgvm(file([])).headers).toEqual([])
  })

  test('goal: two pages are written one after the other', () => {
    const { headers } = readIgvm(file([snp, page(80)], data))
    const [first, second] = headers
    if (first === undefined || second === undefined) throw new Error('two headers')
    const other = { ...second, gpa: 0x9000n, data: new Uint8Array(4096).fill(7) } as IgvmHeader
    const bytes = writeIgvm({ headers: [first, second, other] })
    const at = 24 + 24 + 32 + 32
    expect(bytes.length).toBe(at + 2 * 4096)
    expect([bytes[at], bytes[at + 4096]]).toEqual([0x5a, 7])
    expect(readIgvm(bytes).headers).toEqual([first, second, other])
  })

  // Goal: each word of the fixed header counts.
  test.each<[string, Uint8Array, string]>([
    ['nothing', new Uint8Array(0), 'IGVM: 0 bytes'],
    ['half a fixed header', whole.subarray(0, 23), 'IGVM: 23 bytes'],
    ['above 256 MiB', new Uint8Array(256 * 1024 * 1024 + 1), 'IGVM: 268435457 bytes'],
    ['256 MiB of zeros', new Uint8Array(256 * 1024 * 1024), 'IGVM: magic'],
    ['magic', file([snp], undefined, { 0: 0x4d564748 }), 'IGVM: magic'],
    ['version', file([snp], undefined, { 1: 2 }), 'IGVM: format version 2, not 1'],
    ['offset', file([snp], undefined, { 2: 32 }), 'IGVM: variable headers do not follow the fixed header'],
    ['size', file([snp], undefined, { 4: 49 }), 'IGVM: 48 bytes, but its header has 49'],
    ['headers', file([snp], undefined, { 3: 25 }), 'IGVM: variable headers end outside the file'],
    ['checksum', file([snp], undefined, { 5: 1 }), 'IGVM: checksum'],
  ])('another %s', (_, bytes, message) => {
    expect(() => readIgvm(bytes)).toThrow(new Malformed(message))
  })

  // Goal: rules between headers, each by its message.
  const optional = header(0x8000_0302, Buffer.alloc(3))
  // Goal: each rule between headers is named where it is broken.
  test.each<[string, Uint8Array[], string]>([
    ['a header cut short', [snp.subarray(0, 16)], 'IGVM headers'],
    ['a length that leaves the headers', [u32(0x8000_0302, 9), Buffer.alloc(8)], 'IGVM headers'],
    ['padding that is missing', [optional.subarray(0, 11)], 'IGVM headers'],
    ['a byte after the last header', [snp, Buffer.alloc(1)], 'IGVM headers'],
    ['padding', [header(0x8000_0302, Buffer.alloc(3), 1)], 'IGVM: padding is not zero'],
    ['initialization after a directive', [snp, page(0), guestPolicy], 'IGVM: header 0x101 in the wrong section'],
    ['a platform after a directive', [optional, snp], 'IGVM: header 0x1 in the wrong section'],
    ['no section', [header(0x8000_0300, Buffer.alloc(0))], 'IGVM: header 0x80000300 in the wrong section'],
    ['data in the headers', [snp, page(79)], 'IGVM: data outside the file'],
    ['data after the end', [snp, page(81)], 'IGVM: data outside the file'],
    ['no mask', [platform(0, 2)], 'IGVM: platform mask 0x0'],
    ['a mask of two bits', [platform(3, 2)], 'IGVM: platform mask 0x3'],
    ['a mask of many bits', [platform(0x1f, 2)], 'IGVM: platform mask 0x1f'],
    ['many platforms of a page', [snp, page(0, 0x1f)], 'IGVM: compatibility mask 0x1f is not declared'],
    ['a mask twice', [snp, platform(1, 3)], 'IGVM: platform mask 0x1'],
    ['a platform twice', [snp, platform(2, 2)], 'IGVM: platform 2 twice'],
    ['an unknown platform', [platform(1, 6)], 'IGVM: platform 6 version 1'],
    ['another version', [platform(1, 2, 2)], 'IGVM: platform 2 version 2'],
    ['no platform of a page', [snp, page(0, 0)], 'IGVM: compatibility mask 0x0 is not declared'],
    ['another platform of a page', [snp, page(0, 2)], 'IGVM: compatibility mask 0x2 is not declared'],
    ['one more platform of a page', [snp, page(0, 3)], 'IGVM: compatibility mask 0x3 is not declared'],
    ['a context of no platform', [snp, context(4, 0)], 'IGVM: compatibility mask 0x4 is not declared'],
    ['an area twice', [snp, area(1), area(1)], 'IGVM: parameter area 1 twice'],
    ['an insert without its area', [snp, area(1), insert(2)], 'IGVM: parameter area 2 is missing or inserted before'],
    ['a parameter without its area', [snp, parameter(1, 0)], 'IGVM: parameter area 1 is missing or inserted before'],
    ['an area inserted twice', [snp, area(1), insert(1), insert(1)], 'parameter area 1 is missing or inserted before'],
    ['a parameter too late', [snp, area(1), insert(1), parameter(1, 0)], 'area 1 is missing or inserted before'],
    ['a parameter outside', [snp, area(1), parameter(1, 4096)], 'IGVM: vpCount outside its parameter area'],
  ])('%s', (_, headers, message) => {
    expect(() => readIgvm(file(headers, data))).toThrow(message)
    expect(() => readIgvm(file(headers, data))).toThrow(Malformed)
  })

  test('goal: what those rules allow', () => {
    const kinds = (...headers: Uint8Array[]) => readIgvm(file(headers, data)).headers.map(({ kind }) => kind)
    expect(kinds(snp, page(80))).toEqual(['supportedPlatform', 'pageData'])
    const long = header(0x8000_0302, Buffer.alloc(73))
    expect(kinds(long, long)).toEqual(['optional', 'optional'])
    expect(kinds(snp, platform(0x8000_0000, 3), page(0, 0x8000_0001)).length).toBe(3)
    expect(kinds(snp, area(1), area(2), parameter(1, 4095), insert(1), parameter(2, 0), insert(2)).length).toBe(7)
    expect(kinds(header(0x8000_0001, Buffer.alloc(3)), snp, optional)).toEqual([
      'optional',
      'supportedPlatform',
      'optional',
    ])
  })

  test('goal: a context is a VMSA where every platform of its mask is SEV-ES or SEV-SNP', () => {
    const states = (kinds: readonly number[], mask: number) => {
      const platforms = kinds.map((kind, at) => platform(1 << at, kind))
      const headers = [...platforms, context(mask, 24 + 24 * kinds.length + 32, 1)]
      return readIgvm(file(headers, data)).headers.flatMap(read =>
        read.kind === 'vpContext' ? [read.state !== null] : [],
      )
    }
    expect([states([2], 1), states([5], 1), states([2, 5], 3)]).toEqual([[true], [true], [true]])
    expect([states([3], 1), states([4], 1), states([0], 1), states([1], 1)]).toEqual([
      [false],
      [false],
      [false],
      [false],
    ])
    expect([states([2, 3], 3), states([3, 2], 3), states([2, 3], 1)]).toEqual([[false], [false], [true]])
  })

  test('goal: up to 131072 headers', () => {
    const many = (count: number) => {
      return file([Buffer.alloc(count * 8).map((_, at) => [0x02, 0x03, 0, 0x80, 0, 0, 0, 0][at % 8] ?? 0)])
    }
    expect(readIgvm(many(131_072)).headers.length).toBe(131_072)
    expect(() => readIgvm(many(131_073))).toThrow('IGVM: more than 131072 headers')
    const [first] = readIgvm(file([snp])).headers
    if (first === undefined) throw new Error('one header')
    expect(() => writeIgvm({ headers: new Array(131_073).fill(first) })).toThrow('IGVM: more than 131072 headers')
  })

  test('goal: a context keeps its padding, of the one length that fits', () => {
    const headers = readIgvm(file([snp, context(1, 80, 9)], data)).headers
    expect(headers[1]).toMatchObject({ padding: new Uint8Array(4).fill(9) })
    expect(writeIgvm({ headers })).toEqual(file([snp, context(1, 80, 9)], data))
    for (const length of [0, 3, 5, 8]) {
      const changed = headers.map(read =>
        read.kind === 'vpContext' ? { ...read, padding: new Uint8Array(length) } : read,
      )
      expect(() => writeIgvm({ headers: changed })).toThrow('IGVM vpContext: padding')
    }
    // A file that could not be read back is not written.
    expect(() => writeIgvm({ headers: headers.toReversed() })).toThrow(Malformed)
  })
})
