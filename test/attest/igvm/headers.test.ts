// Goal: the layout of each header of an IGVM file, written out as igvm_defs has it: a field that
// moves or goes fails.

import { describe, expect, test } from 'bun:test'
import {
  IGVM_LAYOUTS,
  IGVM_PLATFORMS,
  type IgvmHeader,
  igvmSection,
  readIgvmHeader,
  writeIgvmHeader,
} from '../../../src/attest/igvm/headers.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { fromHex, toHex } from '../../../src/base/bytes.ts'

const shown = (layout: object) =>
  Object.entries(layout)
    .map(([name, [offset, sizeBytes]]) => `${name} ${offset}+${sizeBytes}`)
    .join(', ')

test('goal: the fields of each structure, with offset and size', () => {
  expect(Object.entries(IGVM_LAYOUTS).map(([name, layout]) => `${name}: ${shown(layout)}`)).toEqual([
    'supportedPlatform: compatibilityMask 0+4, highestVtl 4+1, platform 5+1, platformVersion 6+2, ' +
      'sharedGpaBoundary 8+8',
    'guestPolicy: policy 0+8, compatibilityMask 8+4, reserved 12+4',
    'parameterArea: sizeBytes 0+8, index 8+4, fileOffset 12+4',
    'pageData: gpa 0+8, compatibilityMask 8+4, fileOffset 12+4, flags 16+4, dataType 20+2, reserved 22+2',
    'parameterInsert: gpa 0+8, compatibilityMask 8+4, index 12+4',
    'parameter: index 0+4, byteOffset 4+4',
    'vpContext: gpa 0+8, compatibilityMask 8+4, fileOffset 12+4, vpIndex 16+2, reserved 18+2',
    'requiredMemory: gpa 0+8, compatibilityMask 8+4, sizeBytes 12+4, flags 16+4, reserved 20+4',
    'snpIdBlock: compatibilityMask 0+4, authorKeyEnabled 4+1, reserved 5+3, measurement 8+48, familyId 56+16, ' +
      'imageId 72+16, version 88+4, guestSvn 92+4, idKeyAlgorithm 96+4, authorKeyAlgorithm 100+4, ' +
      'idSignature 104+144, idKeyCurve 248+4, idKeyReserved 252+4, idKeyPoint 256+144, authorSignature 400+144, ' +
      'authorKeyCurve 544+4, authorKeyReserved 548+4, authorKeyPoint 552+144',
    'errorRange: gpa 0+8, compatibilityMask 8+4, sizeBytes 12+4',
  ])
})

test('goal: the number of each platform', () => {
  expect(IGVM_PLATFORMS).toEqual({ native: 0, vsmIsolation: 1, sevSnp: 2, tdx: 3, sev: 4, sevEs: 5 })
})

const page = new Uint8Array(4096).fill(0x5a)
const area = new Uint8Array(0x2000).fill(0x5b)
/** The data of a file, by its offset there. Zero is none. */
const DATA: Readonly<Record<number, Uint8Array>> = { 4096: page, 8192: area }

type Options = { readonly padding?: Uint8Array; readonly vmsaMask?: number }

function read(type: number, body: string, { padding = new Uint8Array(4), vmsaMask = 1 }: Options = {}): IgvmHeader {
  const take = (offset: number, sizeBytes: number) => DATA[offset]?.subarray(0, sizeBytes) ?? null
  const isVmsa = (mask: number) => mask === vmsaMask
  return readIgvmHeader(type, fromHex(body) ?? new Uint8Array(0), padding, { take, isVmsa })
}

/** The offset of a header's data, as the writer would have it. */
const put = (data: Uint8Array | null) => (data === null ? 0 : data.length === 4096 ? 0x1000 : 0x2000)

const ID_BLOCK = {
  head: '0100000001000000',
  block: `${'a1'.repeat(48)}${'a2'.repeat(16)}${'a3'.repeat(16)}0100000002000000`,
  id: `0100000002000000${'b1'.repeat(144)}02000000`,
  idPoint: 'b2'.repeat(144),
  author: `${'c1'.repeat(144)}03000000`,
  authorPoint: 'c2'.repeat(144),
}

