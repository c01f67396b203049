// The part of each kind of vTPM in the verdict (judge.ts): the hardware's evidence, and its link to the attestation
// key. Effects: reads files.

import { parsed } from '../../../attest/malformed.ts'
import type { TdxVerdict } from '../../../attest/tdx/verify.ts'
import { runtimeAttestationKey } from '../../../attest/tpm/hcl-report.ts'
import { encodeSpki, type TpmKey } from '../../../attest/tpm/key.ts'
import type { VtpmVerdict } from '../../../attest/tpm/vtpm.ts'
import { type Check, check } from '../../../attest/verdict.ts'
import type { EvidenceVerdict } from '../../../attest/verify/evidence.ts'
import { equalConstantTime } from '../../../base/bytes.ts'
import type { Run } from '../../../terminal/command.ts'
import type { Downloader } from '../../collateral/download.ts'
import type { VtpmBundle } from './bundle.ts'
import { readKey } from './inputs.ts'
import type { VtpmOptions } from './kinds.ts'
import { reportNonceCheck } from './report-nonce.ts'

export type Link = {
  readonly link: VtpmVerdict
  readonly attestationKey: TpmKey | null
  /** Null for a vTPM that no hardware attests. */
  readonly hardware: Hardware | null
  readonly checks?: readonly Check[]
  readonly runtimeData?: Uint8Array
}

export type Hardware = {
  /** For people: what did not pass. */
  readonly name: 'SNP report' | 'TDX quote'
  readonly checks: readonly Check[]
  readonly simulated: boolean
  readonly snp: EvidenceVerdict | null
  readonly tdx: TdxVerdict | null
  /** Null without --fetch. */
  readonly downloader: Downloader | null
}

export type LinkInputs = { readonly run: Run; readonly asOf: number; readonly bundle: VtpmBundle | null }

/** Returns the key that a paravisor's runtime data name, and the checks of it and of the bundle. */
export async function readRuntimeKey(options: VtpmOptions, runtimeData: Uint8Array, bundle: VtpmBundle | null) {
  const named = parsed(() => runtimeAttestationKey(runtimeData))
  const attestationKey = named.ok ? named.value : null
  const given = options.ak === undefined ? null : await readKey('ak', options.ak)
  const checks = [
    ...(given === null ? [] : [givenKeyCheck(given, attestationKey)]),
    reportNonceCheck(bundle?.version ?? null, { runtimeData, nonce: options.nonce }),
  ]
  return { attestationKey, checks }
}

function givenKeyCheck(given: TpmKey, named: TpmKey | null): Check {
  const isSame = named !== null && equalConstantTime(encodeSpki(given), encodeSpki(named))
  return check('vtpm-given-key', isSame, 'the report names another attestation key than --ak', 'the key of --ak')
}
