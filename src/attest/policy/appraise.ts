// Whether an SNP report meets a relying party's policy. Pure. Checks no signature: a forged report can pass.

import { equalConstantTime, toHex } from '../../base/bytes.ts'
import type { Product } from '../amd/product.ts'
import { decodeTcb, isTcbAtLeast, type RawTcb, type Tcb, tcbComponentsOf, tcbText } from '../amd/tcb.ts'
import { Malformed } from '../malformed.ts'
import {
  hasBit,
  KEY_BITS,
  keyInfoNames,
  type NamedBits,
  PLATFORM_BITS,
  POLICY_BITS,
  platformNames,
  policyNames,
} from '../report/bits.ts'
import type { IdentifiedReport } from '../report/identify.ts'
import { type FirmwareVersion, isReservedZero, type SnpReport } from '../report/report.ts'
import { type Check, check, fail, notChecked } from '../verdict.ts'
import type { BitRule, BitRules } from './kinds.ts'
import type { Policy } from './policy.ts'
import type { TcbMinimums } from './schema.ts'

/** One check for each field of a policy, in a fixed order; 'any' gives `not-checked`, not required. Never throws. */
export function appraise({ report, product }: IdentifiedReport, policy: Policy): Check[] {
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
    listCheck('vmpl', report.vmpl, policy.vmpls, String),
    listCheck('measurement', report.measurement, policy.measurements, toHex),
    bytesCheck('host-data', report.hostData, policy.hostData),
    bytesCheck('report-data', report.reportData, policy.reportData),
    bytesCheck('id-key-digest', report.idKeyDigest, policy.idKeyDigest),
    bytesCheck('author-key-digest', report.authorKeyDigest, policy.authorKeyDigest),
    listCheck('chip-id', report.chipId, policy.chipIds, toHex),
    ...tcbChecks('minimum-tcb', report.rawTcb.reported, product, policy.minimumTcb),
    ...tcbChecks('minimum-launch-tcb', report.rawTcb.launch, product, policy.minimumLaunchTcb),
    firmwareCheck('minimum-firmware-current', report.current, policy.minimumFirmware),
    firmwareCheck('minimum-firmware-committed', report.committed, policy.minimumFirmware),
    guestSvnCheck(report.guestSvn, policy.minimumGuestSvn),
    ...orderChecks(report, product, policy.tcbOrder),
  ]
}

function skipped(name: string): Check {
  return notChecked(name, "the policy says 'any'", false)
}

/** Passes when the value is one of those allowed. Values are compared as `text` writes them. */
function listCheck<T>(name: string, value: T, allowed: readonly T[] | 'any', text: (item: T) => string): Check {
  if (allowed === 'any') return skipped(name)
  const found = text(value)
  const isAllowed = allowed.some(other => text(other) === found)
  const others = allowed.length === 1 ? allowed.map(text).join() : `one of the ${allowed.length} allowed`
  return check(name, isAllowed, `${found} is not ${others}`, found)
}

function bytesCheck(name: string, value: Uint8Array, wanted: Uint8Array | 'any'): Check {
  if (wanted === 'any') return skipped(name)
  return check(name, equalConstantTime(value, wanted), `${toHex(value)} is not ${toHex(wanted)}`, toHex(value))
}

function bitChecks<Name extends string>(
  prefix: string,
  bits: Readonly<Record<Name, number>>,
  value: bigint,
  rules: BitRules<Name>,
  named: NamedBits<Name>,
): Check[] {
  const checks = (Object.keys(bits) as Name[]).map(bit => {
    const name = `${prefix}-${kebab(bit)}`
    const rule: BitRule = rules[bit]
    if (rule === 'any') return skipped(name)
    const isSet = hasBit(value, bits[bit])
    const state = `bit ${bits[bit]} is ${isSet ? 'set' : 'not set'}`
    return check(name, isSet === (rule === 'required'), `${state}, but it is ${rule}`, state)
  })
  const unknown = `${prefix}-unknown`
  if (rules.unknown === 'any') return [...checks, skipped(unknown)]
  const reason = `bits without a known meaning are set: ${named.unknown.join(', ')}`
  return [...checks, check(unknown, named.unknown.length === 0, reason)]
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

/** CURRENT is what runs: firmware can have committed and can report nothing newer (AMD 56860 rev 1.58, table 23). */
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

function firmwareCheck(name: string, version: FirmwareVersion, minimum: FirmwareVersion | 'any'): Check {
  if (minimum === 'any') return skipped(name)
  const order = ({ major, minor, build }: FirmwareVersion) => (major * 256 + minor) * 256 + build
  const text = ({ major, minor, build }: FirmwareVersion) => `${major}.${minor}.${build}`
  const isEnough = order(version) >= order(minimum)
  return check(name, isEnough, `${text(version)} is older than ${text(minimum)}`, text(version))
}

function guestSvnCheck(guestSvn: number, minimum: number | 'any'): Check {
  const name = 'minimum-guest-svn'
  if (minimum === 'any') return skipped(name)
  return check(name, guestSvn >= minimum, `${guestSvn} is less than ${minimum}`, String(guestSvn))
}

/** `singleSocket` to `single-socket`. */
function kebab(name: string): string {
  return name.replaceAll(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)
}
