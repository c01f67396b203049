// Three kinds of virtual TPM, and how each one's quote is bound to an SNP report. Pure.
//
// vtpm:svsm-vmpl0       The TPM runs at VMPL 0 beside the guest. REPORT_DATA = SHA-512(nonce[64] ‖ manifest); manifest
//                       version 0 is the endorsement key's TPMT_PUBLIC (AMD 58019, section 7: attestation protocol;
//                       Coconut-SVSM, vTPM service manifest).
// vtpm:paravisor-bound  The TPM runs in a paravisor at VMPL 0. REPORT_DATA begins with the SHA-256 of runtime data that
//                       name the attestation key.
// vtpm:host-untrusted   The host runs the TPM and controls its output; its verdict is never good.

import { concat, equalConstantTime } from '../../base/bytes.ts'
import { sha512 } from '../hash.ts'
import { parsed } from '../malformed.ts'
import { type Check, check, fail, notChecked, pass, type Verdict, verdict } from '../verdict.ts'
import type { TpmKey } from './key.ts'
import { decodePublicArea, isAttestationKey, isEndorsementKey, type TpmPublic } from './public-area.ts'
import { type PcrValues, QUOTE_CHECKS, verifyQuote } from './quote.ts'
import type { TpmSignature } from './structures.ts'

export type VtpmKind = 'vtpm:svsm-vmpl0' | 'vtpm:paravisor-bound' | 'vtpm:host-untrusted'

export type VtpmVerdict = Verdict & { readonly kind: VtpmKind }

/** The verdict of `verifyEvidence` on the report that binds the TPM. If it is bad, the TPM's verdict is bad too. */
export type BindingEvidence = Verdict & {
  readonly report: {
    readonly vmpl: number
    readonly measurement: Uint8Array
    readonly reportData: Uint8Array
  } | null
}

export type VtpmQuote = {
  readonly quote: Uint8Array
  readonly signature: Uint8Array | TpmSignature
  /** Expected extraData of the quote. */
  readonly nonce: Uint8Array
  readonly pcrs: PcrValues
}

/**
 * Proof that the TPM of the endorsement key holds the attestation key: the secret that a relying party wrapped for both
 * with TPM2_MakeCredential, and the result of TPM2_ActivateCredential (TPM 2.0 Library, Part 1, section 24). Both may
 * be replaced by a function of the secret that reveals nothing else (activationProof of make-credential.ts).
 */
export type Activation = {
  /** The TPMT_PUBLIC and the Name for which the credential was made. */
  readonly endorsementKey: Uint8Array
  readonly attestationKeyName: Uint8Array
  readonly secret: Uint8Array
  readonly activated: Uint8Array
}

/** Why an attempted activation returned nothing to compare. */
export type FailedActivation = { readonly failed: string }

export type SvsmInput = VtpmQuote & {
  readonly evidence: BindingEvidence
  /** 64 bytes, passed to the SVSM with the request for its report. */
  readonly reportNonce: Uint8Array
  readonly manifest: Uint8Array
  readonly measurement: Uint8Array | 'any'
  /** TPMT_PUBLIC. */
  readonly attestationKey: Uint8Array
  /** Null if nothing binds the attestation key to the endorsement key; the verdict is then not good. */
  readonly activation: Activation | FailedActivation | null
}

export async function verifySvsmVtpm(input: SvsmInput): Promise<VtpmVerdict> {
  const { report } = input.evidence
  const [ek, ak] = [publicAreaOf(input.manifest), publicAreaOf(input.attestationKey)]
  const expected = input.reportNonce.length === 64 ? sha512(concat(input.reportNonce, input.manifest)) : null
  const isBound = expected !== null && report !== null && equalConstantTime(report.reportData, expected)
  const steps = [
    ...bindingSteps('vtpm:svsm-vmpl0', input.evidence, input.measurement),
    check('vtpm-report-data', isBound, 'REPORT_DATA is not SHA-512 of the nonce and the manifest'),
    check(
      'vtpm-endorsement-key',
      ek !== null && isEndorsementKey(ek),
      'the manifest is not the endorsement key of a TPM',
    ),
    attestationKeyStep(ak, { activation: input.activation, endorsementKey: input.manifest }),
  ]
  return finish('vtpm:svsm-vmpl0', steps, ak?.key ?? null, input)
}

