// Verifies one SNP report in any saved form, with the default policy. Pure.

import type { Product } from '../attest/amd/product.ts'
import { parsed } from '../attest/malformed.ts'
import { floorAgeCheck, floorChecks } from '../attest/policy/floors.ts'
import type { Policy } from '../attest/policy/policy.ts'
import { readCertificateTable } from '../attest/report/certificate-table.ts'
import { type FoundReport, findReport, hclClaimsCheck } from '../attest/report/form.ts'
import { decodeReport } from '../attest/report/report.ts'
import { type Check, fail, pass, verdict } from '../attest/verdict.ts'
import { type ChainInput, type PreparedChain, prepareChain } from '../attest/verify/chain-prepare.ts'
import { type EvidenceQuestion, type EvidenceVerdict, verifyEvidence } from '../attest/verify/evidence.ts'
import { floorWaivers, pinChecks, REPORT_PINS, type ReportPins } from './pins.ts'

/** Waiving `crl` also accepts evidence without a revocation list. Waiving `tcb` skips the floors. */
export type SavedReport = Omit<EvidenceQuestion, 'requireCrl' | 'policy' | 'certificateEntries'> &
  ChainInput & {
    readonly policy: Policy
    readonly pins: ReportPins
    /** The host's table of an extended report. Only its GUIDs are used; pass its certificates as `vek` and `chain`. */
    readonly certificateTable?: Uint8Array | undefined
  }

/**
 * Like verifyEvidence, but `report` may also be an Azure HCL report that contains the SNP report, and pins and floors
 * are checked. A report of version 2 needs no product if its VEK's chain names one. The first check names the form. For
 * an HCL report the second, `hcl-claims`, is whether the SNP report covers its claims. Never throws.
 */
export async function verifySavedReport(saved: SavedReport): Promise<EvidenceVerdict> {
  const { form, found: inner } = formOf(saved.report)
  const report = inner?.report ?? saved.report
  const { policy, pins, asOf } = saved
  const prepared = await prepareChain(saved)
  const table = tableOf(saved.certificateTable)
  const signed = saved.product === undefined ? signedProduct(report, prepared) : null
  const found = await verifyEvidence({
    report,
    prepared,
    asOf,
    policy,
    requireCrl: pins.crl !== 'any',
    product: saved.product ?? signed ?? undefined,
    reportData: saved.reportData,
    maskedChipId: saved.maskedChipId,
    certificateEntries: table.entries,
  })
  const floors =
    pins.tcb === 'any' ? [] : [...floorChecks(found.report, found.product, floorWaivers(pins.tcb)), floorAgeCheck(asOf)]
  const claims = inner?.form === 'azure-hcl' ? [hclClaimsCheck(inner, found.report?.reportData ?? null)] : []
  const checks = found.checks.map(check => (signed === null ? check : withSource(check, signed)))
  return {
    ...found,
    ...verdict([
      form,
      ...claims,
      ...table.checks,
      ...pinChecks(REPORT_PINS, pins, { policy, allowlist: 'any' }),
      ...checks,
      ...floors,
    ]),
  }
}

/**
 * Returns the product in the VEK of a report of version 2, which does not contain its processor. The VEK is signed
 * below the root of that product, so trusting it only requires a good chain, which is required anyway. Null for other
 * reports, and if the chain is bad.
 */
function signedProduct(report: Uint8Array, { checks, found }: PreparedChain): Product | null {
  const decoded = parsed(() => decodeReport(report))
  const isNamed = !decoded.ok || decoded.value.cpuid !== null
  return isNamed || !verdict(checks).ok ? null : (found?.root?.product ?? null)
}

function withSource(check: Check, product: Product): Check {
  if (check.name !== 'report-product' || check.outcome !== 'pass') return check
  return { ...check, reason: `${product}, by the certificate that signed the report` }
}

/** Reads a table. An unreadable one fails, whether or not the policy requires it. */
function tableOf(bytes: Uint8Array | undefined): { checks: Check[]; entries: string[] | undefined } {
  if (bytes === undefined) return { checks: [], entries: undefined }
  const read = parsed(() => readCertificateTable(bytes))
  if (!read.ok) return { checks: [fail('certificate-table', read.reason)], entries: undefined }
  const entries = read.value.map(({ guid }) => guid)
  return { checks: [pass('certificate-table', entries.join(', '))], entries }
}

/** Finds the form. Bytes in no known form are verified unchanged, and fail. */
function formOf(bytes: Uint8Array): { form: Check; found: FoundReport | null } {
  const name = 'report-form'
  const found = parsed(() => findReport(bytes))
  if (!found.ok) return { form: fail(name, found.reason), found: null }
  const reason = found.value.form === 'plain' ? 'an SNP report' : 'an SNP report inside an Azure HCL report'
  return { form: pass(name, reason), found: found.value }
}
