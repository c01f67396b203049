// Checks whether an IGVM file loads one firmware exactly as QEMU would, and nothing else. Pure.
//
// Only then do the kernel hashes in the file decide what boots. Otherwise a file could hold genuine firmware and
// hashes, and start its processors in another page.

import { equalConstantTime } from '../../base/bytes.ts'
import { firmwareRegion, type LaunchRegion, laterRegions, launchPages } from '../launch/digest.ts'
import type { KernelHashes } from '../launch/kernel-hashes.ts'
import type { OvmfMetadata } from '../launch/ovmf.ts'
import { readVmsa } from '../launch/vmsa-layout.ts'
import { Malformed, wellFormed } from '../malformed.ts'
import { type Check, fail, pass } from '../verdict.ts'
import type { IgvmFile } from './file.ts'
import { igvmRegions } from './measure.ts'

type IgvmFirmware = {
  readonly firmware: Uint8Array
  readonly metadata: OvmfMetadata
  readonly kernelHashes: KernelHashes | null
}

/**
 * Returns the check `igvm-layout`, which passes for `buildIgvm`'s file of this firmware and these hashes, with any
 * processors.
 */
export function checkIgvmLayout(file: IgvmFile, loaded: IgvmFirmware | null): Check {
  const name = 'igvm-layout'
  if (loaded === null) return fail(name, 'no OVMF firmware that ends at 4 GiB')
  try {
    const regions = igvmRegions(file, 'qemu-kvm')
    const difference = firstDifference(regions, expectedRegions(regions, loaded))
    return difference === null ? pass(name) : fail(name, difference)
  } catch (error) {
    if (error instanceof Malformed) return fail(name, error.message)
    throw error
  }
}

/** Returns the regions that QEMU loads for this firmware, with the file's own processors. */
function expectedRegions(regions: readonly LaunchRegion[], loaded: IgvmFirmware): LaunchRegion[] {
  const states = regions.filter(({ type }) => type === 'vmsa')
  const first = states[0]?.contents
  wellFormed(first !== undefined && first !== null, 'IGVM: no VMSA')
  const { rdx, sevFeatures } = readVmsa(first).fields
  const cpus = { vcpus: states.length, vcpuType: Number(rdx), features: sevFeatures }
  const launch = { ...cpus, profile: 'qemu-kvm', vehicle: 'igvm' } as const
  return [firmwareRegion(loaded.firmware), ...laterRegions({ ...loaded, ...launch })]
}

function firstDifference(found: readonly LaunchRegion[], expected: readonly LaunchRegion[]): string | null {
  const wanted = launchPages(expected)
  const pages = launchPages(found)
  for (const [index, page] of pages.entries()) {
    const at = `page 0x${page.gpa.toString(16)} (${page.type})`
    const other = wanted[index]
    if (other === undefined) return `${at} does not belong to the firmware`
    if (other.gpa !== page.gpa || other.type !== page.type)
      return `${at} instead of page 0x${other.gpa.toString(16)} (${other.type})`
    const isSame = equalConstantTime(page.contents ?? nothing, other.contents ?? nothing)
    if (!isSame) return `${at} has other contents than the firmware's`
  }
  return pages.length === wanted.length ? null : `${wanted.length - pages.length} pages are missing`
}

const nothing = new Uint8Array(0)
