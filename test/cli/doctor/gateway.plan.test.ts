// Goal: doctor names the one thing that keeps a GPU from the VM, and is silent where none is configured.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gpuChecks } from '../../../src/cli/doctor/gateway.plan.ts'
import { readVfioDevice } from '../../../src/host/vfio.ts'
import { type TreeGpu, writeTree } from '../../rigs/vfio-tree.ts'

const root = mkdtempSync(join(tmpdir(), 'srt-gpu-doctor-'))
afterAll(() => rmSync(root, { recursive: true }))

const address = '0000:41:00.0'
const qemu = (version: string) => ({ ok: true, text: `QEMU emulator version ${version}` }) as const

function checksOf(gpu: Partial<TreeGpu>, { platform = 'snp', version = '10.1.2' } = {}) {
  writeTree(root, [{ address, ...gpu }])
  const checks = gpuChecks([readVfioDevice(address, { root })], platform as 'snp', qemu(version))
  return checks.map(({ name, result, detail }) => `${result} ${name}: ${detail}`)
}

test('goal: a GPU that is ready passes, and the check does not claim its confidential mode', () => {
  expect(checksOf({})).toEqual([
    'PASS gpu launch: this QEMU gives devices to VMs of SEV-SNP',
    `PASS gpu ${address}: alone in its IOMMU group, bound to vfio-pci, D0; the guest checks its confidential mode`,
  ])
  expect(gpuChecks([], 'snp', qemu('9.1'))).toEqual([])
})

test('goal: an older QEMU, another platform, and each trap fail or warn', () => {
  expect(checksOf({}, { version: '9.1.0' })[0]).toStartWith('FAIL gpu launch: QEMU 9.1 gives no device')
  expect(checksOf({}, { platform: 'kvm' })[0]).toStartWith('FAIL gpu launch: inference.worker.gpu needs platform snp')
  expect(checksOf({ d3coldAllowed: '1' })[1]).toContain('may lose its power while it is idle (d3cold_allowed is 1)')
  expect(checksOf({ driver: 'nvidia' })[1]).toStartWith(`FAIL gpu ${address}: ${address} has the driver nvidia`)
  // Sizes of 64 MiB to 128 GiB, and it has 256 MiB.
  expect(checksOf({ barBytes: 2 ** 28, resize: '000000000003ffc0' })[1]).toBe(
    `WARN gpu ${address}: BAR 2 of ${address} has 256 MiB of the 131072 that it can have`,
  )
  expect(checksOf({ resize: '000000000003ffc0' })[1]).toStartWith('PASS')
})
