// Capabilities and size of this host: SEV-SNP, KVM or software emulation; processors, memory. Effects: reads below a
// file system root.

import { closeSync, existsSync, openSync, readFileSync, readSync } from 'node:fs'
import { join } from 'node:path'
import { type Cpuid, type Product, productOfCpuid } from '../attest/amd/product.ts'
import { Fault, messageOf } from '../base/fault.ts'
import { resultOr } from '../base/result-or.ts'
import type { Platform } from '../config/schema.ts'

export type HostRoot = {
  /** `/`, or a test's stand-in. */
  readonly root: string
}

export type Detected = {
  readonly platform: Platform
  /** Findings, for `strongroom doctor`. */
  readonly reasons: readonly string[]
}

/**
 * Returns the best platform of this host. /dev/kvm alone proves nothing: under some hypervisors it exists and guests
 * hang.
 */
export function detectPlatform({ root }: HostRoot = { root: '/' }): Detected {
  const sevDevice = existsSync(join(root, 'dev/sev'))
  const sevSnp = readText(root, 'sys/module/kvm_amd/parameters/sev_snp')?.trim() ?? 'absent'
  const kvmDevice = existsSync(join(root, 'dev/kvm'))
  const flag = virtualizationFlag(readText(root, 'proc/cpuinfo') ?? '')
  const reasons = [
    `/dev/sev: ${sevDevice ? 'present' : 'absent'}`,
    `kvm_amd sev_snp: ${sevSnp}`,
    `/dev/kvm: ${kvmDevice ? 'present' : 'absent'}`,
    `CPU virtualization flag: ${flag ?? 'none'}`,
  ]
  // The kernel prints a boolean parameter as Y or N; older ones as 1 or 0.
  if (sevDevice && (sevSnp === 'Y' || sevSnp === '1')) return { platform: 'snp', reasons }
  return { platform: kvmDevice && flag !== null ? 'kvm' : 'tcg', reasons }
}

function virtualizationFlag(cpuinfo: string): 'svm' | 'vmx' | null {
  const flags = /^flags\s*:(.*)$/m.exec(cpuinfo)?.[1]?.split(/\s+/) ?? []
  if (flags.includes('svm')) return 'svm'
  return flags.includes('vmx') ? 'vmx' : null
}

export type HostCapacity = { readonly memoryMiB: number; readonly cpus: number }

/** Returns memory and CPUs of the whole host. Throws Fault host.unsupported if /proc does not report them. */
export function hostCapacity({ root }: HostRoot = { root: '/' }): HostCapacity {
  const memoryKiB = Number(/^MemTotal:\s+(\d+) kB$/m.exec(readText(root, 'proc/meminfo') ?? '')?.[1])
  const cpus = (readText(root, 'proc/cpuinfo') ?? '').match(/^processor\s*:/gm)?.length ?? 0
  if (!Number.isSafeInteger(memoryKiB) || cpus === 0) {
    throw new Fault('host.unsupported', 'no MemTotal in /proc/meminfo or no processor in /proc/cpuinfo')
  }
  return { memoryMiB: Math.floor(memoryKiB / 1024), cpus }
}

/** Returns the EPYC product of this host's processors; null for an unknown one. */
export function hostProduct(host: HostRoot = { root: '/' }): Product | null {
  const cpuid = hostCpuid(host)
  return cpuid === null ? null : productOfCpuid(cpuid)
}

/** Returns the CPUID of this host's processors; null if they are not AMD's. */
export function hostCpuid({ root }: HostRoot = { root: '/' }): Cpuid | null {
  const cpuinfo = readText(root, 'proc/cpuinfo') ?? ''
  if (/^vendor_id\s*:\s*(\S+)$/m.exec(cpuinfo)?.[1] !== 'AuthenticAMD') return null
  // Combined family and model, in decimal (arch/x86/kernel/cpu/proc.c).
  const number = (name: string) => Number(new RegExp(`^${name}\\s*:\\s*(\\d+)$`, 'm').exec(cpuinfo)?.[1])
  return { family: number('cpu family'), model: number('model'), stepping: number('stepping') }
}

export type SnpFacts = {
  /** C-bit position in page tables: QEMU's `cbitpos`. */
  readonly cbitpos: number
  /** Physical address bits that the host loses. QEMU's `reduced-phys-bits` is the guest's: only the C-bit, 1. */
  readonly reducedPhysBits: number
  /** Maximum number of VMs with SEV-ES or SEV-SNP at the same time. */
  readonly asidCount: number
}

/**
 * Reads facts from CPUID 8000_001F through the cpuid device of the first CPU (cpuid(4); module `cpuid`, root only).
 * Throws Fault host.unsupported if the device is absent or the CPU has no SEV-SNP.
 */
export function snpFacts({ root }: HostRoot = { root: '/' }): SnpFacts {
  return parseSnpLeaf(readCpuid(root, snpLeaf))
}

const snpLeaf = 0x8000_001f
const cpuidBytes = 16

/** Parses EAX, EBX, ECX, EDX of leaf 8000_001F, little-endian (AMD 24594 rev 3.36, appendix E.4.17). Pure. */
export function parseSnpLeaf(leaf: Uint8Array): SnpFacts {
  if (leaf.length !== cpuidBytes) throw new Fault('host.unsupported', `CPUID leaf of ${leaf.length} bytes`)
  const view = new DataView(leaf.buffer, leaf.byteOffset, leaf.byteLength)
  const [eax, ebx, ecx, edx] = [0, 4, 8, 12].map(offset => view.getUint32(offset, true)) as [
    number,
    number,
    number,
    number,
  ]
  if ((eax & (1 << 4)) === 0) throw new Fault('host.unsupported', 'CPUID 8000_001F: the CPU has no SEV-SNP')
  return {
    cbitpos: ebx & 0x3f,
    reducedPhysBits: (ebx >> 6) & 0x3f,
    // ECX: ASIDs 1 to ECX support encryption. EDX: the first that plain SEV may use; those below are for SEV-ES and
    // SEV-SNP.
    asidCount: Math.max(0, Math.min(ecx, edx - 1)),
  }
}

export function readCpuid(root: string, leaf: number): Uint8Array {
  const path = join(root, 'dev/cpu/0/cpuid')
  let fd: number
  try {
    fd = openSync(path, 'r')
  } catch (error) {
    throw new Fault('host.unsupported', `open ${path} (load the cpuid module): ${messageOf(error)}`, { cause: error })
  }
  try {
    const registers = new Uint8Array(cpuidBytes)
    // The low half of the position is EAX, the high half ECX.
    const readBytes = readSync(fd, registers, 0, cpuidBytes, leaf)
    return registers.subarray(0, readBytes)
  } catch (error) {
    throw new Fault('host.unsupported', `read ${path}: ${messageOf(error)}`, { cause: error })
  } finally {
    closeSync(fd)
  }
}

function readText(root: string, path: string): string | null {
  return resultOr(() => readFileSync(join(root, path), 'utf8'), null)
}
