// The claim that turns a waiting VM into an organization's instance, sealed to keys that exist only in that VM. Pure but for its randomness.

import nacl from 'tweetnacl'
import { fromBase64, toBase64, utf8 } from '../base/bytes.ts'
import { Fault } from '../base/fault.ts'
import type { RandomBytes } from '../base/ids.ts'
import type { Claim, SealedClaim } from '../contract/agent.ts'
import type { Instance } from '../store/directory/instance.table.ts'

export type ClaimInputs = {
  readonly instance: Instance
  readonly organization: string
  readonly inference: Omit<Claim['inference'], 'model'>
}

/** The claim's id is the instance's, so that repeating it is harmless. */
export function claimOf({ instance, organization, inference }: ClaimInputs): Claim {
  return {
    claimId: instance.id,
    organization,
    name: instance.name,
    hostname: instance.hostname,
    publicKey: instance.publicKey,
    inference: { ...inference, model: instance.inferenceModel },
  }
}

/** nacl box to the guest's X25519 key, from a key pair used once. Fault channel.refused when the guest's key is no key. */
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