/** igvm_defs: type, body and what is in it. Integers are little-endian. */
const HEADERS: readonly (readonly [type: number, body: string, header: Record<string, unknown>])[] = [
  [
    0x001,
    '01000000000201000000000000000080',
    { kind: 'supportedPlatform', compatibilityMask: 1, highestVtl: 0, platform: 2, platformVersion: 1 },
  ],
  [0x101, '00000300000000000100000000000000', { kind: 'guestPolicy', policy: 0x30000n, compatibilityMask: 1 }],
  [0x301, '00200000000000000700000000200000', { kind: 'parameterArea', sizeBytes: 0x2000, index: 7, data: area }],
  [0x301, '00000001000000000700000000000000', { kind: 'parameterArea', sizeBytes: 0x1000000, data: null }],
  [
    0x302,
    '003000000000000001000000001000000200000002000000',
    { kind: 'pageData', gpa: 0x3000n, isUnmeasured: true, isShared: false, dataType: 'cpuid', data: page },
  ],
  [
    0x302,
    '003000000000000001000000000000000400000000000000',
    { kind: 'pageData', gpa: 0x3000n, isUnmeasured: false, isShared: true, dataType: 'normal', data: null },
  ],
  [0x302, '000000000000000001000000000000000000000001000000', { kind: 'pageData', dataType: 'secrets' }],
  [0x302, '000000000000000001000000000000000600000000000000', { kind: 'pageData', isUnmeasured: true, isShared: true }],
  [0x302, '000000000000000001000000000000000000000003000000', { kind: 'pageData', dataType: 'cpuidXf' }],
  [
    0x303,
    '00400000000000000100000007000000',
    { kind: 'parameterInsert', gpa: 0x4000n, compatibilityMask: 1, index: 7 },
  ],
  [
    0x304,
    '00f0ffffffff0000010000000010000003000000',
    { kind: 'vpContext', gpa: 0xfffffffff000n, compatibilityMask: 1, vpIndex: 3, state: page },
  ],
  [
    0x305,
    '005000000000000001000000002000000100000000000000',
    { kind: 'requiredMemory', gpa: 0x5000n, compatibilityMask: 1, sizeBytes: 0x2000, isVtl2Protectable: true },
  ],
  [
    0x305,
    '005000000000000001000000002000000000000000000000',
    { kind: 'requiredMemory', gpa: 0x5000n, sizeBytes: 0x2000, isVtl2Protectable: false },
  ],
  ...[0x307, 0x308, 0x309, 0x30a, 0x30c, 0x30e, 0x30f, 0x310, 0x312, 0x313].map((type, at) => {
    const names = ['vpCount', 'srat', 'madt', 'mmioRanges', 'memoryMap', 'commandLine', 'slit', 'pptt', 'deviceTree']
    const parameter = [...names, 'environmentInfo'][at]
    return [type, '0700000008000000', { kind: 'parameter', parameter, index: 7, byteOffset: 8 }] as const
  }),
  [
    0x30b,
    [ID_BLOCK.head, ID_BLOCK.block, ID_BLOCK.id, '00000000', ID_BLOCK.idPoint, ID_BLOCK.author, '00000000']
      .concat(ID_BLOCK.authorPoint)
      .join(''),
    {
      ...{ kind: 'snpIdBlock', compatibilityMask: 1, authorKeyEnabled: 1, version: 1, guestSvn: 2 },
      ...{ idKeyAlgorithm: 1, authorKeyAlgorithm: 2, idKeyCurve: 2, authorKeyCurve: 3 },
      ...{ measurement: new Uint8Array(48).fill(0xa1), authorKeyPoint: new Uint8Array(144).fill(0xc2) },
    },
  ],
  [
    0x30d,
    '00600000000000000100000000100000',
    { kind: 'errorRange', gpa: 0x6000n, compatibilityMask: 1, sizeBytes: 4096 },
  ],
]

