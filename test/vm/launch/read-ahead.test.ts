// Work done ahead of the first VM: a real kernel that is unpacked once, and images that do not exist.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { writeLaunchImage } from '../../../scripts/rigs/launch/launch-image.ts'
import { Fault } from '../../../src/base/fault.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { loadImage } from '../../../src/vm/launch/image.driver.ts'
import { readAhead } from '../../../src/vm/launch/read-ahead.driver.ts'
import { UnpackedKernels } from '../../../src/vm/launch/unpacked-kernel.driver.ts'

const directory = mkdtempSync(join(tmpdir(), 'srt-ahead-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))
await writeLaunchImage(directory)

const vm = { image: 'instance', vcpus: 2, memoryMib: 2048 }

function watched() {
  const done: string[] = []
  const kernels = new UnpackedKernels(directory)
  const open = kernels.open.bind(kernels)
  kernels.open = async (kernel, sha256) => {
    done.push(`unpack ${sha256.slice(0, 8)}`)
    return open(kernel, sha256)
  }
  const launcher = { readAhead: async (of: { vcpus: number }) => void done.push(`measure for ${of.vcpus}`) }
  return { done, launcher, kernels, log: silentLogger }
}

test('the image is measured for the VMs to come, and its kernel is unpacked where it is emulated', async () => {
  // Goal: both are over before a VM is wanted; on kvm and snp nothing is unpacked.
  const image = loadImage(directory)
  const parts = watched()
  await readAhead({ ...parts, image: () => image }, vm)
  const { sha256 } = image.manifest.files.kernel
  expect(parts.done).toEqual(['measure for 2', `unpack ${sha256.slice(0, 8)}`])
  const elsewhere = watched()
  await readAhead({ ...elsewhere, image: () => image, kernels: null }, vm)
  expect(elsewhere.done).toEqual(['measure for 2'])
})

test('an image that is not there stops nothing', async () => {
  // Goal: the daemon starts without an image, and the first VM says what is wrong with it.
  const parts = watched()
  const gone = () => {
    throw new Fault('image.invalid', 'no manifest')
  }
  await readAhead({ ...parts, image: gone }, vm)
  expect(parts.done).toEqual([])
})
