// Checks whether an SNP report meets a relying party's policy. Pure. Checks no signature: a forged report can pass.

import { toHex } from '../../base/bytes.ts'
import { type Cpuid, cpuidText, type Product } from '../amd/product.ts'
import { decodeTcb, isTcbAtLeast, type RawTcb, type Tcb, tcbComponentsOf, tcbText } from '../amd/tcb.ts'
import { Malformed } from '../malformed.ts'
import { KEY_BITS, keyInfoNames, PLATFORM_BITS, POLICY_BITS, platformNames, policyNames } from '../report/bits.ts'
import type { IdentifiedReport } from '../report/identify.ts'
import { type FirmwareVersion, isReservedZero, type SnpReport } from '../report/report.ts'
import { type Check, check, fail, notChecked } from '../verdict.ts'
import { type CollateralFacts, collateralChecks } from './collateral-checks.ts'
import { bitChecks, bytesCheck, listCheck, maskCheck, skipped } from './field-checks.ts'
import { digestsOf } from './id-keys.ts'
import type { Policy } from './policy.ts'
import type { TcbMinimums } from './schema.ts'

/**
 * Returns at least one check for each field of a policy, in a fixed order; 'any' gives `not-checked`, not required.
 * `facts`: the evidence beside the report; if null, checks that need it fail. Never throws.
 */
export function appraise(
  { report, product }: IdentifiedReport,
  policy: Policy,
  facts: CollateralFacts | null = null,
): Check[] {
  return [
    listCheck('product-allowed', product, policy.products, kind => kind),
    listCheck('signer', report.signer, policy.signers, signer => signer),
    ...bitChecks('guest-policy', POLICY_BITS, report.policy, policy.guestPolicy, policyNames(report.policy)),
    ...bitChecks(
      'platform-info',
      PLATFORM_BITS,
      report.platformInfo,
      policy.platformInfo,
      platformNames(report.platformInfo),
    ),
    ...bitChecks('key-info', KEY_BITS, BigInt(report.keyInfo), policy.keyInfo, keyInfoNames(report.keyInfo)),
    reservedCheck(report, policy.reservedBytes),
    vmplCheck(report.vmpl, policy.vmpls),
    listCheck('measurement', report.measurement, policy.measurements, toHex),
    bytesCheck('host-data', report.hostData, policy.hostData),
    bytesCheck('report-data', report.reportData, policy.reportData),
    digestCheck('id-key-digest', report.idKeyDigest, policy.idKeyDigest),
    digestCheck('author-key-digest', report.authorKeyDigest, policy.authorKeyDigest),
    listCheck('chip-id', report.chipId, policy.chipIds, toHex),
    ...tcbChecks('minimum-tcb', report.rawTcb.reported, product, policy.minimumTcb),
    ...tcbChecks('minimum-launch-tcb', report.rawTcb.launch, product, policy.minimumLaunchTcb),
    firmwareCheck('minimum-firmware-current', report.current, policy.minimumFirmware),
    firmwareCheck('minimum-firmware-committed', report.committed, policy.minimumFirmware),
    guestSvnCheck(report.guestSvn, policy.minimumGuestSvn),
    ...orderChecks(report, product, policy.tcbOrder),
    ...identityChecks(report, policy),
    ...boundChecks(report, product, policy),
    ...committedChecks(report, policy.committedFirmware),
    mitigationCheck('launch-mitigations', report, policy.launchMitigations),
    mitigationCheck('current-mitigations', report, policy.currentMitigations),
    ...collateralChecks(policy, facts),
  ]
}

/** Present in every verdict, because software at VMPL 0 controls a guest at VMPL 1. */
function vmplCheck(vmpl: number, allowed: Policy['vmpls']): Check {
  const name = 'vmpl'
  return allowed === 'any'
    ? notChecked(name, `${vmpl}; the policy has 'any'`, false)
    : listCheck(name, vmpl, allowed, String)
}

function identityChecks(report: SnpReport, policy: Policy): Check[] {
  const { chipIdMasked, processors } = policy
  const isMasked = report.chipId.every(byte => byte === 0)
  const masked = { required: 'the chip_id is not masked', forbidden: 'the platform masks its chip_id' }
  const text = ({ family, model, stepping }: Cpuid) => cpuidText({ family, model, stepping })
  return [
    listCheck('report-version', report.version, policy.reportVersions, String),
    bytesCheck('family-id', report.familyId, policy.familyId),
    bytesCheck('image-id', report.imageId, policy.imageId),
    bytesCheck('report-id', report.reportId, policy.reportId),
    bytesCheck('report-id-ma', report.reportIdMa, policy.reportIdMa),
    processors !== 'any' && report.cpuid === null
      ? fail('processor', `a report of version ${report.version} names no processor`)
      : listCheck('processor', report.cpuid ?? noCpuid, processors, text),
    chipIdMasked === 'any'
      ? skipped('chip-id-masked')
      : check('chip-id-masked', isMasked === (chipIdMasked === 'required'), masked[chipIdMasked]),
  ]
}

