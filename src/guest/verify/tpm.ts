// TPM measurements: a fresh quote of this VM's TPM over our nonce, by a key that our credential ties to the TPM.
// Pure: the caller provides the agent's replies.
//
// A TPM that the host runs proves nothing: its line always fails. `isHostsAlone`: no other check failed.

import type { TrustedRoot } from '../../attest/amd/roots.ts'
import { parsed } from '../../attest/malformed.ts'
import type { Policy } from '../../attest/policy/policy.ts'
import { decodeReceipt } from '../../attest/receipt/receipt.ts'
import {
  type ActivateCredential,
  decodeTpmEvidence,
  type TpmEvidenceQuestion,
  verifyTpmEvidence,
} from '../../attest/tpm/evidence.ts'
import { activationProof, credentialSecretBytes, makeCredential } from '../../attest/tpm/make-credential.ts'
import type { BindingEvidence, VtpmKind } from '../../attest/tpm/vtpm.ts'
import { type Check, fail, notChecked, verdict } from '../../attest/verdict.ts'
import { prepareChain } from '../../attest/verify/chain-prepare.ts'
import { verifyEvidence } from '../../attest/verify/evidence.ts'
import { fromBase64Url } from '../../base/bytes.ts'
import { messageOf } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { TpmRequest } from '../tpm/request.codec.ts'
import type { TpmReply } from '../tpm/socket.ts'
import { type Line, lineOf } from './line.ts'

export type TpmQuestion = {
  /** The agent's reply, or why there is none. */
  readonly reply: TpmReply | string
  readonly nonce: Uint8Array
  readonly measured: Exclude<TpmEvidenceQuestion['measured'], 'any'>
  /** Text of the claim's receipt, whose certificates also cover an SVSM's report; null means none yet. */
  readonly receipt: string | null
  /** The measurement of this VM that line 1 verified, or null. */
  readonly measurement: Uint8Array | null
  readonly nowMs: number
  readonly roots: readonly TrustedRoot[]
  readonly policy: Policy
  /** Sends the request to the agent; returns a string with the reason if there is no reply. */
  readonly ask: (request: TpmRequest) => Promise<TpmReply | string>
  readonly random: RandomBytes
}

type TpmAnswer = {
  readonly line: Line
  readonly kind: VtpmKind | null
  /** True if the only fault is that the host runs this TPM. */
  readonly isHostsAlone: boolean
}

const name = 'TPM measurements'

export async function judgeTpm(question: TpmQuestion): Promise<TpmAnswer> {
  const { reply, nonce, measured } = question
  if (typeof reply === 'string') return wordless(notChecked('tpm', reply, true))
  if (reply.kind === 'none') return wordless(notChecked('tpm', noTpm, true))
  if (reply.kind !== 'evidence' && reply.kind !== 'failed')
    return wordless(fail('tpm', 'the answer of the agent is invalid'))
  if (reply.kind === 'failed') return wordless(fail('tpm', `this VM has a TPM, but it gives no quote: ${reply.reason}`))
  const evidence = parsed(() => decodeTpmEvidence(fromBase64Url(reply.evidence) ?? new Uint8Array(0)))
  if (!evidence.ok) return wordless(fail('tpm-evidence', evidence.reason))
  const binding = async (report: Uint8Array) => ({
    evidence: await bindingOf(report, question),
    measurement: question.measurement ?? ('any' as const),
  })
  const { kind, checks } = await verifyTpmEvidence(evidence.value, {
    nonce,
    measured,
    binding,
    activate: activationBy(question),
  })
  const line = lineOf(name, checks, `${kind}: ${checkedWords}`)
  if (kind !== 'vtpm:host-untrusted') return { line, kind, isHostsAlone: false }
  const isHostsAlone = verdict(checks.filter(check => check.name !== 'vtpm-binding')).ok
  const rest = isHostsAlone ? checkedWords : `it is invalid (${wrongIn(checks)})`
  return { line: { ...line, reason: `${kind}: ${hostsWords}; ${rest}` }, kind, isHostsAlone }
}

const noTpm =
  'this VM has no TPM. On snp it needs an image that boots an SVSM; on a development machine the operator installs swtpm and creates the VM again'
const hostsWords = 'the host runs this TPM and controls its answers, so it proves nothing'
const checkedWords = 'quote signature, its key, nonce, PCR values, log and measured command line are good'

function wordless(check: Check): TpmAnswer {
  return { line: lineOf(name, [check], ''), kind: null, isHostsAlone: false }
}

function wrongIn(checks: readonly Check[]): string {
  const wrong = checks.filter(check => check.name !== 'vtpm-binding' && check.outcome !== 'pass')
  return wrong.map(check => `${check.name}: ${check.reason}`).join('; ')
}

/** Sends our secret, which only the TPM with both keys can return. */
function activationBy({ ask, random }: Pick<TpmQuestion, 'ask' | 'random'>): ActivateCredential {
  return async (bound, attestationKeyName) => {
    const endorsementKey = bound ?? (await endorsementKeyOf(ask))
    if (typeof endorsementKey === 'string') return { failed: endorsementKey }
    const secret = random(credentialSecretBytes)
    try {
      const seed = random(credentialSecretBytes)
      const credential = await makeCredential({ endorsementKey, name: attestationKeyName, secret, seed })
      const reply = await ask({ kind: 'activate', credential })
      if (typeof reply === 'string' || reply.kind !== 'activated') return { failed: refusalIn(reply) }
      const activated = fromBase64Url(reply.proof) ?? new Uint8Array(0)
      return { endorsementKey, attestationKeyName, secret: activationProof(secret), activated }
    } catch (error) {
      return { failed: messageOf(error) }
    }
  }
}

/** For a TPM that no SVSM attests. */
async function endorsementKeyOf(ask: TpmQuestion['ask']): Promise<Uint8Array | string> {
  const reply = await ask({ kind: 'endorsement-key' })
  if (typeof reply === 'string' || reply.kind !== 'endorsement-key') return refusalIn(reply)
  return fromBase64Url(reply.area) ?? 'the endorsement key is not in base64url'
}

function refusalIn(reply: TpmReply | string): string {
  if (typeof reply === 'string') return reply
  return reply.kind === 'failed' ? reply.reason : 'the answer of the agent is invalid'
}

async function bindingOf(
  report: Uint8Array,
  { receipt, nowMs, roots, policy }: Pick<TpmQuestion, 'receipt' | 'nowMs' | 'roots' | 'policy'>,
): Promise<BindingEvidence> {
  const read = parsed(() => decodeReceipt(receipt ?? 'null'))
  if (!read.ok)
    return { ...verdict([fail('certificates', 'the claim has no receipt to take them from')]), report: null }
  const { vek, chain, crl } = read.value.evidence
  const prepared = await prepareChain({ vek, chain, crl, roots })
  // The guest's own reports may be of a lower privilege; the SVSM's is of the highest (verifySvsmVtpm).
  const ofSvsm: Policy = { ...policy, vmpls: [0], reportData: 'any' }
  return verifyEvidence({ report, prepared, asOf: nowMs, requireCrl: true, policy: ofSvsm })
}
