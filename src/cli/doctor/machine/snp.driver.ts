// Collects the facts about SEV-SNP for `strongroom doctor`. Effects: reads files and CPUID, one ioctl that changes
// nothing.

import { readFileSync, statSync } from 'node:fs'
import { release } from 'node:os'
import { readOvmf } from '../../../attest/launch/ovmf.ts'
import { messageOf } from '../../../base/fault.ts'
import type { Config } from '../../../config/schema.ts'
import { hostCpuid, hostProduct, snpFacts } from '../../../host/platform.ts'
import { asidUse, snpStatus } from '../../../host/sev.ts'
import type { Outcome } from '../check.ts'
import { firmwareFile, type SnpHostFacts } from './snp.plan.ts'

const firmwareBytesMax = 64 * 1024 * 1024

/** Never throws. */
export function collectSnpFacts(vm: Config['vm']): SnpHostFacts {
  return {
    kernel: release(),
    cpu: found(() => snpFacts()),
    status: found(() => snpStatus()),
    product: hostProduct(),
    cpuid: hostCpuid(),
    asids: asidUse(),
    firmware: firmwareFit(vm),
  }
}

/** image-check.driver.ts compares the named IGVM file with the image. */
function firmwareFit(vm: Config['vm']): Outcome {
  const file = firmwareFile(vm)
  try {
    const { size } = statSync(file)
    if (vm.snp_boot === 'igvm' && vm.igvm !== '') return { ok: true, text: file }
    if (size > firmwareBytesMax) return { ok: false, text: `${file} has ${size} bytes: that is no firmware` }
    const { kernelHashes, sections } = readOvmf(new Uint8Array(readFileSync(file)))
    if (kernelHashes === null)
      return { ok: false, text: `${file} has no table for kernel hashes: it would boot any kernel` }
    const kinds = new Set(sections.map(section => section.kind))
    const missing = (['secrets', 'cpuid', 'kernelHashes'] as const).filter(kind => !kinds.has(kind))
    if (missing.length > 0) return { ok: false, text: `${file}: its SEV metadata has no section ${missing.join(', ')}` }
    return { ok: true, text: `${file}, with SEV metadata and kernel hashes` }
  } catch (error) {
    return { ok: false, text: `${file}: ${messageOf(error)}` }
  }
}

function found<Value>(work: () => Value): { ok: true; value: Value } | { ok: false; text: string } {
  try {
    return { ok: true, value: work() }
  } catch (error) {
    return { ok: false, text: messageOf(error) }
  }
}
