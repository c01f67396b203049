// A guest's TPM evidence: the quote, its key, the PCR values and the log, and whether they agree. Pure.
//
// Deterministic CBOR, in `evidence.tpm` of a receipt and in the response to the VM's owner. vtpm.ts explains how
// trustworthy each kind of TPM is.

import { type CborValue, decodeCbor, encodeCbor } from '../encoding/cbor.ts'
import { sha512 } from '../hash.ts'
import { Malformed, parsed, wellFormed } from '../malformed.ts'
import { type Check, check, fail, verdict } from '../verdict.ts'
import { BANKS } from './algorithm.ts'
import { verifyEventLog } from './event-log-verify.ts'
import { decodePublicArea } from './public-area.ts'
import {
  type Activation,
  attestationKeyStep,
  type BindingEvidence,
  type FailedActivation,
  type VtpmKind,
  type VtpmVerdict,
  verifyHostVtpm,
  verifySvsmVtpm,
} from './vtpm.ts'

const tpmEvidenceFormat = 'strongroom/tpm/v1'
const TPM_EVIDENCE_BYTES_MAX = 16 * 1024
/** The only bank of values and log. */
const tpmEvidenceBank = 'SHA-256'

/** PCRs that firmware and kernel do not extend before the guest's agent extends them, once per boot. */
export const GUEST_PCRS = { commandLine: 8, image: 9 } as const

export type TpmEvidence = {
  /** TPMT_PUBLIC of the key that signed the quote. */
  readonly key: Uint8Array
  /** TPMS_ATTEST. */
  readonly quote: Uint8Array
  /** TPMT_SIGNATURE. */
  readonly signature: Uint8Array
  readonly pcrs: ReadonlyMap<number, Uint8Array>
  /** TCG2 event log of the agent's own extensions. */
  readonly log: Uint8Array
  /** The SVSM's report about its TPM, over `svsmNonceOf`; null if there is no SVSM and the host runs the TPM. */
  readonly svsm: { readonly report: Uint8Array; readonly manifest: Uint8Array } | null
}

export function encodeTpmEvidence(evidence: TpmEvidence): Uint8Array {
  const { key, quote, signature, pcrs, log, svsm } = evidence
  const values = [...pcrs].map(([pcr, value]): [string, CborValue] => [`${pcr}`, value])
  return encodeCbor(
    new Map<string, CborValue>([
      ['format', tpmEvidenceFormat],
      ['key', key],
      ['quote', quote],
      ['signature', signature],
      ['pcrs', new Map(values)],
      ['log', log],
      ['svsm', svsm === null ? null : new Map(Object.entries(svsm))],
    ]),
  )
}

/** Decodes evidence. Throws Malformed. */
export function decodeTpmEvidence(bytes: Uint8Array): TpmEvidence {
  const map = mapOf(decodeCbor(bytes, { sizeBytesMax: TPM_EVIDENCE_BYTES_MAX, depthMax: 3 }), [
    ...['format', 'key', 'quote', 'signature', 'pcrs', 'log', 'svsm'],
  ])
  wellFormed(map.get('format') === tpmEvidenceFormat, 'tpm evidence: format')
  const values = map.get('pcrs')
  wellFormed(values instanceof Map && values.size > 0 && values.size <= 24, 'tpm evidence: pcrs')
  const pcrs = [...values].map(([name, value]): [number, Uint8Array] => {
    wellFormed(/^(0|[1-9]|1[0-9]|2[0-3])$/.test(String(name)), 'tpm evidence: name of a PCR')
    wellFormed(
      value instanceof Uint8Array && value.length === BANKS[tpmEvidenceBank].sizeBytes,
      'tpm evidence: value of a PCR',
    )
    return [Number(name), value]
  })
  const given = map.get('svsm') ?? null
  const svsm = given === null ? null : mapOf(given, ['report', 'manifest'])
  return {
    key: bytesIn(map, 'key'),
    quote: bytesIn(map, 'quote'),
    signature: bytesIn(map, 'signature'),
    pcrs: new Map(pcrs),
    log: bytesIn(map, 'log'),
    svsm: svsm === null ? null : { report: bytesIn(svsm, 'report'), manifest: bytesIn(svsm, 'manifest') },
  }
}

/** Returns the 64 bytes that the SVSM's report covers, for a quote over `nonce`. */
export function svsmNonceOf(nonce: Uint8Array): Uint8Array {
  return sha512(nonce)
}

