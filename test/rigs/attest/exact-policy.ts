// Policies made from a report: one that says nothing, and one that says everything that the report says. Pure.

import type { Product } from '../../../src/attest/amd/product.ts'
import { decodeTcb, type RawTcb, tcbComponentsOf } from '../../../src/attest/amd/tcb.ts'
import { type Policy, strictPolicy } from '../../../src/attest/policy/policy.ts'
import { hasBit, KEY_BITS, PLATFORM_BITS, POLICY_BITS, policyNames } from '../../../src/attest/report/bits.ts'
import type { SnpReport } from '../../../src/attest/report/report.ts'

/** Everything 'any'. */
export const laxPolicy: Policy = {
  ...strictPolicy(),
  guestPolicy: { ...allAny(POLICY_BITS), unknown: 'any' },
  platformInfo: { ...allAny(PLATFORM_BITS), unknown: 'any' },
  keyInfo: { ...allAny(KEY_BITS), unknown: 'any' },
  reservedBytes: 'any',
  tcbOrder: 'any',
  vmpls: 'any',
}

/** Every field says all that it can about this report. Those about other evidence stay 'any'. */
export function exactPolicy(report: SnpReport, product: Product): Policy {
  const { current, committed, mitigation, rawTcb, signer } = report
  const exact = (raw: RawTcb) => ({ ...anyTcb, [product]: componentsOf(raw, product) })
  const isMasked = report.chipId.every(byte => byte === 0)
  return {
    ...laxPolicy,
    products: [product],
    signers: signer === 'none' ? 'any' : [signer],
    guestPolicy: { ...bitsOf(POLICY_BITS, report.policy), unknown: 'forbidden' },
    platformInfo: { ...bitsOf(PLATFORM_BITS, report.platformInfo), unknown: 'forbidden' },
    keyInfo: { ...bitsOf(KEY_BITS, BigInt(report.keyInfo)), unknown: 'forbidden' },
    reservedBytes: 'zero',
    vmpls: [report.vmpl],
    measurements: [report.measurement],
    hostData: report.hostData,
    reportData: report.reportData,
    idKeyDigest: report.idKeyDigest,
    authorKeyDigest: report.authorKeyDigest,
    chipIds: isMasked ? 'any' : [report.chipId],
    chipIdMasked: isMasked ? 'required' : 'forbidden',
    minimumTcb: exact(rawTcb.reported),
    maximumTcb: exact(rawTcb.reported),
    minimumLaunchTcb: exact(rawTcb.launch),
    maximumLaunchTcb: exact(rawTcb.launch),
    minimumCurrentTcb: exact(rawTcb.current),
    maximumCurrentTcb: exact(rawTcb.current),
    minimumCommittedTcb: exact(rawTcb.committed),
    maximumCommittedTcb: exact(rawTcb.committed),
    minimumFirmware: committed,
    maximumCommittedFirmware: committed,
    minimumCurrentFirmware: current,
    maximumCurrentFirmware: current,
    minimumGuestSvn: report.guestSvn,
    maximumGuestSvn: report.guestSvn,
    reportVersions: [report.version],
    familyId: report.familyId,
    imageId: report.imageId,
    reportId: report.reportId,
    reportIdMa: report.reportIdMa,
    processors: report.cpuid === null ? 'any' : [report.cpuid],
    minimumPolicyAbi: policyNames(report.policy).abi,
    maximumPolicyAbi: policyNames(report.policy).abi,
    launchMitigations: mitigation === null ? 'any' : exactBits(mitigation.launch),
    currentMitigations: mitigation === null ? 'any' : exactBits(mitigation.current),
  }
}

const anyTcb = { milan: 'any', genoa: 'any', turin: 'any' } as const

function componentsOf(raw: RawTcb, product: Product): Record<string, number> {
  const tcb = decodeTcb(raw, product)
  return Object.fromEntries(tcbComponentsOf(product).map(component => [component, tcb[component] ?? 0]))
}

function exactBits(vector: bigint): { required: bigint; forbidden: bigint } {
  return { required: vector, forbidden: ~vector & 0xffff_ffff_ffff_ffffn }
}

function allAny<Name extends string>(bits: Readonly<Record<Name, number>>): Record<Name, 'any'> {
  return Object.fromEntries(Object.keys(bits).map(name => [name, 'any'])) as Record<Name, 'any'>
}

function bitsOf<Name extends string>(bits: Readonly<Record<Name, number>>, value: bigint) {
  const rules = Object.entries<number>(bits).map(([name, bit]) => {
    return [name, hasBit(value, bit) ? 'required' : 'forbidden'] as const
  })
  return Object.fromEntries(rules) as Record<Name, 'required' | 'forbidden'>
}
