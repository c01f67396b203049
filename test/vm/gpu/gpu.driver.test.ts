// GPUs of a host that is a directory: which a VM gets, and why not.

import { afterAll, expect, test } from 'bun:test'
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Fault } from '../../../src/base/fault.ts'
import { readVfioDevice } from '../../../src/host/vfio.ts'
import { gpuTaker } from '../../../src/vm/gpu/gpu.driver.ts'
import { type TreeGpu, writeTree } from '../../rigs/vfio-tree.ts'

const directory = mkdtempSync(join(tmpdir(), 'srt-gpu-'))
afterAll(() => rmSync(directory, { recursive: true }))

const root = join(directory, 'host')
const first = '0000:41:00.0'
const second = '0000:c1:00.0'

function qemuOf(version: string): string {
  const path = join(directory, `qemu-${version}`)
  writeFileSync(path, `#!/bin/sh\necho "QEMU emulator version ${version} (Debian)"\n`)
  chmodSync(path, 0o755)
  return path
}

const later = qemuOf('10.1.0')
const take = (addresses: readonly string[], { platform = 'snp', qemu = later } = {}) =>
  gpuTaker({ root })(addresses, { platform, qemu })

async function refusalOf(taking: Promise<unknown>): Promise<Fault> {
  const error = await taking.then(
    () => null,
    (thrown: unknown) => thrown,
  )
  if (error instanceof Fault) return error
  throw new Error('it was not refused', { cause: error })
}

test('goal: a VM gets descriptors of the nodes of its GPUs, in order, and room for their memory', async () => {
  writeTree(root, [{ address: first }, { address: second }])
  using taken = await take([second, first])
  expect(taken.devices.map(fd => readFileSync(fd, 'utf8'))).toEqual(['node 1', 'node 0'])
  // Each port's window begins at a multiple of 128 GiB and ends behind it.
  expect(taken.mmioWindowMib).toBe(512 * 1024)
  taken.readBack()
})

test('goal: what is not ready for it is refused, each with what to do', async () => {
  const refused: [Partial<TreeGpu>, string][] = [
    [{ vendor: '0x1002' }, 'is no GPU of NVIDIA (vendor 0x1002'],
    [{ pciClass: '0x020000' }, 'is no GPU of NVIDIA'],
    [{ driver: null }, 'has no driver, not vfio-pci: bind it at each boot: driverctl set-override'],
    [{ driver: 'nvidia' }, 'has the driver nvidia'],
    [{ group: null }, 'is in no IOMMU group'],
    [{ hasNode: false }, 'has no node below /dev/vfio/devices'],
    [{ powerState: 'D3cold' }, 'has no power (D3cold)'],
  ]
  for (const [change, problem] of refused) {
    writeTree(root, [{ address: first, ...change }])
    const fault = await refusalOf(take([first]))
    expect([fault.code, fault.param]).toEqual(['host.unsupported', 'inference.worker.gpu'])
    expect(fault.message).toContain(problem)
  }
  writeTree(root, [{ address: first }], { hasIommu: false })
  expect((await refusalOf(take([first]))).message).toContain('/dev/iommu is missing')
  expect((await refusalOf(take([second]))).message).toStartWith(`there is no PCI device ${second}`)
})

test('goal: a neighbour in the IOMMU group, which could write to its memory, is refused; a bridge is none', async () => {
  writeTree(root, [
    { address: first, group: 7 },
    { address: '0000:41:00.1', group: 7, pciClass: '0x040300' },
  ])
  expect((await refusalOf(take([first]))).message).toContain('shares its IOMMU group with 0000:41:00.1')
  writeTree(root, [
    { address: first, group: 7 },
    { address: '0000:40:01.0', group: 7, pciClass: '0x060400' },
  ])
  using taken = await take([first])
  expect(taken.devices).toHaveLength(1)
})

test('goal: D3cold is forbidden before the start, and read back: a kernel that does not take it is a refusal', async () => {
  writeTree(root, [{ address: first, d3coldAllowed: '1' }])
  {
    using _taken = await take([first])
    expect(readVfioDevice(first, { root }).d3coldAllowed).toBe('0')
  }
  writeTree(root, [{ address: first, d3coldAllowed: '1' }])
  const path = join(root, 'sys/bus/pci/devices', first, 'd3cold_allowed')
  rmSync(path)
  // As under a unit for which /sys is read-only: the attribute cannot be opened for writing.
  const { message } = await refusalOf(take([first]))
  expect(message).toContain('d3cold_allowed is not there')
  expect(message).toContain('/etc/udev/rules.d/60-strongroom-gpu.rules')
})

test('goal: a BAR that has another size after QEMU took the device is noticed', async () => {
  writeTree(root, [{ address: first }])
  using taken = await take([first])
  writeTree(root, [{ address: first, barBytes: 2 ** 28 }])
  expect(() => taken.readBack()).toThrow(`BAR 2 of ${first} had 131072 MiB before QEMU started, and has 256 MiB`)
})

test('goal: no platform but snp, and no QEMU that would refuse the device, or use its old pages', async () => {
  writeTree(root, [{ address: first }])
  for (const platform of ['kvm', 'tcg']) {
    expect((await refusalOf(take([first], { platform }))).message).toContain(`VMs on ${platform}`)
  }
  for (const version of ['9.1.0', '9.2.4', '10.0.8']) {
    const { message } = await refusalOf(take([first], { qemu: qemuOf(version) }))
    expect(message).toContain('that needs 10.1 or later')
  }
  for (const version of ['10.1.0', '10.2.1', '11.0.0']) {
    using taken = await take([first], { qemu: qemuOf(version) })
    expect(taken.addresses).toEqual([first])
  }
})
