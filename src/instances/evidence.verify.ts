// Judges what a claimed VM proves of itself before it is trusted with anything: every expectation is exact. Pure.
//
// What it is to be comes from the create request, the claim's answer and the launch that its host has on record; nothing is taken from the
// receipt itself. How old the statement says it is does not count: the nonce was drawn after the claim, and a guest's clock proves nothing.

import type { TrustedRoot } from '../attest/amd/roots.ts'
import { sha256 } from '../attest/hash.ts'
import { type Policy, strictPolicy } from '../attest/policy/policy.ts'
import type { BitRule } from '../attest/policy/schema.ts'
import { nativeVerifiers } from '../attest/receipt/hybrid-verify.ts'
import { verifyReceipt } from '../attest/receipt/verify.ts'
import { hasBit, POLICY_BITS, type PolicyBit } from '../attest/report/bits.ts'
import { equalConstantTime, fromHex, utf8 } from '../base/bytes.ts'
import { messageOf } from '../base/fault.ts'
import { LaunchDocument, launchText } from '../contract/launch.ts'
import { checkedJson } from '../contract/shape.ts'
import type { Instance } from '../store/directory/instance.table.ts'
import type { VmEvidence } from '../vm/engine.ts'
import { sshKeyDigest } from './public-key.codec.ts'

/** Whom this host believes. */
export type AttestationTrust = {
  /** AMD's on snp; elsewhere the simulated root of this host, and no other. */
  readonly roots: readonly TrustedRoot[]
  readonly simulated: boolean
  /** SHA-384 of every ID key that the operator has had on this host: a VM keeps the one that its launch was signed with. */
  readonly operatorKeys: readonly Uint8Array[]
}

/** Of VMs that are claimed now, or of one that was made on another platform. Faults: attest.unavailable, internal. */
export type AttestationTrustOf = (platform?: Instance['platform'] & {}) => Promise<AttestationTrust>

/** Whose VM it is to be. */
export type ClaimedAs = {
  readonly organization: string
  readonly name: string
  readonly hostname: string
  /** The customer's key: `type base64 …`. */
  readonly publicKey: string
  /** The host key that the guest answered the claim with: `ssh-ed25519 AAAA…`. */
  readonly sshHostKey: string
}

export type EvidenceQuestion = {
  readonly nonce: Uint8Array
  readonly asOf: number
  readonly trust: AttestationTrust
  readonly claimed: ClaimedAs
}

/** `failed`: each check that did not pass, with its reason. */
export type EvidenceJudgement = { readonly ok: true } | { readonly ok: false; readonly failed: readonly string[] }

/** Never throws: what cannot be read is not good. */
export async function judgeEvidence(evidence: VmEvidence, question: EvidenceQuestion): Promise<EvidenceJudgement> {
  const { trust, claimed, nonce, asOf } = question
  try {
    const launch = readLaunch(evidence.launch)
    const { operatorKey } = evidence
    if (!trust.operatorKeys.some(one => equalConstantTime(one, operatorKey))) {
      return { ok: false, failed: ['operator-key: the launch was signed with a key that this host has never had'] }
    }
    const { ok, checks, simulated } = await verifyReceipt(evidence.receipt, {
      kind: 'claim',
      nonce,
      asOf,
      ageMsMax: 'any',
      roots: trust.roots,
      requireCrl: true,
      policy: launchPolicy(launch, { hostData: sha256(utf8(evidence.launch)), operatorKey }),
      expected: {
        imageName: { equals: launch.image.name },
        operatorKey: { equals: operatorKey },
        organization: { equals: claimed.organization },
        name: { equals: claimed.name },
        hostname: { equals: claimed.hostname },
        sshHostKeyDigest: { equals: sshKeyDigest(claimed.sshHostKey) },
        publicKeyDigest: { equals: sshKeyDigest(claimed.publicKey) },
      },
      tpm: 'any',
      verifiers: nativeVerifiers,
    })
    const failed = checks
      .filter(({ outcome, required }) => outcome === 'fail' || (required && outcome !== 'pass'))
      .map(({ name, reason }) => `${name}: ${reason}`)
    // The roots decide it already; said twice, because nothing else tells hardware from a simulation.
    if (simulated !== trust.simulated) failed.push(`simulated: the evidence is ${simulated ? '' : 'not '}simulated`)
    return ok && failed.length === 0 ? { ok: true } : { ok: false, failed }
  } catch (error) {
    return { ok: false, failed: [messageOf(error)] }
  }
}

/** Exactly the canonical text: HOST_DATA is its digest. Throws a Fault naming the first wrong field. */
function readLaunch(text: string): LaunchDocument {
  const document = checkedJson(LaunchDocument, utf8(text), { what: 'launch document', code: 'internal' })
  if (launchText(document) !== text) throw new TypeError('launch document: not in its canonical form')
  return document
}

/** No debug and no migration whatever the document says; all other bits of the guest policy as it says. */
function launchPolicy(
  { measurement, policy }: LaunchDocument,
  { hostData, operatorKey }: { readonly hostData: Uint8Array; readonly operatorKey: Uint8Array },
): Policy {
  const strict = strictPolicy()
  const wanted = BigInt(policy)
  const bits = Object.entries(POLICY_BITS).map(([name, bit]): [string, BitRule] => {
    if (name === 'debug' || name === 'migrate') return [name, 'forbidden']
    return [name, hasBit(wanted, bit) ? 'required' : 'forbidden']
  })
  return {
    ...strict,
    signers: ['vcek'],
    guestPolicy: { ...(Object.fromEntries(bits) as Record<PolicyBit, BitRule>), unknown: 'forbidden' },
    measurements: [fromHex(measurement) ?? new Uint8Array(0)],
    hostData,
    idKeyDigest: operatorKey,
  }
}
