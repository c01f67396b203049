// Goal: where each register stands in the save area, written out as AMD APM volume 2, table B-4, has it. A launch
// digest that is computed with another offset would still match itself.

import { expect, test } from 'bun:test'
import { readVmsa, VMSA_FIELDS, VMSA_SEGMENTS } from '../../../src/attest/launch/vmsa-layout.ts'

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