const noCpuid: Cpuid = { family: 0, model: 0, stepping: 0 }

function boundChecks(report: SnpReport, product: Product, policy: Policy): Check[] {
  const { rawTcb: raw, current, committed } = report
  const abi = policyNames(report.policy).abi
  const abiOrder = ({ major, minor }: typeof abi) => major * 256 + minor
  const abiText = ({ major, minor }: typeof abi) => `${major}.${minor}`
  const build = ({ build }: FirmwareVersion) => build
  return [
    boundCheck('minimum-policy-abi', abi, { least: policy.minimumPolicyAbi }, abiOrder, abiText),
    boundCheck('maximum-policy-abi', abi, { most: policy.maximumPolicyAbi }, abiOrder, abiText),
    boundCheck('maximum-guest-svn', report.guestSvn, { most: policy.maximumGuestSvn }, Number, String),
    tcbBoundCheck('maximum-tcb', raw.reported, product, { most: policy.maximumTcb }),
    tcbBoundCheck('maximum-launch-tcb', raw.launch, product, { most: policy.maximumLaunchTcb }),
    tcbBoundCheck('minimum-current-tcb', raw.current, product, { least: policy.minimumCurrentTcb }),
    tcbBoundCheck('maximum-current-tcb', raw.current, product, { most: policy.maximumCurrentTcb }),
    tcbBoundCheck('minimum-committed-tcb', raw.committed, product, { least: policy.minimumCommittedTcb }),
    tcbBoundCheck('maximum-committed-tcb', raw.committed, product, { most: policy.maximumCommittedTcb }),
    boundCheck('minimum-current-firmware', current, { least: policy.minimumCurrentFirmware }, orderOf, versionText),
    boundCheck('maximum-current-firmware', current, { most: policy.maximumCurrentFirmware }, orderOf, versionText),
    boundCheck(
      'maximum-committed-firmware',
      committed,
      { most: policy.maximumCommittedFirmware },
      orderOf,
      versionText,
    ),
    boundCheck('minimum-build-current', build(current), { least: policy.minimumBuild }, Number, String),
    boundCheck('minimum-build-committed', build(committed), { least: policy.minimumBuild }, Number, String),
  ]
}

/** Passes if the value is one of the given digests. */
function digestCheck(name: string, value: Uint8Array, wanted: Policy['idKeyDigest']): Check {
  if (wanted === 'any') return skipped(name)
  const [first, ...more] = digestsOf(wanted)
  if (first !== undefined && more.length === 0) return bytesCheck(name, value, first)
  return listCheck(name, value, digestsOf(wanted), toHex)
}

function reservedCheck(report: SnpReport, rule: Policy['reservedBytes']): Check {
  const name = 'reserved-bytes'
  if (rule === 'any') return skipped(name)
  return check(name, isReservedZero(report), `bytes that version ${report.version} reserves are not zero`)
}

function tcbChecks(prefix: string, raw: RawTcb, product: Product, minimums: TcbMinimums | 'any'): Check[] {
  const minimum: Partial<Record<keyof Tcb, number | 'any'>> | 'any' = minimums === 'any' ? 'any' : minimums[product]
  const tcb = minimum === 'any' ? null : tcbOrReason(raw, product)
  return tcbComponentsOf(product).map(component => {
    const name = `${prefix}-${component}`
    const least = minimum === 'any' ? 'any' : minimum[component]
    if (least === 'any') return skipped(name)
    if (tcb === null || typeof tcb === 'string') return fail(name, tcb ?? 'the TCB was not decoded')
    const value = tcb[component]
    if (least === undefined || value === null) return fail(name, `${product} has no ${component}`)
    return check(name, value >= least, `${value} is less than ${least}`, `${value} is at least ${least}`)
  })
}

function tcbOrReason(raw: RawTcb, product: Product): Tcb | string {
  try {
    return decodeTcb(raw, product)
  } catch (cause) {
    if (cause instanceof Malformed) return cause.message
    throw cause
  }
}

