// The virtual TPM of a paravisor (vtpm.ts): REPORT_DATA names its attestation key. Pure.

import { concat, equalConstantTime } from '../../base/bytes.ts'
import { sha256 } from '../hash.ts'
import { parsed } from '../malformed.ts'
import { type Check, check } from '../verdict.ts'
import { runtimeAttestationKey } from './hcl-report.ts'
import type { TpmKey } from './key.ts'
import { type BindingEvidence, bindingSteps, finish, type VtpmQuote, type VtpmVerdict } from './vtpm.ts'

export type ParavisorInput = VtpmQuote & {
  readonly evidence: BindingEvidence
  /** From `decodeHclReport`. `evidence` must be about the report of the same result. */
  readonly runtimeData: Uint8Array
  readonly measurement: Uint8Array | 'any'
}

export async function verifyParavisorVtpm(input: ParavisorInput): Promise<VtpmVerdict> {
  const { ak, steps } = runtimeSteps(input.evidence.report, input.runtimeData)
  const all = [...bindingSteps('vtpm:paravisor-bound', input.evidence, input.measurement), ...steps]
  return finish('vtpm:paravisor-bound', all, ak, input)
}

/** Returns the key that the runtime data name, and whether the hardware's report covers them. */
export function runtimeSteps(
  report: { readonly reportData: Uint8Array } | null,
  runtimeData: Uint8Array,
): { readonly ak: TpmKey | null; readonly steps: readonly Check[] } {
  const expected = concat(sha256(runtimeData), new Uint8Array(32))
  const isBound = report !== null && equalConstantTime(report.reportData, expected)
  const key = parsed(() => runtimeAttestationKey(runtimeData))
  const steps = [
    check('vtpm-report-data', isBound, 'the report data are not SHA-256 of the runtime data and zeros'),
    check('vtpm-attestation-key', key.ok, key.ok ? '' : key.reason, 'the runtime data name HCLAkPub'),
  ]
  return { ak: key.ok ? key.value : null, steps }
}
