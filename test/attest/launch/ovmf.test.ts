import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { hasKernelHashTable } from '../../../src/attest/launch/ovmf.ts'

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