/** CURRENT is the running firmware: it cannot have committed or report a newer one (AMD 56860 rev 1.58, table 23). */
function orderChecks({ rawTcb, ...report }: SnpReport, product: Product, rule: Policy['tcbOrder']): Check[] {
  const firmware = 'firmware-order'
  const notAbove = ['committed', 'reported'] as const
  if (rule === 'any') return [...notAbove.map(kind => skipped(`tcb-order-${kind}`)), skipped(firmware)]
  const current = tcbOrReason(rawTcb.current, product)
  const tcbs = notAbove.map(kind => {
    const name = `tcb-order-${kind}`
    const least = tcbOrReason(rawTcb[kind], product)
    if (typeof current === 'string') return fail(name, current)
    if (typeof least === 'string') return fail(name, least)
    const field = `${kind.toUpperCase()}_TCB`
    const failure = `CURRENT_TCB (${tcbText(current)}) is below ${field} (${tcbText(least)})`
    return check(name, isTcbAtLeast(current, least), failure, `CURRENT_TCB is at least ${field}`)
  })
  return [...tcbs, firmwareCheck(firmware, report.current, report.committed)]
}

/** Checks the rule 'current': the host has committed the running firmware, so it cannot roll back. */
function committedChecks({ rawTcb, current, committed }: SnpReport, rule: Policy['committedFirmware']): Check[] {
  const names = ['committed-tcb-current', 'committed-firmware-current'] as const
  if (rule === 'any') return names.map(skipped)
  const isFirmware = orderOf(current) === orderOf(committed)
  const versions = `${versionText(committed)} is committed, ${versionText(current)} runs`
  return [
    check(
      names[0],
      rawTcb.current === rawTcb.committed,
      'COMMITTED_TCB is not CURRENT_TCB: the firmware is provisional',
    ),
    check(names[1], isFirmware, `${versions}: the firmware is provisional`, versionText(current)),
  ]
}

function mitigationCheck(
  name: 'launch-mitigations' | 'current-mitigations',
  { mitigation, version }: SnpReport,
  rule: Policy['launchMitigations'],
): Check {
  if (rule === 'any') return skipped(name)
  if (mitigation === null) return fail(name, `a report of version ${version} has no mitigation vectors`)
  const vector = name === 'launch-mitigations' ? mitigation.launch : mitigation.current
  return maskCheck(name, vector, rule)
}

type FieldBound<T> = { readonly least: T | 'any' } | { readonly most: T | 'any' }

function boundCheck<T>(
  name: string,
  value: T,
  bound: FieldBound<T>,
  order: (value: T) => number,
  text: (value: T) => string,
): Check {
  const isLeast = 'least' in bound
  const limit = isLeast ? bound.least : bound.most
  if (limit === 'any') return skipped(name)
  const holds = isLeast ? order(value) >= order(limit) : order(value) <= order(limit)
  return check(name, holds, `${text(value)} is ${isLeast ? 'below' : 'above'} ${text(limit)}`, text(value))
}

/** Compares every component with its bound. A TCB that cannot be decoded fails. */
function tcbBoundCheck(name: string, raw: RawTcb, product: Product, bound: FieldBound<TcbMinimums>): Check {
  const isLeast = 'least' in bound
  const limits = isLeast ? bound.least : bound.most
  const limit: Partial<Record<keyof Tcb, number | 'any'>> | 'any' = limits === 'any' ? 'any' : limits[product]
  if (limit === 'any') return skipped(name)
  const tcb = tcbOrReason(raw, product)
  if (typeof tcb === 'string') return fail(name, tcb)
  const outside = tcbComponentsOf(product).flatMap(component => {
    const value = tcb[component] ?? 0
    const edge = limit[component] ?? 'any'
    const isWithin = edge === 'any' || (isLeast ? value >= edge : value <= edge)
    return isWithin ? [] : [`${component} ${value} is ${isLeast ? 'below' : 'above'} ${edge}`]
  })
  return check(name, outside.length === 0, outside.join('; '), tcbText(tcb))
}

function firmwareCheck(name: string, version: FirmwareVersion, minimum: FirmwareVersion | 'any'): Check {
  if (minimum === 'any') return skipped(name)
  const isEnough = orderOf(version) >= orderOf(minimum)
  const older = `${versionText(version)} is older than ${versionText(minimum)}`
  return check(name, isEnough, older, versionText(version))
}

/** Orders versions by major, then minor, then build. */
function orderOf({ major, minor, build }: FirmwareVersion): number {
  return (major * 256 + minor) * 256 + build
}

function versionText({ major, minor, build }: FirmwareVersion): string {
  return `${major}.${minor}.${build}`
}

function guestSvnCheck(guestSvn: number, minimum: number | 'any'): Check {
  const name = 'minimum-guest-svn'
  if (minimum === 'any') return skipped(name)
  return check(name, guestSvn >= minimum, `${guestSvn} is less than ${minimum}`, String(guestSvn))
}
