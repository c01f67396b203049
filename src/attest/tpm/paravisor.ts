// The virtual TPM of a paravisor (vtpm.ts): REPORT_DATA names its attestation key. Pure.

import { concat, equalConstantTime } from '../../base/bytes.ts'
import { sha256 } from '../hash.ts'
import { parsed } from '../malformed.ts'
import { check } from '../verdict.ts'
import { runtimeAttestationKey } from './hcl-report.ts'
import { type BindingEvidence, bindingSteps, finish, type VtpmQuote, type VtpmVerdict } from './vtpm.ts'

export type ParavisorInput = VtpmQuote & {
  readonly evidence: BindingEvidence
  /** From `decodeHclReport`. `evidence` must be about the report of the same result. */
  readonly runtimeData: Uint8Array
  readonly measurement: Uint8Array | 'any'
}

export async function verifyParavisorVtpm(input: ParavisorInput): Promise<VtpmVerdict> {
  const { report } = input.evidence
  const expected = concat(sha256(input.runtimeData), new Uint8Array(32))
  const isBound = report !== null && equalConstantTime(report.reportData, expected)
  const key = parsed(() => runtimeAttestationKey(input.runtimeData))
  const ak = key.ok ? key.value : null
  const steps = [
    ...bindingSteps('vtpm:paravisor-bound', input.evidence, input.measurement),
    check('vtpm-report-data', isBound, 'REPORT_DATA is not SHA-256 of the runtime data and zeros'),
    check('vtpm-attestation-key', key.ok, key.ok ? '' : key.reason, 'the runtime data name HCLAkPub'),
  ]
  return finish('vtpm:paravisor-bound', steps, ak, input)
}
