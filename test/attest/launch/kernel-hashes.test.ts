// Goal: the table of kernel hashes is byte by byte the one that QEMU writes and edk2 reads, and a page with any other
// byte holds none.

import { expect, test } from 'bun:test'
import {
  cmdlineBytes,
  kernelHashesOf,
  kernelHashPage,
  readKernelHashPage,
  writeKernelHashes,
} from '../../../src/attest/launch/kernel-hashes.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'

const hashes = {
  kernel: new Uint8Array(32).fill(0x0a),
  initrd: new Uint8Array(32).fill(0x0b),
  cmdline: new Uint8Array(32).fill(0x0c),
}

test('goal: header, three entries in their order, and padding to 176 bytes', () => {
  // QEMU, target/i386/sev.c: GUIDs in their mixed byte order, then u16 sizes: 168 of the table and 50 of each entry.
  expect(toHex(writeKernelHashes(hashes))).toBe(
    [
      '06d63894224fc94cb479a793d411fd21a800',
      `d82dd09720bd944caa78e7714d36ab2a3200${'0c'.repeat(32)}`,
      `31f7ba442f3ad74b9af141e29169781d3200${'0b'.repeat(32)}`,
      `3794e74dd2ab7f42b835d5b172d2045b3200${'0a'.repeat(32)}`,
      '0000000000000000',
    ].join(''),
  )
})

test('goal: the table stands anywhere in its page, but inside it', () => {
  for (const offset of [0, 0xc00, 4096 - 176]) {
    const page = kernelHashPage(hashes, offset)
    expect(page.length).toBe(4096)
    expect(page.subarray(offset, offset + 176)).toEqual(writeKernelHashes(hashes))
    expect(page.filter(byte => byte !== 0).length).toBe(writeKernelHashes(hashes).filter(byte => byte !== 0).length)
    expect(readKernelHashPage(page, offset)).toEqual(hashes)
  }
  const page = kernelHashPage(hashes, 0)
  for (const offset of [-1, 4096 - 175]) {
    expect(() => kernelHashPage(hashes, offset)).toThrow('kernel hashes: the table leaves its page')
    expect(() => readKernelHashPage(page, offset)).toThrow('kernel hashes: the table leaves its page')
  }
  for (const length of [4095, 4097, 8192])
    expect(() => readKernelHashPage(new Uint8Array(length), 0)).toThrow('kernel hashes: not one page')
})

test('goal: every byte but the hashes is fixed', () => {
  const page = kernelHashPage(hashes, 16)
  for (const at of [0, 15, 16, 32, 33, 34, 50, 51, 16 + 168, 16 + 175, 16 + 176, 4095])
    expect(() => readKernelHashPage(page.with(at, (page[at] ?? 0) ^ 1), 16)).toThrow('not a table in an empty page')
  expect(() => readKernelHashPage(new Uint8Array(4096), 0)).toThrow(Malformed)
  expect(() => kernelHashPage({ ...hashes, initrd: new Uint8Array(31) }, 0)).toThrow(Malformed)
})

test('goal: SHA-256 of each file, of nothing where there is no initrd, and of the command line with its NUL', async () => {
  // FIPS 180-4: `abc`, the empty message, and one byte of zero.
  const abc = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'
  const empty = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'
  const nul = '6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d'
  const of = async (files: Parameters<typeof kernelHashesOf>[0], sha256?: Parameters<typeof kernelHashesOf>[1]) => {
    const { kernel, initrd, cmdline } = await kernelHashesOf(files, sha256)
    return [kernel, initrd, cmdline].map(toHex)
  }
  expect(await of({ kernel: utf8('abc') })).toEqual([abc, empty, nul])
  expect(await of({ kernel: utf8(''), initrd: utf8('abc'), cmdline: '' })).toEqual([empty, abc, nul])
  expect(await of({ kernel: utf8('a'), cmdline: 'b' }, bytes => bytes)).toEqual(['61', '', '6200'])
  expect(toHex(cmdlineBytes('a b'))).toBe('61206200')
  expect(() => cmdlineBytes('a\0b')).toThrow('kernel command line: a NUL inside')
})
