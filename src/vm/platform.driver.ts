// How QEMU is to run on this host, from detection and configuration. Effects: reads /proc, /dev, the firmware file.

import { readFileSync } from 'node:fs'
import { hasKernelHashTable } from '../attest/launch/ovmf.ts'
import { Fault, wrapFault } from '../base/fault.ts'
import type { Config, Platform } from '../config/schema.ts'
import { detectPlatform, hostCapacity, snpFacts } from '../host/platform.ts'
import type { Capacity } from './admission.plan.ts'
import { poolSize, uidCount } from './launch.plan.ts'
import type { QemuPlatform, SnpBoot } from './qemu.plan.ts'

/** The platform to use. Fault host.unsupported when the configuration pins one that this host lacks. */
export function choosePlatform(pinned: Config['platform']): { platform: Platform; reasons: readonly string[] } {
  const detected = detectPlatform()
  if (pinned === 'auto' || pinned === detected.platform) return detected
  // Software emulation works everywhere; the others need what detection looks for.
  const offered = detected.platform === 'snp' ? ['snp', 'kvm', 'tcg'] : [detected.platform, 'tcg']
  if (!offered.includes(pinned)) {
    throw new Fault(
      'host.unsupported',
      `platform = "${pinned}", but this host offers ${offered.join(', ')}: ${detected.reasons.join('; ')}`,
    )
  }
  return { platform: pinned, reasons: detected.reasons }
}

/** SEV-SNP guest policy: bit 17 must be one, bit 16 allows SMT (AMD 56860, table 10). No debugging, no migration. */
const guestPolicy = 0x30000n
/** What a guest loses of its physical address bits: the C-bit alone. */
const reducedPhysBits = 1

/** Faults: host.unsupported, image.invalid (a firmware that would not check kernel hashes). */
export function qemuPlatform(platform: Platform, vm: Config['vm']): QemuPlatform {
  if (platform !== 'snp') return { kind: platform }
  const hostData = new Uint8Array(32).toBase64()
  const cbitPosition = snpFacts().cbitpos
  return {
    kind: 'snp',
    boot: snpBoot(vm),
    launch: { cpuModel: vm.vcpu_type, cbitPosition, reducedPhysBits, policy: guestPolicy, hostData, idBlock: null },
  }
}

function snpBoot(vm: Config['vm']): SnpBoot {
  if (vm.snp_boot === 'igvm') return { kind: 'igvm', file: vm.igvm }
  if (vm.firmware === '') return { kind: 'bios', firmware: null }
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

/** What VMs may use of this host. Where the configuration says 0, it is derived from the host. */
export function capacityOf(config: Pick<Config, 'capacity' | 'vm' | 'network'>, platform: Platform): Capacity {
  const host = hostCapacity()
  const { memory_mib: memoryMib, vcpus, asids } = config.capacity
  return {
    memoryMib: memoryMib || Math.floor(host.memoryMiB * hostMemoryShare),
    vcpus: vcpus || host.cpus * vcpusPerCpu,
    // Each VM needs one of both.
    addresses: Math.min(poolSize(config.network.pool_v4), uidCount({ min: config.vm.uid_min, max: config.vm.uid_max })),
    asids: platform === 'snp' ? asids || snpFacts().asidCount : null,
    bootingMax: config.vm.start_concurrency_max,
  }
}
