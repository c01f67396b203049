// Sizes of windows and BARs, and versions of QEMU, as tables.

import { expect, test } from 'bun:test'
import type { Bar } from '../../../src/host/vfio.ts'
import { mmioWindowMib, parseQemuVersion, qemuProblem } from '../../../src/vm/gpu/gpu.plan.ts'

const gib = 1024 ** 3
const bar = (sizeBytes: number): Bar => ({ index: 2, sizeBytes, is64Bit: true, largestBytes: null })

test('goal: the window holds every GPU behind a port of its own, and is a power of two, as firmware aligns it', () => {
  const windowGib = (count: number, barGib: number) =>
    mmioWindowMib(Array.from({ length: count }, () => ({ bars: [bar(16 * 2 ** 20), bar(barGib * gib)] }))) / 1024
  expect([windowGib(1, 128), windowGib(2, 128), windowGib(3, 128), windowGib(8, 128)]).toEqual([256, 512, 1024, 2048])
  expect([windowGib(1, 256), windowGib(8, 256)]).toEqual([512, 4096])
  expect(windowGib(1, 1)).toBe(32)
})

test('goal: the version is read wherever QEMU says it', () => {
  expect(parseQemuVersion('QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2~bpo12+1)')).toEqual([10, 0])
  expect(parseQemuVersion('QEMU emulator version 7.2.19')).toEqual([7, 2])
  expect(parseQemuVersion('no')).toBeNull()
  expect(qemuProblem('no')?.text).toStartWith('a QEMU whose version is unknown')
})

test('goal: a QEMU from 10.1 on gives devices to a VM of SEV-SNP, an earlier one says what is needed', () => {
  const isGood = (version: string) => qemuProblem(`QEMU emulator version ${version}`) === null
  expect(['9.9.0', '10.0.9', '10.1.0', '10.2.0', '11.0.0'].map(isGood)).toEqual([false, false, true, true, true])
})
