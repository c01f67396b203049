// What machine a figure was measured on. Reads /proc and /sys.

import { readFileSync, statSync } from 'node:fs'
import { availableParallelism, cpus, release, totalmem } from 'node:os'

export type MachineFacts = {
  readonly cpu: string
  readonly cores: number
  readonly memoryMiB: number
  readonly kernel: string
  /** As the appliance would detect it: hardware with SEV-SNP, plain KVM, or software emulation. */
  readonly platform: 'snp' | 'kvm' | 'tcg'
  readonly bun: string
}

export function machineFacts(): MachineFacts {
  return {
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    cores: availableParallelism(),
    memoryMiB: Math.round(totalmem() / 1024 ** 2),
    kernel: release(),
    platform: detectPlatform(),
    bun: Bun.version,
  }
}

/** /dev/kvm alone proves nothing: under some hypervisors it exists and guests hang, so the processor must say it too. */
function detectPlatform(): MachineFacts['platform'] {
  const snp = ['Y', '1'].includes(readText('/sys/module/kvm_amd/parameters/sev_snp').trim())
  if (snp && isDevice('/dev/sev')) return 'snp'
  const hasVirtualization = /^flags\s*:.*\b(?:svm|vmx)\b/m.test(readText('/proc/cpuinfo'))
  return hasVirtualization && isDevice('/dev/kvm') ? 'kvm' : 'tcg'
}

function isDevice(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isCharacterDevice() ?? false
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
