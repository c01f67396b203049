// Verifies SNP evidence as a whole: report, chain, revocation, signature and policy, with one verdict. Pure.
//
// Nothing is thrown: malformed evidence is a failed check. The order of the checks is fixed: report, chain, signature,
// policy.

import { equalConstantTime, toHex } from '../../base/bytes.ts'
import type { Product } from '../amd/product.ts'
import { parsed } from '../malformed.ts'
import { appraise } from '../policy/appraise.ts'
import type { CollateralFacts } from '../policy/collateral-checks.ts'
import type { Policy } from '../policy/policy.ts'
import { identifyReport, type ReportIdentity } from '../report/identify.ts'
import { decodeReport, type SnpReport } from '../report/report.ts'
import { type Check, check, fail, notChecked, pass, type Verdict, verdict } from '../verdict.ts'
import { type ChainQuestion, verifyChain } from './chain.ts'
import { type ChainInput, type PreparedChain, prepareChain } from './chain-prepare.ts'
import { checkReportSignature, reportSignatureCheck } from './report-signature.ts'

export type Evidence = EvidenceQuestion & (ChainInput | { readonly prepared: PreparedChain })

export type EvidenceQuestion = {
  /** 1184 bytes. */
  readonly report: Uint8Array
  /** Required for reports of version 2, which have no CPUID. For others it must match the CPUID. */
  readonly product?: Product | undefined
  /** The time for which to verify. This module reads no clock. */
  readonly asOf: Date | number
  /** If true, a missing CRL makes the verdict bad. A given CRL is always checked. */
  readonly requireCrl: boolean
  /** 'any' skips the policy. If absent, the verdict is bad: a signature does not exclude, say, a debug guest. */
  readonly policy?: Policy | 'any' | undefined
  /** The 64 bytes that the report must contain, if the caller can compute them. */
  readonly reportData?: Uint8Array | undefined
  /** 'any' accepts a platform that hides its chip_id; rejected by default. */
  readonly maskedChipId?: ChainQuestion['maskedChipId'] | undefined
  /**
   * GUIDs in the host's certificate table, for a policy that requires some. Pass its certificates as `vek` and `chain`.
   */
  readonly certificateEntries?: readonly string[] | undefined
}

export type EvidenceVerdict = Verdict & {
  /** Null if unreadable. Trust it only in a good verdict. */
  readonly report: SnpReport | null
  readonly product: Product | null
  /** True if the chain ends at a trusted root that is not AMD's: no hardware attests the report. */
  readonly simulated: boolean
}

/**
 * Verifies evidence offline. With `prepared` (from prepareChain) only comparisons remain for the chain. Never throws.
 */
export async function verifyEvidence(evidence: Evidence): Promise<EvidenceVerdict> {
  const read = readReport(evidence.report)
  const { report } = read
  const identity = report === null ? null : identifyReport(report, evidence.product ?? null)
  const product = identity?.kind === 'known' ? identity.product : null
  const prepared = 'prepared' in evidence ? evidence.prepared : await prepareChain(evidence)
  const { asOf, requireCrl, maskedChipId = 'refuse' } = evidence
  const checks = [
    read.check,
    productCheck(identity),
    ...verifyChain(prepared, { asOf, requireCrl, product, report, maskedChipId }),
    await signatureCheck(report, prepared),
    reportDataCheck(report, evidence.reportData),
    ...policyChecks(identity, evidence.policy, collateralFacts(evidence, prepared)),
  ]
  return { ...verdict(checks), report, product, simulated: prepared.found?.root?.simulated ?? false }
}

function readReport(bytes: Uint8Array): { readonly report: SnpReport | null; readonly check: Check } {
  const name = 'report-format'
  const report = parsed(() => decodeReport(bytes))
  if (!report.ok) return { report: null, check: fail(name, report.reason) }
  return { report: report.value, check: pass(name, `version ${report.value.version}`) }
}

function productCheck(identity: ReportIdentity | null): Check {
  const name = 'report-product'
  if (identity === null) return notChecked(name, noReport, true)
  return identity.kind === 'known' ? pass(name, identity.product) : fail(name, identity.reason)
}

async function signatureCheck(report: SnpReport | null, { found }: PreparedChain): Promise<Check> {
  if (report === null) return notChecked(reportSignatureCheck, noReport, true)
  if (found === null) return notChecked(reportSignatureCheck, 'there is no certificate to check it with', true)
  return await checkReportSignature(report, found.vek.publicKey.spki)
}

function reportDataCheck(report: SnpReport | null, expected: Uint8Array | undefined): Check {
  const name = 'report-data-expected'
  if (expected === undefined) return notChecked(name, 'the caller gave no report data to compare with', false)
  if (report === null) return notChecked(name, noReport, true)
  if (!(expected instanceof Uint8Array)) return fail(name, 'the expected report data are not bytes')
  const found = report.reportData
  return check(name, equalConstantTime(found, expected), `${toHex(found)} is not ${toHex(expected)}`)
}

function collateralFacts({ asOf, certificateEntries }: Evidence, { found }: PreparedChain): CollateralFacts {
  return {
    asOfMs: Number(asOf),
    holder: found?.extensions.holder ?? null,
    crlThisUpdateMs: found?.crl.kind === 'signed' ? found.crl.crl.thisUpdateMs : null,
    certificateEntries: certificateEntries ?? null,
  }
}

function policyChecks(
  identity: ReportIdentity | null,
  policy: Policy | 'any' | undefined,
  facts: CollateralFacts,
): readonly Check[] {
  const name = 'policy'
  if (policy === undefined) return [notChecked(name, 'no policy was given', true)]
  if (policy === 'any') return [notChecked(name, "the policy is 'any'", false)]
  if (identity === null) return [notChecked(name, noReport, true)]
  if (identity.kind === 'unknown') return [notChecked(name, 'the product is not known', true)]
  const checks = parsed(() => appraise(identity, policy, facts))
  return checks.ok ? checks.value : [fail(name, checks.reason)]
}

const noReport = 'there is no report to check'
