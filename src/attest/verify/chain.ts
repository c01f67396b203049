// Checks that a chain certifies a report's key at a given time: ARK → ASK → VCEK or ARK → ASVK → VLEK. Pure. AMD 57230.
// report-signature.ts verifies the report's own signature.

import type { Product } from '../amd/product.ts'
import { decodeTcb, TCB_COMPONENTS, tcbText } from '../amd/tcb.ts'
import { productOfName } from '../amd/trusted-roots.ts'
import { HW_ID_BYTES } from '../amd/vek-extensions.ts'
import { reasonOf } from '../malformed.ts'
import type { SnpReport } from '../report/report.ts'
import { type Check, check, fail, notChecked, pass } from '../verdict.ts'
import type { Certificate } from '../x509/certificate.ts'
import type { FoundChain, PreparedChain } from './chain-prepare.ts'
import { checkRevocation, REVOCATION_CHECK } from './revocation.ts'

/** Checks after PREPARED_CHECKS, in this order. */
export const CHAIN_CHECKS = [
  'chain-validity',
  REVOCATION_CHECK,
  'vek-product',
  'vek-signer',
  'vek-chip-id',
  'vek-tcb',
] as const

export type ChainQuestion = {
  readonly asOf: Date | number
  /** If true, a missing CRL makes the verdict bad. If false, revocation is not checked without a CRL. */
  readonly requireCrl: boolean
  /** The report's product; null if unknown. */
  readonly product: Product | null
  /** Null if unreadable. */
  readonly report: SnpReport | null
  /** A platform may hide its chip, and a VCEK then cannot be matched with the report's chip_id. 'any' accepts that. */
  readonly maskedChipId: 'refuse' | 'any'
}

/** Returns every check of a chain, by name, in a fixed order. Never throws. */
export function verifyChain(prepared: PreparedChain, question: ChainQuestion): Check[] {
  const { found } = prepared
  if (found === null) {
    return [...prepared.checks, ...CHAIN_CHECKS.map(name => notChecked(name, 'there is no chain to check', true))]
  }
  const asOfMs = Number(question.asOf)
  const { intermediate, ark } = found
  return [
    ...prepared.checks,
    checkValidity(found, asOfMs),
    checkRevocation(found.crl, { authorities: [intermediate, ark], asOfMs, requireCrl: question.requireCrl }),
    checkProduct(found, question.product),
    ...checkReport(found, question),
  ]
}

/** Checks that every certificate is valid at the caller's time. */
function checkValidity({ vek, intermediate, ark }: FoundChain, asOfMs: number): Check {
  if (!Number.isFinite(asOfMs)) return fail('chain-validity', 'the time to verify for is not a time')
  const faults = [
    outside('VEK', vek, asOfMs),
    outside('intermediate', intermediate, asOfMs),
    outside('ARK', ark, asOfMs),
  ]
  const found = faults.filter(fault => fault !== null)
  return check('chain-validity', found.length === 0, found.join('; '), `as of ${iso(asOfMs)}`)
}

function outside(role: string, { notBeforeMs, notAfterMs }: Certificate, asOfMs: number): string | null {
  if (asOfMs >= notBeforeMs && asOfMs <= notAfterMs) return null
  const word = asOfMs < notBeforeMs ? 'not yet valid' : 'expired'
  return `${role} ${word} as of ${iso(asOfMs)}: valid from ${iso(notBeforeMs)} to ${iso(notAfterMs)}`
}

/** Checks that the VEK's extension, the root and the report name the same product. */
function checkProduct({ extensions, root }: FoundChain, product: Product | null): Check {
  const named = productOfName(extensions.productName)
  if (root === null)
    return fail('vek-product', 'the ARK is not a trusted root, so the product of the chain is not known')
  if (named !== root.product) {
    return fail('vek-product', `the VEK is for ${extensions.productName}, its root for ${root.product}`)
  }
  if (product === null) return fail('vek-product', `the VEK is for ${named}; the report's product is not known`)
  return check('vek-product', named === product, `the VEK is for ${named}, the report of ${product}`, product)
}

function checkReport(found: FoundChain, { report, product, maskedChipId }: ChainQuestion): Check[] {
  if (report === null) {
    return ['vek-signer', 'vek-chip-id', 'vek-tcb'].map(name => notChecked(name, 'there is no report to check', true))
  }
  return [
    checkSigner(found, report),
    checkChipId(found, report, { product, maskedChipId }),
    checkTcb(found, report, product),
  ]
}

function checkSigner({ extensions }: FoundChain, { signer }: SnpReport): Check {
  const { kind } = extensions.holder
  return check(
    'vek-signer',
    signer === kind,
    `the report names ${signer} as its key, the certificate is a ${kind}`,
    kind,
  )
}

/**
 * Compares hwID with all 64 bytes of chip_id; on Turin with the first 8, and the others must be zeros. A VLEK is for a
 * cloud provider, not a chip.
 */
function checkChipId(
  { extensions: { holder } }: FoundChain,
  { chipId }: SnpReport,
  { product, maskedChipId }: Pick<ChainQuestion, 'product' | 'maskedChipId'>,
): Check {
  const name = 'vek-chip-id'
  if (holder.kind === 'vlek') return notChecked(name, `a VLEK names no chip; it is for ${holder.cspId}`, false)
  if (product === null)
    return notChecked(name, 'the product is not known, so the length of hwID is not known either', true)
  const { hwId } = holder
  const expectedBytes = product === 'turin' ? HW_ID_BYTES.short : HW_ID_BYTES.long
  if (hwId.length !== expectedBytes) return fail(name, `hwID has ${hwId.length} bytes, on ${product} ${expectedBytes}`)
  if (chipId.every(byte => byte === 0)) {
    const reason = 'the platform masks its chip_id, so it cannot be compared with hwID'
    return maskedChipId === 'any' ? notChecked(name, reason, false) : fail(name, reason)
  }
  const isEqual = hwId.every((byte, at) => byte === chipId[at])
  const isRestZero = chipId.subarray(hwId.length).every(byte => byte === 0)
  return check(name, isEqual && isRestZero, "the VCEK's hwID is not the report's chip_id")
}

/** Compares REPORTED_TCB component by component, because the VEK is derived from it. CURRENT_TCB may be newer. */
function checkTcb({ extensions: { spl } }: FoundChain, report: SnpReport, product: Product | null): Check {
  const name = 'vek-tcb'
  if (product === null)
    return notChecked(name, "the product is not known, so the TCB's layout is not known either", true)
  try {
    const reported = decodeTcb(report.rawTcb.reported, product)
    const different = TCB_COMPONENTS.filter(component => reported[component] !== spl[component])
    const text = different.map(kind => `${kind}: VEK ${spl[kind] ?? 'none'}, REPORTED_TCB ${reported[kind] ?? 'none'}`)
    return different.length === 0 ? pass(name, tcbText(reported)) : fail(name, text.join('; '))
  } catch (error) {
    return fail(name, reasonOf(error))
  }
}

function iso(ms: number): string {
  const date = new Date(ms)
  return Number.isNaN(date.getTime()) ? `${ms} ms` : date.toISOString()
}
