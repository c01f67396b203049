// Goal: the payload of a bzImage and the entry note of an ELF file are found at the offsets that their formats have
// (Linux Documentation/arch/x86/boot.rst, the gABI of ELF), up to the last byte of the file and no further.

import { expect, test } from 'bun:test'
import { hasPvhEntry, zstdPayload } from '../../../src/vm/launch/bzimage.codec.ts'

type Header = { magic?: number; protocol?: number; sectors?: number; offset?: number; length?: number }

/** A kernel of 5 sectors of setup, 16 bytes of other things, a payload of 8 bytes, and its unpacked size. */
function image({ magic = 0x53726448, protocol = 0x208, sectors = 4, offset = 16, length = 12 }: Header = {}): Buffer {
  const bytes = Buffer.alloc(5 * 512 + 16 + 12)
  bytes.writeUInt8(sectors, 0x1f1)
  bytes.writeUInt32LE(magic, 0x202)
  bytes.writeUInt16LE(protocol, 0x206)
  bytes.writeUInt32LE(offset, 0x248)
  bytes.writeUInt32LE(length, 0x24c)
  bytes.writeUInt32LE(0xfd2fb528, 5 * 512 + 16)
  bytes.writeUInt32LE(4_000_000, 5 * 512 + 16 + 8)
  return bytes
}
const payload = { offset: 2_576, length: 8, unpackedBytes: 4_000_000 }

test('goal: where the payload begins and ends, and what it unpacks to', () => {
  expect(zstdPayload(image())).toEqual(payload)
  expect(zstdPayload(image({ protocol: 0x20f }))).toEqual(payload)
  // No number of sectors means four.
  expect(zstdPayload(image({ sectors: 0 }))).toEqual(payload)
  // Bytes behind the payload do not matter.
  expect(zstdPayload(Buffer.concat([image(), Buffer.alloc(9)]))).toEqual(payload)
  // The shortest one is its magic number.
  const shortest = image({ length: 8 })
  shortest.writeUInt32LE(5, payload.offset + 4)
  expect(zstdPayload(shortest)).toEqual({ ...payload, length: 4, unpackedBytes: 5 })
})

test('goal: the shortest kernel that there can be is read: two sectors, and the payload at once behind them', () => {
  const bytes = Buffer.alloc(2 * 512 + 12)
  image({ sectors: 1, offset: 0 }).copy(bytes, 0, 0, 0x250)
  bytes.writeUInt32LE(0xfd2fb528, 1_024)
  bytes.writeUInt32LE(7, 1_032)
  expect(zstdPayload(bytes)).toEqual({ offset: 1_024, length: 8, unpackedBytes: 7 })
})

test('goal: no payload in another file, an older protocol, another compression, or a file that is cut short', () => {
  const change = (at: number, value: number) => {
    const bytes = image()
    bytes.writeUInt32LE(value, at)
    return zstdPayload(bytes)
  }
  expect(zstdPayload(image({ magic: 0x53726449 }))).toBeNull()
  expect(zstdPayload(image({ protocol: 0x207 }))).toBeNull()
  expect(zstdPayload(image({ sectors: 3 }))).toBeNull()
  expect(zstdPayload(image({ length: 7 }))).toBeNull()
  expect(zstdPayload(image({ length: 13 }))).toBeNull()
  expect(zstdPayload(image({ offset: 17 }))).toBeNull()
  expect(zstdPayload(image().subarray(0, -1))).toBeNull()
  expect(change(payload.offset, 0x184d2204)).toBeNull()
  // 256 MiB, and a byte more.
  expect(change(payload.offset + payload.length, 256 * 1_048_576)).toEqual({ ...payload, unpackedBytes: 268_435_456 })
  expect(change(payload.offset + payload.length, 256 * 1_048_576 + 1)).toBeNull()
})

test('goal: a header that ends with the file is read, and one that is cut short is not', () => {
  // Setup of one sector, so that the payload stands within the header's own bytes behind its fields.
  const small = Buffer.alloc(0x250)
  small.writeUInt8(255, 0x1f1)
  small.writeUInt32LE(0x53726448, 0x202)
  small.writeUInt16LE(0x208, 0x206)
  // An offset of 2^32 less the sectors cannot lead back: the sum does not wrap around.
  small.writeUInt32LE(0xffff_ffff, 0x248)
  small.writeUInt32LE(12, 0x24c)
  expect(zstdPayload(small)).toBeNull()
  for (const length of [0, 0x202, 0x24f]) expect(zstdPayload(image().subarray(0, length))).toBeNull()
})

type Elf = { magic?: readonly number[]; entryBytes?: number; type?: number; offset?: number; length?: number }

