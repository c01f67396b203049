// QEMU's vCPU models with their CPUID Fn0000_0001_EAX, which is in RDX at start (AMD APM volume 3, appendix E). Pure.

import { Malformed, wellFormed } from '../malformed.ts'

/** QEMU's names (target/i386/cpu.c). The versions of one model share its family, model and stepping. */
export const VCPU_SIGNATURES = {
  EPYC: 0x800f12,
  'EPYC-v1': 0x800f12,
  'EPYC-v2': 0x800f12,
  'EPYC-v3': 0x800f12,
  'EPYC-v4': 0x800f12,
  'EPYC-v5': 0x800f12,
  'EPYC-IBPB': 0x800f12,
  'EPYC-Rome': 0x830f10,
  'EPYC-Rome-v1': 0x830f10,
  'EPYC-Rome-v2': 0x830f10,
  'EPYC-Rome-v3': 0x830f10,
  'EPYC-Rome-v4': 0x830f10,
  'EPYC-Rome-v5': 0x830f10,
  'EPYC-Milan': 0xa00f11,
  'EPYC-Milan-v1': 0xa00f11,
  'EPYC-Milan-v2': 0xa00f11,
  'EPYC-Milan-v3': 0xa00f11,
  'EPYC-Genoa': 0xa10f10,
  'EPYC-Genoa-v1': 0xa10f10,
  'EPYC-Genoa-v2': 0xa10f10,
  'EPYC-Turin': 0xb00f00,
  'EPYC-Turin-v1': 0xb00f00,
} as const satisfies Record<string, number>

export type VcpuType = keyof typeof VCPU_SIGNATURES

export function isVcpuType(name: string): name is VcpuType {
  return Object.hasOwn(VCPU_SIGNATURES, name)
}

/** Returns the signature of a model given by name or number. Throws Malformed for any other name or number. */
export function vcpuSignature(type: string | number): number {
  if (typeof type === 'number') {
    wellFormed(Number.isInteger(type) && type > 0 && type <= 0xffff_ffff, `vCPU signature ${type}: not a u32`)
    return type
  }
  if (!isVcpuType(type)) throw new Malformed(`vCPU type ${JSON.stringify(type)}: unknown`)
  return VCPU_SIGNATURES[type]
}