describe('the headers', () => {
  // Goal: each type's number and fields, as igvm_defs has them, both ways.
  test.each(HEADERS)('0x%x %s', (type, body, header) => {
    const found = read(type, body)
    expect(found).toMatchObject(header)
    const written = writeIgvmHeader(found, put)
    expect([written.type, toHex(written.body)]).toEqual([type, body])
  })

  // Goal: each refusal names the structure and what is wrong there.
  const idBlock = (head: string, idReserved: string, authorReserved: string) =>
    [head, ID_BLOCK.block, ID_BLOCK.id, idReserved, ID_BLOCK.idPoint, ID_BLOCK.author, authorReserved]
      .concat(ID_BLOCK.authorPoint)
      .join('')
  // Goal: each refusal names the structure and what is wrong there.
  test.each<[string, number, string, string]>([
    ['guest policy: reserved', 0x101, '00000300000000000100000001000000', 'IGVM guestPolicy: a reserved field'],
    ['area of no bytes', 0x301, '00000000000000000700000000200000', 'IGVM parameterArea: 0 bytes'],
    ['area of half a page', 0x301, '00080000000000000700000000200000', 'IGVM parameterArea: 2048 bytes'],
    ['area above 16 MiB', 0x301, '00100001000000000700000000200000', 'IGVM parameterArea: 16781312 bytes'],
    ['page: reserved', 0x302, '003000000000000001000000001000000000000000000100', 'IGVM pageData: a reserved field'],
    ['page: 2 MiB', 0x302, '003000000000000001000000001000000100000000000000', 'IGVM pageData: flags 0x1'],
    ['page: flag 8', 0x302, '003000000000000001000000001000001800000000000000', 'IGVM pageData: flags 0x18'],
    ['page: type 4', 0x302, '003000000000000001000000001000000000000004000000', 'IGVM pageData: data type 4'],
    ['page: address', 0x302, '003800000000000001000000001000000000000000000000', 'pageData: not in whole pages'],
    ['page: shared', 0x302, '003000000000000001000000001000000400000001000000', 'shared page of type secrets'],
    ['insert: address', 0x303, '01400000000000000100000007000000', 'IGVM parameterInsert: not in whole pages'],
    ['context: reserved', 0x304, '00f0ffffffff0000010000000010000003000100', 'IGVM vpContext: a reserved field'],
    ['context: address', 0x304, '00f1ffffffff0000010000000010000003000000', 'IGVM vpContext: not in whole pages'],
    ['context: no state', 0x304, '00f0ffffffff0000010000000000000003000000', 'IGVM vpContext: no state'],
    ['memory: reserved', 0x305, '005000000000000001000000002000000100000001000000', 'requiredMemory: a reserved'],
    ['memory: flag 2', 0x305, '005000000000000001000000002000000200000000000000', 'requiredMemory: a reserved'],
    ['memory: address', 0x305, '005100000000000001000000002000000000000000000000', 'requiredMemory: not in whole'],
    ['memory: size', 0x305, '005000000000000001000000002100000000000000000000', 'requiredMemory: not in whole'],
    ['ID block: reserved', 0x30b, idBlock('0100000001010000', '00000000', '00000000'), 'snpIdBlock: a reserved field'],
    ['ID block: reserved', 0x30b, idBlock('0100000001000001', '00000000', '00000000'), 'snpIdBlock: a reserved field'],
    ['ID block: ID key', 0x30b, idBlock(ID_BLOCK.head, '01000000', '00000000'), 'snpIdBlock: a reserved field'],
    ['ID block: author key', 0x30b, idBlock(ID_BLOCK.head, '00000000', '01000000'), 'snpIdBlock: a reserved field'],
    ['ID block: enabled', 0x30b, idBlock('0100000002000000', '00000000', '00000000'), 'author key enabled 2'],
    ['errors: address', 0x30d, '01600000000000000100000000100000', 'IGVM errorRange: not in whole pages'],
    ['errors: size', 0x30d, '00600000000000000100000001100000', 'IGVM errorRange: not in whole pages'],
    ['a long parameter', 0x307, '070000000800000000', 'vpCount: 9 bytes instead of 8'],
    ['an unknown type', 0x306, '', 'IGVM header: unknown type 0x306'],
    ['an unknown type', 0x311, '', 'IGVM header: unknown type 0x311'],
    ['the largest unknown type', 0x7fff_ffff, '', 'IGVM header: unknown type 0x7fffffff'],
  ])('%s', (_, type, body, message) => {
    expect(() => read(type, body)).toThrow(message)
    expect(() => read(type, body)).toThrow(Malformed)
  })

  test('goal: contexts of other platforms are not read, nor written', () => {
    const body = '00f0ffffffff0000010000000010000003000000'
    const padding = Uint8Array.of(1, 2, 3, 4)
    const header = read(0x304, body, { vmsaMask: 2, padding })
    expect(header).toMatchObject({ kind: 'vpContext', state: null, padding })
    expect(() => writeIgvmHeader(header, put)).toThrow('IGVM vpContext: no VMSA of one page')
    expect(read(0x304, '00f0ffffffff0000010000000000000003000000', { vmsaMask: 2 })).toMatchObject({ state: null })
  })

  test('goal: a type with the optional bit is kept as it is, and never written', () => {
    const body = Uint8Array.of(1, 2)
    const header = read(0x8000_0302, '0102')
    expect(header).toEqual({ kind: 'optional', type: 0x8000_0302, body })
    expect(read(0x8000_0000, '')).toMatchObject({ kind: 'optional' })
    expect(() => writeIgvmHeader(header, put)).toThrow('its data is not known and cannot be written')
  })

  test('goal: data of another length are not written', () => {
    const areaHeader = read(0x301, '00200000000000000700000000200000')
    const pageHeader = read(0x302, '003000000000000001000000001000000000000000000000')
    const context = read(0x304, '00f0ffffffff0000010000000010000003000000')
    const long = new Uint8Array(4097)
    const written = (header: object) => () => writeIgvmHeader(header as IgvmHeader, put)
    expect(written({ ...areaHeader, data: page })).toThrow('IGVM parameterArea: length of its data')
    expect(written({ ...pageHeader, data: long })).toThrow('IGVM pageData: not one page')
    expect(written({ ...context, state: long })).toThrow('IGVM vpContext: no VMSA of one page')
  })
})

// Goal: the ranges of IGVM_VHT_*: platforms 1 to 0x100, initialization 0x101 to 0x200, directives 0x301 to 0x400.
test.each([
  [0x000, null],
  [0x001, 0],
  [0x100, 0],
  [0x101, 1],
  [0x200, 1],
  [0x201, null],
  [0x300, null],
  [0x301, 2],
  [0x400, 2],
  [0x401, null],
])('the section of type 0x%x', (type, section) => {
  expect(igvmSection(type)).toBe(section as 0)
  expect(igvmSection(0x8000_0000 + type)).toBe(section as 0)
})
