// The record of the claim in force, for a restarted agent. Written last: then everything else is in place. Pure.

import { createHash } from 'node:crypto'
import { fromBase64 } from '../base/bytes.ts'
import { Closed } from '../contract/forms.ts'
import { type Static, Type } from '../contract/type.ts'
import type { Claim, DrawnKey } from '../contract/vm/claim.ts'
import { ClaimDocument, claimDocument, claimText } from '../contract/vm/claim-document.ts'
import type { Network } from '../contract/vm/network.ts'

const Sha256 = Type.String({ pattern: '^[0-9a-f]{64}$' })

export const ClaimRecord = Closed({
  claimId: Type.String({ minLength: 1, maxLength: 64 }),
  /** Hash of the document's canonical text; it distinguishes claims with the same id. */
  sha256: Sha256,
  /** The whole claim and the network in force, as evidence states them. */
  document: ClaimDocument,
  organization: Type.String({ minLength: 1, maxLength: 63 }),
  name: Type.String({ pattern: '^[a-z0-9]{8}$' }),
  hostname: Type.String({ minLength: 1, maxLength: 253 }),
  /** SHA-256 of the guest's host key and the customer's key as wire blobs (RFC 4253 section 6.6; ssh-keygen -l). */
  sshHostKeyDigest: Sha256,
  publicKeyDigest: Sha256,
})
export type ClaimRecord = Static<typeof ClaimRecord>

/** The guest's own facts. */
type GuestFacts = {
  /** `ssh-ed25519 AAAA…`. */
  readonly sshHostKey: string
  /** Null if no network is in force. */
  readonly network: Network | null
  /** Null if the claim requests no gateway key. */
  readonly key: DrawnKey | null
}

/** Call it only for a claim without a problem. */
export function recordOf(claim: Claim, { sshHostKey, network, key }: GuestFacts): ClaimRecord {
  const document = claimDocument(claim, network, key)
  return {
    claimId: claim.claimId,
    sha256: sha256(claimText(document)),
    document,
    organization: claim.organization,
    name: claim.name,
    hostname: claim.hostname,
    sshHostKeyDigest: keyDigest(sshHostKey),
    publicKeyDigest: keyDigest(claim.publicKey),
  }
}

/** SHA-256 of the wire blob of an OpenSSH public key line without options, in hexadecimal. */
export function keyDigest(line: string): string {
  const blob = fromBase64(line.split(' ')[1] ?? '')
  if (blob === null) throw new Error('invariant broken: the line was checked and holds a key')
  return sha256(blob)
}

function sha256(content: string | Uint8Array): string {
  return createHash('sha256').update(content).digest('hex')
}
