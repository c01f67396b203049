// Verifies one SNP report in whichever form it was saved, and the policy of who has none. Pure.

import { parsed } from '../attest/malformed.ts'
import { type Policy, strictPolicy } from '../attest/policy/policy.ts'
import { type FoundReport, findReport, hclClaimsCheck } from '../attest/report/form.ts'
import { type Check, fail, pass, verdict } from '../attest/verdict.ts'
import { type Evidence, type EvidenceVerdict, verifyEvidence } from '../attest/verify/evidence.ts'

/**
 * Without a policy only what nobody wants is refused: debugging and migration. Any VMPL is accepted, because a relying party
 * without a policy does not know at which one the evidence was made.
 */
export function defaultPolicy(): Policy {
  return { ...strictPolicy(), vmpls: 'any' }
}

/**
 * As verifyEvidence, but `report` may also be an Azure HCL report with the SNP report inside. The first check says which; for an HCL report
 * the second, `hcl-claims`, whether the SNP report covers its claims. Never throws.
 */
export async function verifySavedReport(evidence: Evidence): Promise<EvidenceVerdict> {
  const { form, found } = formOf(evidence.report)
  const answer = await verifyEvidence({ ...evidence, report: found?.report ?? evidence.report })
  const claims = found?.form === 'azure-hcl' ? [hclClaimsCheck(found, answer.report?.reportData ?? null)] : []
  return { ...answer, ...verdict([form, ...claims, ...answer.checks]) }
}

/** Bytes in neither form are verified as they are, and fail. */
function formOf(bytes: Uint8Array): { form: Check; found: FoundReport | null } {
  const name = 'report-form'
  const found = parsed(() => findReport(bytes))
  if (!found.ok) return { form: fail(name, found.reason), found: null }
  const reason = found.value.form === 'plain' ? 'an SNP report' : 'an SNP report inside an Azure HCL report'
  return { form: pass(name, reason), found: found.value }
}
