// How QEMU runs on this host, by detection and configuration. Effects: reads /proc, /dev, the firmware file.

import { readFileSync } from 'node:fs'
import { hasKernelHashTable } from '../../attest/launch/ovmf.ts'
import { Fault, wrapFault } from '../../base/fault.ts'
import type { Config, Platform } from '../../config/schema.ts'
import { detectPlatform, hostCapacity, snpFacts } from '../../host/platform.ts'
import type { LedgerDb } from '../../store/db.ts'
import { readMeta, swapMeta } from '../../store/ledger/meta.query.ts'
import type { Capacity } from '../admission.plan.ts'
import { poolSize, poolSizeV6, uidCount } from '../launch.plan.ts'
import type { SnpCpu } from './qemu.plan.ts'

export type Choice = { readonly platform: Platform; readonly reasons: readonly string[] }

/** Returns the platform to use. Throws Fault host.unsupported if the configuration pins one that this host lacks. */
export function choosePlatform(pinned: Config['platform'], detected: Choice = detectPlatform()): Choice {
  if (pinned === 'auto' || pinned === detected.platform) return detected
  // Software emulation works everywhere; the others need what was detected.
  const offered = detected.platform === 'snp' ? ['snp', 'kvm', 'tcg'] : [detected.platform, 'tcg']
  if (!offered.includes(pinned)) {
    throw new Fault(
      'host.unsupported',
      `platform = "${pinned}", but this host offers ${offered.join(', ')}: ${detected.reasons.join('; ')}`,
    )
  }
  return { platform: pinned, reasons: detected.reasons }
}

const ranSnp = 'ran_snp'

/**
 * Records that this host has run `snp`. From then on, detection alone never selects less: SNP that is switched off, for
 * example by a firmware update, must not leave tenants' VMs unencrypted. `below_snp`: the configuration explicitly
 * selects less. Throws Fault host.unsupported.
 */
export function rememberPlatform(
  db: LedgerDb,
  { platform, reasons, isPinned }: Choice & { readonly isPinned: boolean },
): { readonly kind: 'same' | 'below_snp' } {
  if (platform === 'snp') {
    swapMeta(db, ranSnp, 'yes')
    return { kind: 'same' }
  }
  if (readMeta(db, ranSnp) === null) return { kind: 'same' }
  if (isPinned) return { kind: 'below_snp' }
  throw new Fault(
    'host.unsupported',
    `this host has run VMs on snp and now offers ${platform} only (${reasons.join('; ')}). Switch SNP on again, or, if VMs are to run without it from now on, write platform = "${platform}" into the configuration`,
  )
}

/** Number of physical address bits that a guest loses: the C-bit. */
const reducedPhysBits = 1

/** The platform that all VMs of this host start on. */
export type HostPlatform =
  | { readonly kind: 'tcg' }
  | { readonly kind: 'kvm' }
  | { readonly kind: 'snp'; readonly cpu: SnpCpu }

/** Returns the platform with its settings. Throws Fault host.unsupported. */
export function hostPlatform(platform: Platform, vm: Config['vm']): HostPlatform {
  if (platform !== 'snp') return { kind: platform }
  return { kind: 'snp', cpu: { cpuModel: vm.vcpu_type, cbitPosition: snpFacts().cbitpos, reducedPhysBits } }
}

export type BootSource =
  /** Null means the image's own firmware. */
  | { readonly kind: 'bios'; readonly firmware: string | null }
  /** Null means a file that is made from the image. */
  | { readonly kind: 'igvm'; readonly file: string | null }

export type TpmChoice =
  /**
   * `off`: by configuration. `snp`: the host must not emulate a TPM on that platform. `missing`: the program is not
   * installed.
   */
  { readonly kind: 'swtpm'; readonly program: string } | { readonly kind: 'off' | 'snp' | 'missing' }

/** Returns the TPM of a VM that starts now. */
export function tpmChoice(platform: Platform, vm: Pick<Config['vm'], 'tpm' | 'swtpm'>): TpmChoice {
  if (platform === 'snp') return { kind: 'snp' }
  if (vm.tpm === 'off') return { kind: 'off' }
  return Bun.which(vm.swtpm) === null ? { kind: 'missing' } : { kind: 'swtpm', program: vm.swtpm }
}

/**
 * Returns the boot source of VMs on snp; measured on every platform. Faults on snp: host.unsupported, image.invalid (a
 * firmware that would not check kernel hashes).
 */
export function bootOf(platform: Platform, vm: Pick<Config['vm'], 'snp_boot' | 'igvm' | 'firmware'>): BootSource {
  if (vm.snp_boot === 'igvm') return { kind: 'igvm', file: vm.igvm === '' ? null : vm.igvm }
  if (vm.firmware === '') return { kind: 'bios', firmware: null }
  if (platform !== 'snp') return { kind: 'bios', firmware: vm.firmware }
  let firmware: Uint8Array
  try {
    firmware = readFileSync(vm.firmware)
  } catch (error) {
    throw wrapFault(error, `read vm.firmware ${vm.firmware}`, 'host.unsupported')
  }
  if (!hasKernelHashTable(firmware)) {
    throw new Fault(
      'image.invalid',
      `vm.firmware ${vm.firmware} has no table for kernel hashes: it would boot any kernel`,
    )
  }
  return { kind: 'bios', firmware: vm.firmware }
}

const hostMemoryShare = 0.8
const vcpusPerCpu = 4

/** Returns the host's capacity for VMs. A configured 0 means that the value is derived from the host. */
export function capacityOf(config: Pick<Config, 'capacity' | 'vm' | 'network'>, platform: Platform): Capacity {
  const host = hostCapacity()
  const { memory_mib: memoryMib, vcpus, asids } = config.capacity
  return {
    memoryMib: memoryMib || Math.floor(host.memoryMiB * hostMemoryShare),
    vcpus: vcpus || host.cpus * vcpusPerCpu,
    // Each VM needs one address and one uid.
    addresses: Math.min(poolCount(config.network), uidCount({ min: config.vm.uid_min, max: config.vm.uid_max })),
    asids: platform === 'snp' ? asids || snpFacts().asidCount : null,
    bootingMax: config.vm.start_concurrency_max,
  }
}

/** Returns the number of addresses. An IPv6 pool is never the smaller one. */
function poolCount({ pool_v4: pool }: Config['network']): number {
  return pool === '' ? poolSizeV6 : poolSize(pool)
}
