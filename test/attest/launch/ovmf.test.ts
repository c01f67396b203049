import { describe, expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { checkFirmwareSize, hasKernelHashTable, readOvmf, sectionKind } from '../../../src/attest/launch/ovmf.ts'
import { Malformed } from '../../../src/attest/malformed.ts'

const vector = (name: string) => new Uint8Array(readFileSync(`${import.meta.dir}/../../vectors/ovmf/${name}`))

test('a firmware that checks kernel hashes is told from one that does not', () => {
  // Goal: `kernel-hashes=on` is only ever given to firmware that has the table; QEMU aborts otherwise.
  expect(hasKernelHashTable(vector('ovmf_AmdSev_suffix.bin'))).toBe(true)
  expect(hasKernelHashTable(vector('ovmf_OvmfX64_suffix.bin'))).toBe(false)
})

test('damaged or absent tables count as none', () => {
  // Goal: no crash and no yes on bytes that are no table: truncated, empty, footer altered, sizes out of range.
  const sound = vector('ovmf_AmdSev_suffix.bin')
  for (const length of [0, 1, 31, 32, 49, 50, 100]) expect(hasKernelHashTable(sound.subarray(0, length))).toBe(false)
  for (let back = 33; back <= 50; back += 1) {
    const damaged = sound.slice()
    damaged[damaged.length - back] = (damaged[damaged.length - back] ?? 0) ^ 0xff
    expect(hasKernelHashTable(damaged)).toBe(false)
  }
})

/** Bytes of the GUIDs, as edk2 writes them with DB in ResetVectorVtf0.asm. */
const FOOTER = 'de82b596b21ff745baeaa366c55a082d'
const METADATA = '666588dc4a989847a75e5585a7bf67cc'
const HASHES = '1f3755723b3a044b927b1da6efa8d454'
const RESET = 'de71f7007e1acb4f890e68c77e2fb44e'
const OTHER = '00112233445566778899aabbccddeeff'

type Entry = { readonly guid: string; readonly words: readonly number[]; readonly sizeBytes?: number }
type Section = readonly [gpa: number, sizeBytes: number, type: number]

const u32 = (...words: number[]) => Buffer.from(new Uint8Array(Uint32Array.from(words).buffer))

function entryBytes({ guid, words, sizeBytes = words.length * 4 + 18 }: Entry): Buffer {
  return Buffer.concat([u32(...words), Buffer.from([sizeBytes & 0xff, sizeBytes >> 8]), Buffer.from(guid, 'hex')])
}

/** The table with its footer, whose size is that of the whole table, and the 32 bytes of the reset vector. */
function withTable(before: Uint8Array, entries: readonly Entry[], footer: Partial<Entry> = {}): Uint8Array {
  const body = Buffer.concat(entries.map(entryBytes))
  const last = entryBytes({ guid: FOOTER, words: [], sizeBytes: body.length + 18, ...footer })
  return new Uint8Array(Buffer.concat([before, body, last, Buffer.alloc(32)]))
}

/** "ASEV", length, version 1, count, then the sections. */
function metadataBytes(sections: readonly Section[], header: Partial<Record<number, number>> = {}): Buffer {
  const words = [0x56455341, 16 + 12 * sections.length, 1, sections.length]
  return u32(...words.map((word, at) => header[at] ?? word), ...sections.flat())
}

type Parts = { readonly entries?: readonly Entry[]; readonly metadata?: Uint8Array; readonly at?: number }
const reset: Entry = { guid: RESET, words: [0x0080b004] }
const hashes = (gpa: number, sizeBytes: number): Entry => ({ guid: HASHES, words: [gpa, sizeBytes] })

/** One page of firmware, with its metadata at `at` (0 unless given). */
function firmware({ entries = [reset], metadata = metadataBytes([]), at = 0 }: Parts): Uint8Array {
  const page = new Uint8Array(4096)
  const all = [...entries, { guid: METADATA, words: [4096 - at] }]
  const tail = withTable(new Uint8Array(0), all)
  page.set(tail, 4096 - tail.length)
  page.set(metadata, at)
  return page
}

const read = (parts: Parts) => readOvmf(firmware(parts))

describe('a firmware of one page', () => {
  test('sections, kernel hashes and reset vector', () => {
    // Goal: every section in the table's order with its type's name, and each value of the three entries.
    const sections: Section[] = [
      [0x800000, 0x9000, 1],
      [0x80d000, 0x1000, 2],
      [0x80e000, 0x1000, 3],
      [0x80f000, 0x3000, 4],
      [0x811000, 0x1000, 0x10],
      [0xfffff000, 0x1000, 1],
    ]
    const entries = [{ guid: OTHER, words: [] }, hashes(0x80fc00, 0x400), reset]
    expect(read({ entries, metadata: metadataBytes(sections), at: 12 })).toEqual({
      sections: [
        { kind: 'secMemory', gpa: 0x800000, sizeBytes: 0x9000 },
        { kind: 'secrets', gpa: 0x80d000, sizeBytes: 0x1000 },
        { kind: 'cpuid', gpa: 0x80e000, sizeBytes: 0x1000 },
        { kind: 'svsmCallingArea', gpa: 0x80f000, sizeBytes: 0x3000 },
        { kind: 'kernelHashes', gpa: 0x811000, sizeBytes: 0x1000 },
        { kind: 'secMemory', gpa: 0xfffff000, sizeBytes: 0x1000 },
      ],
      kernelHashes: { gpa: 0x80fc00, sizeBytes: 0x400 },
      resetEip: 0x0080b004,
    })
    expect(read({})).toEqual({ sections: [], kernelHashes: null, resetEip: 0x0080b004 })
    expect(read({ entries: [hashes(0, 0), reset] }).kernelHashes).toBeNull()
  })

  // Goal: what is missing, doubled or out of its bounds is named.
  const doubled = metadataBytes([[0x1000, 0x1000, 1]])
  const section = (...fields: Section) => ({ metadata: metadataBytes([fields]) })
  const header = (at: number, word: number) => ({ metadata: metadataBytes([], { [at]: word }) })
  const many = (count: number, sizeBytes: number) => ({
    metadata: metadataBytes(Array.from({ length: count }, () => [0, sizeBytes, 1] as const)),
  })
  // Goal: what is missing, doubled or out of its bounds is named.
  test.each<[string, Parts, string]>([
    ['no reset block', { entries: [] }, 'OVMF: no reset block'],
    ['two reset blocks', { entries: [reset, reset] }, 'OVMF: two resetBlock entries'],
    ['a reset block of two words', { entries: [{ guid: RESET, words: [1, 2] }] }, 'OVMF: resetBlock entry: 8 bytes'],
    ['hashes at zero', { entries: [reset, hashes(0, 0x400)] }, 'kernel-hash area with base or size zero'],
    ['hashes of size zero', { entries: [reset, hashes(0x1000, 0)] }, 'kernel-hash area with base or size zero'],
    ['hashes over a page', { entries: [reset, hashes(0x80fc00, 0x401)] }, 'kernel-hash area crosses a page'],
    ['another signature', header(0, 0x56455342), 'OVMF: SEV metadata signature'],
    ['a longer length', header(1, 17), 'OVMF: SEV metadata length'],
    ['another version', header(2, 2), 'OVMF: SEV metadata version'],
    ['65 sections', many(65, 0x1000), 'OVMF: 65 SEV sections'],
    ['sections above 64 MiB', many(64, 0x101000), 'OVMF: SEV sections too large'],
    ['an unknown type', section(0x1000, 0x1000, 5), 'OVMF: SEV section of unknown type 5'],
    ['half a page', section(0x1000, 0x800, 1), 'secMemory section not in whole pages'],
    ['an address inside a page', section(0x1800, 0x1000, 1), 'secMemory section not in whole pages'],
    ['an empty section', section(0x1000, 0, 2), 'secrets section outside memory'],
    ['a section above 4 GiB', section(0xfffff000, 0x2000, 3), 'cpuid section outside memory'],
    ['two pages of kernel hashes', section(0x1000, 0x2000, 0x10), 'kernelHashes section is not one page'],
    ['metadata that end early', { metadata: metadataBytes([], { 1: 28, 3: 1 }), at: 4080 }, 'metadata ends early'],
    ['metadata with no place', { metadata: new Uint8Array(0), at: 4081 }, 'SEV metadata outside the firmware'],
    ['metadata before the start', { metadata: new Uint8Array(0), at: -1 }, 'SEV metadata outside the firmware'],
    ['two metadata', { entries: [reset, { guid: METADATA, words: [4096] }] }, 'OVMF: two sevMetadata entries'],
  ])('%s', (_, parts, message) => {
    const bytes = firmware({ ...parts, at: Math.max(0, parts.at ?? 0) })
    if (parts.at === -1) bytes.set(u32(4097), 4096 - 32 - 18 - 18 - 4)
    expect(() => readOvmf(bytes)).toThrow(message)
    expect(() => readOvmf(bytes)).toThrow(Malformed)
  })

  test('the ends of what is allowed', () => {
    // Goal: 64 sections, 64 MiB of them, and metadata in the last bytes of the file are read.
    expect(read(many(64, 0x100000)).sections.length).toBe(64)
    expect(read({ metadata: metadataBytes([]), at: 4080 }).sections).toEqual([])
    expect(read({ metadata: doubled, at: 4068 }).sections).toEqual([
      { kind: 'secMemory', gpa: 0x1000, sizeBytes: 0x1000 },
    ])
    expect(sectionKind(0x10)).toBe('kernelHashes')
    expect(() => sectionKind(0)).toThrow(Malformed)
  })

  test('no table, or no metadata in it', () => {
    // Goal: each has its own message, and bytes that are no table of entries are not read as one.
    const page = (entries: readonly Entry[], footer: Partial<Entry> = {}) =>
      withTable(
        new Uint8Array(4096 - 50 - entries.reduce((sum, { words }) => sum + words.length * 4 + 18, 0)),
        entries,
        footer,
      )
    expect(() => readOvmf(page([reset]))).toThrow('OVMF: no SEV metadata')
    for (const bytes of [
      new Uint8Array(4096),
      page([reset], { guid: OTHER }),
      page([reset], { sizeBytes: 17 }),
      page([reset], { sizeBytes: 4065 }),
      // Inside the entry, and before it.
      page([reset], { sizeBytes: 39 }),
      page([reset], { sizeBytes: 41 }),
      page([{ ...reset, sizeBytes: 17 }]),
      page([{ ...reset, sizeBytes: 23 }]),
    ])
      expect(() => readOvmf(bytes)).toThrow('OVMF: no GUIDed table')
  })
})

test('a table that begins where the file does', () => {
  // Goal: an entry may fill the file from its first byte, with data or without.
  const none = new Uint8Array(0)
  expect(hasKernelHashTable(withTable(none, [hashes(0x1000, 0x400)]))).toBe(true)
  expect(hasKernelHashTable(withTable(none, [{ guid: OTHER, words: [] }, hashes(0x1000, 0x400)]))).toBe(true)
  expect(hasKernelHashTable(withTable(none, [hashes(0, 0)]))).toBe(false)
  expect(hasKernelHashTable(withTable(none, [hashes(0, 0x400)]))).toBe(false)
  expect(hasKernelHashTable(withTable(none, [reset]))).toBe(false)
})

test('sizes of firmware', () => {
  // Goal: whole pages, one to 16384 of them (64 MiB).
  for (const size of [4096, 3 * 4096, 16384 * 4096]) expect(() => checkFirmwareSize(new Uint8Array(size))).not.toThrow()
  for (const size of [0, 1, 4095, 4097, 6144, 16385 * 4096])
    expect(() => checkFirmwareSize(new Uint8Array(size))).toThrow(`firmware: ${size} bytes`)
  expect(() => readOvmf(new Uint8Array(6144))).toThrow('firmware: 6144 bytes')
})
