// Verifies one SNP report in whichever form it was saved, and the policy of who has none. Pure.

import { Malformed } from '../attest/malformed.ts'
import { type Policy, strictPolicy } from '../attest/policy/policy.ts'
import { findReport } from '../attest/report/form.ts'
import { type Check, fail, pass, verdict } from '../attest/verdict.ts'
import { type Evidence, type EvidenceVerdict, verifyEvidence } from '../attest/verify/evidence.ts'

/**
 * Without a policy only what nobody wants is refused: debugging and migration. Any VMPL is accepted, because a relying party
 * without a policy does not know at which one the evidence was made.
 */
export function defaultPolicy(): Policy {
  return { ...strictPolicy(), vmpls: 'any' }
}

/** As verifyEvidence, but `report` may also be an Azure HCL report with the SNP report inside. The first check says which. Never throws. */
export async function verifySavedReport(evidence: Evidence): Promise<EvidenceVerdict> {
  const { form, report } = formOf(evidence.report)
  const found = await verifyEvidence({ ...evidence, report })
  return { ...found, ...verdict([form, ...found.checks]) }
}

/** Bytes in neither form are verified as they are, and fail. */
function formOf(bytes: Uint8Array): { form: Check; report: Uint8Array } {
  const name = 'report-form'
  try {
    const { form, report } = findReport(bytes)
    const reason = form === 'plain' ? 'an SNP report' : 'an SNP report inside an Azure HCL report'
    return { form: pass(name, reason), report }
  } catch (error) {
    if (error instanceof Malformed) return { form: fail(name, error.message), report: bytes }
    throw error
  }
}
