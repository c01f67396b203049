// Goal: each vCPU model of QEMU has the signature that its family, model and stepping give. RDX of every start state
// holds it, so that another one is another launch digest.

import { expect, test } from 'bun:test'
import { isVcpuType, VCPU_SIGNATURES, vcpuSignature } from '../../../src/attest/launch/vcpu-types.ts'
import { Malformed } from '../../../src/attest/malformed.ts'

/** CPUID Fn0000_0001_EAX: family 15 and above is 15 plus an extended family; the model has two halves too. */
function signature(family: number, model: number, stepping: number): number {
  return ((family - 15) << 20) | ((model >> 4) << 16) | (15 << 8) | ((model & 15) << 4) | stepping
}

test('goal: the models, with family, model and stepping from target/i386/cpu.c', () => {
  const naples = signature(23, 1, 2)
  const rome = signature(23, 49, 0)
  const milan = signature(25, 1, 1)
  const genoa = signature(25, 17, 0)
  const turin = signature(26, 0, 0)
  expect(Object.entries(VCPU_SIGNATURES)).toEqual([
    ...['EPYC', 'EPYC-v1', 'EPYC-v2', 'EPYC-v3', 'EPYC-v4', 'EPYC-v5', 'EPYC-IBPB'].map(of(naples)),
    ...['', '-v1', '-v2', '-v3', '-v4', '-v5'].map(version => of(rome)(`EPYC-Rome${version}`)),
    ...['', '-v1', '-v2', '-v3'].map(version => of(milan)(`EPYC-Milan${version}`)),
    ...['', '-v1', '-v2'].map(version => of(genoa)(`EPYC-Genoa${version}`)),
    ...['', '-v1'].map(version => of(turin)(`EPYC-Turin${version}`)),
  ] as [])
  expect(vcpuSignature('EPYC-Milan-v2')).toBe(0xa00f11)
})

const of = (value: number) => (name: string) => [name, value]

test('goal: a number is a signature of 32 bits, and a name is one of the table', () => {
  expect([1, 0xa00f11, 0xffff_ffff].map(vcpuSignature)).toEqual([1, 0xa00f11, 0xffff_ffff])
  for (const bad of [0, -1, 0.5, 2 ** 32, Number.NaN, 'epyc', 'toString', ''])
    expect(() => vcpuSignature(bad)).toThrow(Malformed)
  expect(() => vcpuSignature(0)).toThrow('vCPU signature 0: not a u32')
  expect(['EPYC', 'toString', 'Skylake'].map(isVcpuType)).toEqual([true, false, false])
})
