// Goal: where each register stands in the save area, written out as AMD APM volume 2, table B-4, has it. A launch
// digest that is computed with another offset would still match itself.

import { describe, expect, test } from 'bun:test'
import {
  changeVmsa,
  checkLaunchFeatures,
  readVmsa,
  type SevFeature,
  sevFeatureNames,
  sevFeatures,
  VMSA_FIELDS,
  VMSA_SEGMENTS,
  writeVmsa,
} from '../../../src/attest/launch/vmsa-layout.ts'

test('goal: each register, with offset and size', () => {
  const lines = Object.entries(VMSA_FIELDS).map(([name, [at, size]]) => `${name} 0x${at.toString(16)}+${size}`)
  expect(lines).toEqual([
    ...['vmpl 0xca+1', 'cpl 0xcb+1', 'efer 0xd0+8', 'cr4 0x148+8', 'cr3 0x150+8', 'cr0 0x158+8', 'dr7 0x160+8'],
    ...['dr6 0x168+8', 'rflags 0x170+8', 'rip 0x178+8', 'rsp 0x1d8+8', 'rax 0x1f8+8', 'pat 0x268+8', 'rcx 0x308+8'],
    ...['rdx 0x310+8', 'rbx 0x318+8', 'rbp 0x328+8', 'rsi 0x330+8', 'rdi 0x338+8', 'sevFeatures 0x3b0+8'],
    ...['xcr0 0x3e8+8', 'mxcsr 0x408+4', 'x87Ftw 0x40c+2', 'x87Fsw 0x40e+2', 'x87Fcw 0x410+2'],
  ])
})

test('goal: each segment register, and where its four parts stand', () => {
  expect(Object.entries(VMSA_SEGMENTS).map(([name, at]) => `${name} 0x${at.toString(16)}`)).toEqual([
    ...['es 0x0', 'cs 0x10', 'ss 0x20', 'ds 0x30', 'fs 0x40', 'gs 0x50', 'gdtr 0x60', 'ldtr 0x70', 'idtr 0x80'],
    'tr 0x90',
  ])
  const page = new Uint8Array(4096)
  page.set([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], 0x90)
  expect(readVmsa(page).segments.tr).toEqual({
    selector: 0x0201,
    attributes: 0x0403,
    limit: 0x08070605,
    base: 0x100f0e0d0c0b0a09n,
  })
})

const BITS: readonly (readonly [SevFeature, bigint])[] = [
  ['snpActive', 0x1n],
  ['vTom', 0x2n],
  ['reflectVc', 0x4n],
  ['restrictedInjection', 0x8n],
  ['alternateInjection', 0x10n],
  ['debugSwap', 0x20n],
  ['preventHostIbs', 0x40n],
  ['btbIsolation', 0x80n],
  ['vmplSupervisorShadowStack', 0x100n],
  ['secureTsc', 0x200n],
  ['vmgexitParameter', 0x400n],
  ['pmcVirtualization', 0x800n],
  ['ibsVirtualization', 0x1000n],
  ['guestInterceptControl', 0x2000n],
  ['vmsaRegisterProtection', 0x4000n],
  ['smtProtection', 0x8000n],
  ['secureAvic', 0x10000n],
  ['ibpbOnEntry', 0x200000n],
]

// Goal: each bit of SEV_FEATURES as AMD APM volume 2, section 15.34.10 numbers it, and no name for any other bit.
describe('SEV_FEATURES', () => {
  test.each(BITS)('%s', (name, bit) => {
    expect(sevFeatures(name)).toBe(bit)
    expect(sevFeatureNames(bit)).toEqual([name])
  })

  test('several, and bits without a name', () => {
    expect(sevFeatures()).toBe(0n)
    expect(sevFeatures('secureTsc', 'snpActive', 'snpActive')).toBe(0x201n)
    expect(sevFeatureNames(0x201n)).toEqual(['snpActive', 'secureTsc'])
    const named = BITS.reduce((bits, [, bit]) => bits | bit, 0n)
    for (let at = 0n; at < 64n; at += 1n) {
      const bit = 1n << at
      if ((named & bit) === 0n) expect(() => sevFeatureNames(bit | 1n)).toThrow('a bit without a name')
    }
  })

  test('at launch', () => {
    // Goal: SNP always; beside it only the two that KVM offers.
    for (const bits of [0x1n, 0x21n, 0x201n, 0x221n]) expect(() => checkLaunchFeatures(bits)).not.toThrow()
    for (const bits of [0x0n, 0x20n, 0x220n]) expect(() => checkLaunchFeatures(bits)).toThrow('SNP is not active')
    for (const [name, bit] of BITS) {
      if (![0x1n, 0x20n, 0x200n].includes(bit))
        expect(() => checkLaunchFeatures(bit | 1n)).toThrow(`${name} is not offered at launch`)
    }
    expect(() => checkLaunchFeatures(0x400001n)).toThrow('SEV_FEATURES 0x400001: a bit without a name')
    expect(() => checkLaunchFeatures(0x220n)).toThrow('SEV_FEATURES 0x220: SNP is not active')
    expect(() => checkLaunchFeatures(0x11n)).toThrow('SEV_FEATURES 0x11: alternateInjection is not offered')
  })
})

test('goal: a state is written to its page, read back, and changed without loss of another byte', () => {
  const page = new Uint8Array(4096)
  page.set([0xf0, 0xff], 0x178)
  page.set([0x33], 0x010)
  page.set([0x1f], 0x408)
  expect(writeVmsa(readVmsa(page))).toEqual(page)
  expect(readVmsa(page).fields.rip).toBe(0xfff0n)
  const other = page.with(0x500, 7)
  const changed = changeVmsa(other, { rip: 0x1234n })
  expect(other[0x178]).toBe(0xf0)
  expect(changed).toEqual(other.with(0x178, 0x34).with(0x179, 0x12))
  for (const length of [4095, 4097, 8192]) {
    expect(() => readVmsa(new Uint8Array(length))).toThrow(`VMSA: ${length} bytes, not 4096`)
    expect(() => changeVmsa(new Uint8Array(length), {})).toThrow(`VMSA: ${length} bytes, not 4096`)
  }
  expect(writeVmsa(readVmsa(new Uint8Array(4096))).length).toBe(4096)
})
