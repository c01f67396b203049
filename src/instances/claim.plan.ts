// The claim that turns a waiting VM into an organization's instance, sealed to keys that exist only in that VM, and the
// document with which the VM states it. Pure except for randomness.

import nacl from 'tweetnacl'
import { sha256 } from '../attest/hash.ts'
import { fromBase64, toBase64, utf8 } from '../base/bytes.ts'
import { Fault } from '../base/fault.ts'
import type { RandomBytes } from '../base/ids.ts'
import { checkedJson } from '../contract/check.ts'
import { EgressPolicy } from '../contract/http/egress-policy.ts'
import { claimDocumentCharsMax } from '../contract/http/instance-attestation.ts'
import type { SealedClaim } from '../contract/vm/agent.ts'
import type { Claim, DrawnKey } from '../contract/vm/claim.ts'
import {
  ClaimDocument,
  type ClaimFields,
  claimDocument,
  claimFieldsOf,
  claimText,
} from '../contract/vm/claim-document.ts'
import type { Network } from '../contract/vm/network.ts'
import type { Instance } from '../store/directory/instance.table.ts'

export type ClaimInputs = {
  readonly instance: Instance
  readonly organization: string
  readonly inference: Omit<Claim['inference'], 'model'>
  readonly egress: Claim['egress']
}

/** Builds the claim. Its id is the instance's, so that repeating it is safe. */
export function claimOf({ instance, organization, inference, egress }: ClaimInputs): Claim {
  return {
    claimId: instance.id,
    organization,
    name: instance.name,
    hostname: instance.hostname,
    publicKey: instance.publicKey,
    inference: { ...inference, model: instance.inferenceModel },
    egress: { ...egress, ...policyOf(instance) },
  }
}

function policyOf({ egressPolicy }: Instance): Pick<Claim['egress'], 'policy'> {
  if (egressPolicy === null) return {}
  return { policy: checkedJson(EgressPolicy, utf8(egressPolicy), { what: 'egress policy', code: 'internal' }) }
}

/** Returns the text that a VM states after this claim with this network. `key`: the one that its guest generated. */
export function statedClaim(claim: Claim, network: Network, key: DrawnKey | null): string {
  return claimText(claimDocument(claim, network, key))
}

/**
 * Returns the fields of the claim that the VM's statement must have. Fault internal or TypeError if the text is not a
 * canonical claim document.
 */
export function statedFields(text: string): ClaimFields {
  if (text.length > claimDocumentCharsMax) throw new TypeError('claim document: too long')
  const document = checkedJson(ClaimDocument, utf8(text), { what: 'claim document', code: 'internal' })
  if (claimText(document) !== text) throw new TypeError('claim document: not in its canonical form')
  return claimFieldsOf(document, text => sha256(utf8(text)))
}

/**
 * Seals a claim with nacl box to the guest's X25519 key, using a one-time key pair. Fault channel.refused if the
 * guest's key is invalid.
 */
export function sealClaim(claim: Claim, boxKey: string, random: RandomBytes): SealedClaim {
  const guestKey = fromBase64(boxKey)
  if (guestKey?.length !== nacl.box.publicKeyLength)
    throw new Fault('channel.refused', 'the guest reported a malformed box key')
  const ephemeral = nacl.box.keyPair.fromSecretKey(random(nacl.box.secretKeyLength))
  const nonce = random(nacl.box.nonceLength)
  const box = nacl.box(utf8(JSON.stringify(claim)), nonce, guestKey, ephemeral.secretKey)
  ephemeral.secretKey.fill(0)
  return { ephemeralKey: toBase64(ephemeral.publicKey), nonce: toBase64(nonce), box: toBase64(box) }
}