export type TpmEvidenceQuestion = {
  /** Expected extraData of the quote. */
  readonly nonce: Uint8Array
  /** Measurements that the log must contain in these PCRs, each extended once; 'any' skips the check. */
  readonly measured: 'any' | { readonly commandLine: Uint8Array; readonly image: Uint8Array }
  /** Verifies the SVSM's report, and gives the measurement that it must have. Called only if there is such a report. */
  readonly binding: (report: Uint8Array) => Promise<{ evidence: BindingEvidence; measurement: Uint8Array | 'any' }>
  /**
   * Makes the TPM activate a credential for its endorsement key and the key of this Name. A null endorsement key means
   * the one that the TPM itself names, which no SVSM does. 'offline': the TPM is unreachable, as for evidence in a
   * receipt; the check is skipped, and the verdict is not good.
   */
  readonly activate: 'offline' | ActivateCredential
}

export type ActivateCredential = (
  endorsementKey: Uint8Array | null,
  attestationKeyName: Uint8Array,
) => Promise<Activation | FailedActivation>

/** Returns the verdict for the kind of TPM in the evidence. Never throws. */
export async function verifyTpmEvidence(
  evidence: TpmEvidence,
  { nonce, measured, binding, activate }: TpmEvidenceQuestion,
): Promise<VtpmVerdict> {
  const { key, quote, signature, svsm, log } = evidence
  const asked = { quote, signature, nonce, pcrs: { [tpmEvidenceBank]: evidence.pcrs } }
  const area = parsed(() => decodePublicArea(key))
  const activation = activate === 'offline' || !area.ok ? null : await activate(svsm?.manifest ?? null, area.value.name)
  const own: Check[] = [
    verifyEventLog({ log, bank: tpmEvidenceBank, pcrs: asked.pcrs, answersFor: Object.values(GUEST_PCRS) }),
    ...(measured === 'any' ? [] : [measuredCheck(evidence, measured)]),
  ]
  if (svsm !== null) {
    const bound = await binding(svsm.report)
    const found = await verifySvsmVtpm({
      ...asked,
      ...bound,
      reportNonce: svsmNonceOf(nonce),
      manifest: svsm.manifest,
      attestationKey: key,
      activation,
    })
    return joined(found.kind, [...found.checks, ...own])
  }
  const name = 'vtpm-attestation-key'
  if (!area.ok) return joined('vtpm:host-untrusted', [fail(name, area.reason)])
  const found = await verifyHostVtpm({ ...asked, ak: area.value.key })
  const named = activation !== null && 'endorsementKey' in activation ? activation.endorsementKey : new Uint8Array(0)
  const tied = attestationKeyStep(area.value, { activation, endorsementKey: named })
  return joined(found.kind, [...found.checks, tied, ...own])
}

function joined(kind: VtpmKind, checks: readonly Check[]): VtpmVerdict {
  return { ...verdict(checks), kind }
}

/** Checks the measurements themselves, because a log could replay and yet contain another command line. */
function measuredCheck({ pcrs }: TpmEvidence, measured: { commandLine: Uint8Array; image: Uint8Array }): Check {
  const { hash, sizeBytes } = BANKS[tpmEvidenceBank]
  const once = (data: Uint8Array) => {
    const value = new Uint8Array(2 * sizeBytes)
    value.set(hash(data), sizeBytes)
    return hash(value)
  }
  const wrong = (Object.keys(GUEST_PCRS) as (keyof typeof GUEST_PCRS)[]).filter(name => {
    const value = pcrs.get(GUEST_PCRS[name])
    return value === undefined || !once(measured[name]).every((byte, at) => byte === value[at])
  })
  const words = wrong.map(name => `PCR ${GUEST_PCRS[name]} is not that of this VM's ${WORDS[name]}`)
  return check('tpm-measured', wrong.length === 0, words.join(', '), 'command line and image are those of this VM')
}

const WORDS = { commandLine: 'kernel command line', image: 'image' } as const

function mapOf(value: CborValue | undefined, names: readonly string[]): ReadonlyMap<string, CborValue> {
  wellFormed(value instanceof Map && value.size === names.length, 'tpm evidence: fields')
  for (const name of names) wellFormed(value.has(name), `tpm evidence: no ${name}`)
  return value
}

function bytesIn(map: ReadonlyMap<string, CborValue>, name: string): Uint8Array {
  const value = map.get(name)
  if (!(value instanceof Uint8Array)) throw new Malformed(`tpm evidence: ${name}`)
  return value
}
