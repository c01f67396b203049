// Judges a claimed VM's evidence before it is trusted: every expectation is exact. Pure.
//
// Expectations come from the create request, the response to the claim and the launch in the ledger, never from the
// receipt. The statement's age is ignored: the nonce was generated after the claim, and a guest's clock proves nothing.

import { nativeVerifiers, verifyReceipt } from '../attest/receipt/verifiers.ts'
import { exactly } from '../attest/receipt/verify.ts'
import { messageOf } from '../base/fault.ts'
import type { Instance } from '../store/directory/instance.table.ts'
import type { VmEvidence } from '../vm/engine.ts'
import {
  failedChecks,
  type HostTrust,
  launchPolicy,
  readLaunch,
  strangeOperatorKey,
} from '../vm/evidence/launch-policy.plan.ts'
import { statedFields } from './claim.plan.ts'
import { sshKeyDigest } from './public-key.codec.ts'

/** Returns the trust for VMs claimed now, or created on another platform. Faults: attest.unavailable, internal. */
export type AttestationTrustOf = (platform?: Instance['platform'] & {}) => Promise<HostTrust>

/** The owner according to the claim. */
export type ClaimedAs = {
  readonly organization: string
  readonly name: string
  readonly hostname: string
  /** The customer's key: `type base64 …`. */
  readonly publicKey: string
  /** The host key with which the guest answered the claim: `ssh-ed25519 AAAA…`. */
  readonly sshHostKey: string
  /** Canonical document of the claim as sent, and the network in force (contract/vm/claim-document.ts). */
  readonly claim: string
}

export type EvidenceQuestion = {
  readonly nonce: Uint8Array
  readonly asOf: number
  readonly trust: HostTrust
  readonly claimed: ClaimedAs
}

/** `failed`: each check that did not pass, with its reason. */
export type EvidenceJudgement = { readonly ok: true } | { readonly ok: false; readonly failed: readonly string[] }

/** Judges evidence. Never throws: unreadable evidence fails. */
export async function judgeEvidence(evidence: VmEvidence, question: EvidenceQuestion): Promise<EvidenceJudgement> {
  const { trust, claimed, nonce, asOf } = question
  try {
    const launch = readLaunch(evidence.launch)
    const { operatorKey } = evidence
    const stranger = strangeOperatorKey(trust, operatorKey)
    if (stranger !== null) return { ok: false, failed: [stranger] }
    const verdict = await verifyReceipt(evidence.receipt, {
      kind: 'claim',
      nonce,
      asOf,
      ageMsMax: 'any',
      roots: trust.roots,
      requireCrl: true,
      policy: launchPolicy({ document: evidence.launch, workload: null, operatorKey }),
      expected: {
        ...exactly({
          imageName: launch.image.name,
          operatorKey,
          organization: claimed.organization,
          name: claimed.name,
          hostname: claimed.hostname,
          sshHostKeyDigest: sshKeyDigest(claimed.sshHostKey),
          publicKeyDigest: sshKeyDigest(claimed.publicKey),
          ...statedFields(claimed.claim),
        }),
        // Orders of the owner, which no host sees, change them.
        loginKeys: 'any',
        // Orders of the owner change it, and the host has no say in it.
        egressPolicy: 'any',
        secrets: 'any',
        published: 'any',
      },
      tpm: 'any',
      verifiers: nativeVerifiers,
    })
    const failed = failedChecks(verdict, trust)
    return verdict.ok && failed.length === 0 ? { ok: true } : { ok: false, failed }
  } catch (error) {
    return { ok: false, failed: [messageOf(error)] }
  }
}