/** An ELF file of two segments, the second of which is its last 20 bytes: a note of Xen with a value of 4 bytes. */
function elf({
  magic = [0x7f, 0x45, 0x4c, 0x46, 2, 1],
  entryBytes = 56,
  type = 4,
  offset = 176,
  length = 20,
}: Elf = {}) {
  const bytes = Buffer.alloc(176 + 20)
  bytes.set(magic)
  bytes.writeBigUInt64LE(64n, 32)
  bytes.writeUInt16LE(entryBytes, 54)
  bytes.writeUInt16LE(2, 56)
  bytes.writeUInt32LE(1, 64)
  bytes.writeUInt32LE(type, 120)
  bytes.writeBigUInt64LE(BigInt(offset), 120 + 8)
  bytes.writeBigUInt64LE(BigInt(length), 120 + 32)
  return bytes
}
const note = (bytes: Buffer, at: number, { name = 'Xen\0', value = 4, type = 18 } = {}) => {
  bytes.writeUInt32LE(name.length, at)
  bytes.writeUInt32LE(value, at + 4)
  bytes.writeUInt32LE(type, at + 8)
  bytes.write(name, at + 12, 'latin1')
  return bytes
}

test('goal: a note of Xen with the number of the entry point, as the last bytes of the file, is found', () => {
  expect(hasPvhEntry(note(elf(), 176))).toBe(true)
  expect(hasPvhEntry(note(elf(), 176, { value: 8 }))).toBe(true)
  // A note is a head of 12 bytes at least: the name of this one is all that there is.
  expect(hasPvhEntry(note(elf({ length: 16 }), 176))).toBe(true)
})

test('goal: a table of segments that is the end of the file is read to its end and no further', () => {
  for (const [type, expected] of [
    [4, true],
    [5, false],
  ] as const) {
    // The notes first, then the table.
    const bytes = Buffer.alloc(64 + 20 + 56)
    elf().copy(bytes, 0, 0, 64)
    bytes.writeBigUInt64LE(84n, 32)
    bytes.writeUInt16LE(1, 56)
    bytes.writeUInt32LE(type, 84)
    bytes.writeBigUInt64LE(64n, 84 + 8)
    bytes.writeBigUInt64LE(20n, 84 + 32)
    expect(hasPvhEntry(note(bytes, 64))).toBe(expected)
  }
})

test('goal: another note, segment, format or place is none', () => {
  const none = {
    'no note': elf(),
    'another name': note(elf(), 176, { name: 'Xem\0' }),
    'a name without its end': note(elf(), 176, { name: 'Xen' }),
    'the number before': note(elf(), 176, { type: 17 }),
    'the number after': note(elf(), 176, { type: 19 }),
    'another segment': note(elf({ type: 5 }), 176),
    'a segment beyond the file': note(elf({ length: 21 }), 176),
    'a segment that ends within the name': note(elf({ length: 15 }), 176),
    'a segment that ends within the head': note(elf({ length: 11 }), 176),
    'another magic number': note(elf({ magic: [0x7f, 0x45, 0x4c, 0x47, 2, 1] }), 176),
    '32 bits': note(elf({ magic: [0x7f, 0x45, 0x4c, 0x46, 1, 1] }), 176),
    'big-endian': note(elf({ magic: [0x7f, 0x45, 0x4c, 0x46, 2, 2] }), 176),
    'entries of another size': note(elf({ entryBytes: 57 }), 176),
    'no whole header': note(elf(), 176).subarray(0, 63),
    'no whole table': note(elf(), 176).subarray(0, 175),
  }
  for (const [what, bytes] of Object.entries(none)) expect([what, hasPvhEntry(bytes)]).toEqual([what, false])
  // A table beyond the file.
  const beyond = note(elf(), 176)
  beyond.writeBigUInt64LE(85n, 32)
  expect(hasPvhEntry(beyond)).toBe(false)
  // Its first entry begins in the file, as that of a note.
  const cut = note(elf(), 176)
  cut.writeBigUInt64LE(190n, 32)
  cut.writeUInt16LE(1, 56)
  cut.writeUInt32LE(4, 190)
  expect(hasPvhEntry(cut)).toBe(false)
})

test('goal: notes before it are skipped, names and values padded to 4 bytes each', () => {
  for (const [name, value, size] of [
    ['', 0, 12],
    ['G', 1, 20],
    ['GNU\0', 4, 20],
    ['Linux\0', 5, 28],
  ] as const) {
    const bytes = Buffer.concat([elf({ length: size + 20 }), Buffer.alloc(size)])
    expect([name, hasPvhEntry(note(note(bytes, 176, { name, value, type: 18 }), 176 + size))]).toEqual([name, true])
    // One byte off it is not seen.
    const off = Buffer.concat([elf({ length: size + 21 }), Buffer.alloc(size + 1)])
    expect([name, hasPvhEntry(note(note(off, 176, { name, value, type: 18 }), 177 + size))]).toEqual([name, false])
  }
})
