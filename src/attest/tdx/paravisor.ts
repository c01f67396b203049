// The virtual TPM of a paravisor in a TD (vtpm.ts of attest/tpm): REPORTDATA of the TD report, and so of the quote,
// names its attestation key. Pure.
//
// The paravisor is the TD's firmware, which MRTD measures, and it alone can ask for a TD report with REPORTDATA of its
// own choice. The PCRs of the vTPM measure the system that it starts; Azure's leaves the RTMRs at zero.

import { parsed } from '../malformed.ts'
import { runtimeSteps } from '../tpm/paravisor.ts'
import { finish, type VtpmQuote, type VtpmVerdict } from '../tpm/vtpm.ts'
import { type Check, check, fail } from '../verdict.ts'
import { differingFields } from './td-report.ts'
import type { TdxVerdict } from './verify.ts'

export type TdxParavisorInput = VtpmQuote & {
  /** The verdict on the TDX quote, with a policy for MRTD. If it is bad, the TPM's verdict is bad too. */
  readonly evidence: Pick<TdxVerdict, 'ok' | 'quote'>
  /** Both from `decodeHclReport`: the report that the paravisor kept, and what its REPORTDATA covers. */
  readonly tdReport: Uint8Array
  readonly runtimeData: Uint8Array
}

export async function verifyTdxParavisorVtpm(input: TdxParavisorInput): Promise<VtpmVerdict> {
  const { evidence, tdReport, runtimeData } = input
  const { quote, ok } = evidence
  const report = quote?.report ?? null
  const { ak, steps } = runtimeSteps(report, runtimeData)
  const all = [
    check('vtpm-evidence', ok && report !== null, 'vtpm:paravisor-bound: the TDX quote is not good'),
    tdReportStep(tdReport, quote),
    ...steps,
  ]
  return finish('vtpm:paravisor-bound', all, ak, input)
}

/** The TD report is not signed: one that differs from the quote shows that the two are of different TDs. */
function tdReportStep(tdReport: Uint8Array, quote: TdxVerdict['quote']): Check {
  const name = 'vtpm-td-report'
  if (quote === null) return fail(name, 'there is no quote to compare it with')
  const found = parsed(() => differingFields(tdReport, quote))
  if (!found.ok) return fail(name, found.reason)
  const words = `the TD report in the HCL report is not that of the quote: ${found.value.join(', ')}`
  return check(name, found.value.length === 0, words, 'the fields that the quote repeats are those of the TD report')
}
