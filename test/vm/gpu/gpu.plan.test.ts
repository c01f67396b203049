// Sizes of windows and BARs, and versions of QEMU, as tables.

import { expect, test } from 'bun:test'
import type { Bar, VfioDevice } from '../../../src/host/vfio.ts'
import {
  changedBar,
  gpuProblems,
  mmioWindowMib,
  parseQemuVersion,
  qemuProblem,
  smallBar,
} from '../../../src/vm/gpu/gpu.plan.ts'

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

const ready: VfioDevice = {
  address: '0000:41:00.0',
  exists: true,
  vendor: '0x10de',
  pciClass: '0x030200',
  d3coldAllowed: '0',
  powerState: 'D0',
  driver: 'vfio-pci',
  neighbours: [],
  bars: [{ index: 0, sizeBytes: 16 * 2 ** 20, is64Bit: false, largestBytes: null }, bar(128 * gib)],
  node: '/dev/vfio/devices/vfio0',
  hasIommu: true,
}
const problems = (change: Partial<VfioDevice>) => gpuProblems({ ...ready, ...change }).map(({ text }) => text)

test('goal: a GPU that can be given away has no problem; each thing that is missing is one, in its order', () => {
  const at = '0000:41:00.0'
  const noNode = `${at} has no node below /dev/vfio/devices, or /dev/iommu is missing`
  const sleepy = (value: string) =>
    `${at} may lose its power while it is idle (d3cold_allowed is ${value}), and GPUs have not come back from that`
  const cases: [Partial<VfioDevice>, string[]][] = [
    [{}, []],
    [{ pciClass: '0x030000' }, []],
    // Not known is not off.
    [{ powerState: '' }, []],
    [{ powerState: 'D3hot' }, []],
    [{ exists: false, vendor: '', driver: null }, [`there is no PCI device ${at}`]],
    [{ vendor: '0x1002' }, [`${at} is no GPU of NVIDIA (vendor 0x1002, class 0x030200)`]],
    [{ pciClass: '0x020000' }, [`${at} is no GPU of NVIDIA (vendor 0x10de, class 0x020000)`]],
    [{ vendor: '', pciClass: '' }, [`${at} is no GPU of NVIDIA (vendor unknown, class unknown)`]],
    [{ neighbours: null }, [`${at} is in no IOMMU group: the IOMMU is off`]],
    [{ neighbours: ['0000:41:00.1'] }, [`${at} shares its IOMMU group with 0000:41:00.1`]],
    [
      { neighbours: ['0000:41:00.1', '0000:41:00.2'] },
      [`${at} shares its IOMMU group with 0000:41:00.1, 0000:41:00.2`],
    ],
    [{ driver: null }, [`${at} has no driver, not vfio-pci`]],
    // Without the driver there is neither a node nor a placed BAR; one remedy is enough.
    [{ driver: 'nvidia', node: null, bars: [] }, [`${at} has the driver nvidia, not vfio-pci`]],
    [{ node: null }, [noNode]],
    [{ hasIommu: false }, [noNode]],
    [{ d3coldAllowed: '1' }, [sleepy('1')]],
    [{ d3coldAllowed: '' }, [sleepy('not there')]],
    [{ powerState: 'D3cold' }, [`${at} has no power (D3cold)`]],
    [
      { bars: ready.bars.slice(0, 1) },
      [`${at} has no memory of its own that a VM could reach: its BARs were not placed`],
    ],
    [
      { neighbours: null, node: null, d3coldAllowed: '1', powerState: 'D3cold' },
      [`${at} is in no IOMMU group: the IOMMU is off`, noNode, sleepy('1'), `${at} has no power (D3cold)`],
    ],
  ]
  for (const [change, expected] of cases) expect([change, problems(change)]).toEqual([change, expected])
})

test('goal: a BAR that could be larger is named with both sizes', () => {
  const resizable = (sizeBytes: number, largestBytes: number | null) =>
    smallBar({ ...ready, bars: [bar(gib), { ...bar(sizeBytes), index: 4, largestBytes }] })?.text ?? null
  expect(resizable(256 * 2 ** 20, 128 * gib)).toBe('BAR 4 of 0000:41:00.0 has 256 MiB of the 131072 that it can have')
  expect([resizable(gib, gib), resizable(gib, null)]).toEqual([null, null])
})

test('goal: a BAR that is not what it was before is named, one that came or went too', () => {
  const of = (...sizes: number[]): VfioDevice => ({
    ...ready,
    bars: sizes.map((sizeBytes, index) => ({ ...bar(sizeBytes), index })),
  })
  const before = of(gib, 2 * gib)
  const changed = (after: VfioDevice) => changedBar(before, after)
  const at = (index: number, was: string, is: string) =>
    `BAR ${index} of 0000:41:00.0 had ${was} before QEMU started, and has ${is}`
  expect([
    changed(of(gib, 2 * gib)),
    changed(of(gib, gib)),
    changed(of(gib)),
    changed(of(gib, 2 * gib, 4 * gib)),
  ]).toEqual([null, at(1, '2048 MiB', '1024 MiB'), at(1, '2048 MiB', 'none'), at(2, 'none', '4096 MiB')])
})

test('goal: a window is at least OVMF’s own, and BARs below 4 GiB take none of it', () => {
  expect(mmioWindowMib([])).toBe(32_768)
  expect(mmioWindowMib([{ bars: [{ ...bar(256 * gib), is64Bit: false }] }])).toBe(32_768)
  // One of 48 GiB stands in a window of 64, twice.
  expect(mmioWindowMib([{ bars: [bar(48 * gib)] }])).toBe(131_072)
})
