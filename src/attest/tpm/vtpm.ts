// Three kinds of virtual TPM, and the link of each one's quote to an SNP report. Pure.
//
// vtpm:svsm-vmpl0       The TPM runs at VMPL 0 beside the guest. REPORT_DATA = SHA-512(nonce[64] ‖ manifest); manifest
//                       version 0 is the endorsement key's TPMT_PUBLIC (AMD 58019, section 7: attestation protocol;
//                       Coconut-SVSM, vTPM service manifest).
// vtpm:paravisor-bound  The TPM runs in a paravisor at VMPL 0. REPORT_DATA begins with the SHA-256 of runtime data that
//                       name the attestation key.
// vtpm:host-untrusted   The host runs the TPM and decides what it says; its verdict is never good.

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

/** The verdict of `verifyEvidence` on the report that binds the TPM: if it is bad, the TPM's verdict is bad. */
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
 * Proof that the TPM of the endorsement key holds the attestation key: the secret that a relying party wrapped for
 * both with TPM2_MakeCredential, and what TPM2_ActivateCredential returned (TPM 2.0 Library, Part 1, section 24).
 * Both secrets may be a function of theirs that shows nothing else (make-credential.ts, activationProof).
 */
export type Activation = {
  /** The TPMT_PUBLIC and the Name that the credential was made for. */
  readonly endorsementKey: Uint8Array
  readonly attestationKeyName: Uint8Array
  readonly secret: Uint8Array
  readonly activated: Uint8Array
}

/** It was tried, and why there is nothing to compare. */
export type FailedActivation = { readonly failed: string }

export type SvsmInput = VtpmQuote & {
  readonly evidence: BindingEvidence
  /** 64 bytes, given to the SVSM with the request for its report. */
  readonly reportNonce: Uint8Array
  readonly manifest: Uint8Array
  readonly measurement: Uint8Array | 'any'
  /** TPMT_PUBLIC. */
  readonly attestationKey: Uint8Array
  /** Null if nothing ties the attestation key to the endorsement key, and the verdict is not good. */
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

/** For development machines: checks the quote alone. The verdict is never good, whatever the quote says. */
export async function verifyHostVtpm(input: VtpmQuote & { readonly ak: TpmKey }): Promise<VtpmVerdict> {
  const binding = fail('vtpm-binding', 'vtpm:host-untrusted: the host runs this TPM, and no hardware attests its key')
  return { ...verdict([binding, ...(await verifyQuote(input))]), kind: 'vtpm:host-untrusted' }
}

/** The steps that both bound kinds begin with, in order. */
export function bindingSteps(kind: VtpmKind, evidence: BindingEvidence, measurement: Uint8Array | 'any'): Check[] {
  const { report } = evidence
  const isMeasured = measurement !== 'any' && report !== null && equalConstantTime(report.measurement, measurement)
  return [
    check('vtpm-evidence', evidence.ok && report !== null, `${kind}: the SNP report is not good`),
    // Above VMPL 0 the guest itself can ask for a report with any REPORT_DATA.
    check('vtpm-vmpl', report?.vmpl === 0, `VMPL is ${report?.vmpl ?? 'unknown'}, not 0`, 'VMPL is 0'),
    measurement === 'any'
      ? notChecked('vtpm-measurement', "skipped by the caller ('any')", false)
      : check('vtpm-measurement', isMeasured, 'the launch measurement is not the expected one'),
  ]
}

/** Whether the key signs structures of its TPM alone, and is in the TPM of this endorsement key. */
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

/** The steps up to the first that is not good, then `not-checked`. When all are good, the quote is verified too. */
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
