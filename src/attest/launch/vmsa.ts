// Initial state of an SEV-SNP guest's processors (QEMU target/i386/cpu.c and sev.c; KVM arch/x86/kvm/svm). Pure.

import type { OvmfMetadata } from './ovmf.ts'
import { checkLaunchFeatures, type Vmsa, type VmsaSegment, type VmsaSegmentName, writeVmsa } from './vmsa-layout.ts'

/** Address at which KVM measures every VMSA; guests never use it. */
export const kvmVmsaGpa = 0xffff_ffff_f000n

/** Bits that KVM always sets: CR4.MCE, and the fixed bit of RFLAGS. */
export const KVM_FORCED = { cr4: 0x40n, rflags: 0x2n } as const

/** The x86 reset vector, at which the boot processor starts. */
const resetVector = 0xffff_fff0

/** Registers of every processor after reset; code segment, RIP, RDX and SEV_FEATURES depend on the launch. */
const RESET_FIELDS: Vmsa['fields'] = {
  vmpl: 0,
  cpl: 0,
  efer: 0x1000n,
  cr4: KVM_FORCED.cr4,
  cr3: 0n,
  cr0: 0x10n,
  dr7: 0x400n,
  dr6: 0xffff_0ff0n,
  rflags: KVM_FORCED.rflags,
  rip: 0n,
  rsp: 0n,
  rax: 0n,
  pat: 0x0007_0406_0007_0406n,
  rcx: 0n,
  rdx: 0n,
  rbx: 0n,
  rbp: 0n,
  rsi: 0n,
  rdi: 0n,
  sevFeatures: 0n,
  xcr0: 1n,
  mxcsr: 0x1f80,
  x87Ftw: 0,
  x87Fsw: 0,
  x87Fcw: 0x37f,
}

const segment = (selector: number, attributes: number, base = 0n): VmsaSegment => ({
  selector,
  attributes,
  limit: 0xffff,
  base,
})
const data = segment(0, 0x93)

const RESET_SEGMENTS: Record<VmsaSegmentName, VmsaSegment> = {
  es: data,
  cs: segment(0xf000, 0x9b),
  ss: data,
  ds: data,
  fs: data,
  gs: data,
  gdtr: segment(0, 0),
  ldtr: segment(0, 0x82),
  idtr: segment(0, 0),
  tr: segment(0, 0x8b),
}

type VmsaLaunch = {
  /** CPUID signature of the vCPU model. */
  readonly signature: number
  /** SEV_FEATURES, with only those bits that `checkLaunchFeatures` accepts. */
  readonly features: bigint
}

/** Returns the page of a processor that starts at `eip`. */
function resetVmsa(eip: number, { signature, features }: VmsaLaunch): Uint8Array {
  checkLaunchFeatures(features)
  return writeVmsa({
    fields: { ...RESET_FIELDS, rip: BigInt(eip & 0xffff), rdx: BigInt(signature), sevFeatures: features },
    segments: { ...RESET_SEGMENTS, cs: segment(0xf000, 0x9b, BigInt((eip & 0xffff_0000) >>> 0)) },
  })
}

/** Returns both kinds of page: the first processor starts at the reset vector, all others at the firmware's address. */
export function qemuVmsas(
  firmware: Pick<OvmfMetadata, 'resetEip'>,
  launch: VmsaLaunch,
): { readonly first: Uint8Array; readonly other: Uint8Array } {
  return { first: resetVmsa(resetVector, launch), other: resetVmsa(firmware.resetEip, launch) }
}