/** Checks only the quote, for development machines. The verdict is never good, whatever the quote contains. */
export async function verifyHostVtpm(input: VtpmQuote & { readonly ak: TpmKey }): Promise<VtpmVerdict> {
  const binding = fail('vtpm-binding', 'vtpm:host-untrusted: the host runs this TPM, and no hardware attests its key')
  return { ...verdict([binding, ...(await verifyQuote(input))]), kind: 'vtpm:host-untrusted' }
}

/** Returns the steps with which both bound kinds begin, in order. */
export function bindingSteps(kind: VtpmKind, evidence: BindingEvidence, measurement: Uint8Array | 'any'): Check[] {
  const { report } = evidence
  const isMeasured = measurement !== 'any' && report !== null && equalConstantTime(report.measurement, measurement)
  return [
    check('vtpm-evidence', evidence.ok && report !== null, `${kind}: the SNP report is not good`),
    // Above VMPL 0 the guest itself can request a report with any REPORT_DATA.
    check('vtpm-vmpl', report?.vmpl === 0, `VMPL is ${report?.vmpl ?? 'unknown'}, not 0`, 'VMPL is 0'),
    measurement === 'any'
      ? notChecked('vtpm-measurement', "skipped by the caller ('any')", false)
      : check('vtpm-measurement', isMeasured, 'the launch measurement is not the expected one'),
  ]
}

/** Checks that the key signs only structures of its TPM, and is in the TPM of this endorsement key. */
export function attestationKeyStep(
  ak: TpmPublic | null,
  { activation, endorsementKey }: Pick<SvsmInput, 'activation'> & { readonly endorsementKey: Uint8Array },
): Check {
  const name = 'vtpm-attestation-key'
  if (ak === null) return fail(name, 'the attestation key cannot be read')
  if (!isAttestationKey(ak)) return fail(name, 'the key is not restricted to signing structures of its TPM')
  if (activation === null)
    return notChecked(name, 'no credential was activated, which needs the TPM: the key may belong to another one', true)
  if ('failed' in activation) return fail(name, `no credential is activated: ${activation.failed}`)
  if (!equalConstantTime(activation.endorsementKey, endorsementKey)) {
    return fail(name, 'the credential was made for another endorsement key')
  }
  if (!equalConstantTime(activation.attestationKeyName, ak.name)) {
    return fail(name, 'the credential was made for another attestation key')
  }
  const isActivated = activation.secret.length >= 16 && equalConstantTime(activation.secret, activation.activated)
  return check(name, isActivated, 'the credential was not activated', 'the TPM of the endorsement key holds the key')
}

/** Returns the steps up to the first that fails, then `not-checked`. If all pass, verifies the quote too. */
export async function finish(
  kind: VtpmKind,
  steps: readonly Check[],
  ak: TpmKey | null,
  input: VtpmQuote,
): Promise<VtpmVerdict> {
  const stop = steps.findIndex(step => step.outcome === 'fail' || (step.required && step.outcome !== 'pass'))
  if (stop < 0 && ak !== null) {
    const binding = pass('vtpm-binding', kind)
    return { ...verdict([...steps, binding, ...(await verifyQuote({ ...input, ak }))]), kind }
  }
  const reason = `${steps[stop]?.name ?? 'an earlier check'} is not good`
  const later = [...steps.slice(stop + 1).map(step => step.name), 'vtpm-binding', ...QUOTE_CHECKS]
  const checks = [...steps.slice(0, stop + 1), ...later.map(name => notChecked(name, reason, true))]
  return { ...verdict(checks), kind }
}

function publicAreaOf(bytes: Uint8Array): TpmPublic | null {
  const area = parsed(() => decodePublicArea(bytes))
  return area.ok ? area.value : null
}
