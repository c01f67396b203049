// Snapshots of an instance's files: what the VM signs about a ciphertext that it hands to its host. Pure.
//
// The host keeps the ciphertext and is not trusted. The signature is by the VM's SSH host key, which evidence proves.
// Its namespace keeps it apart from every other use of that key (PROTOCOL.sshsig of OpenSSH).

import { canonicalJson } from '../base/canonical-json.ts'
import { Closed, OrNull, Sha256 } from './forms.ts'
import { type Static, Type } from './type.ts'

export const snapshotFormat = 'strongroom/snapshot/v1'
export const snapshotNamespace = 'strongroom-snapshot'

/** Numbers from 1, one for each snapshot that a VM finished. */
export const SnapshotNumber = Type.Integer({ minimum: 1, maximum: 2_147_483_647 })

export const SnapshotHeader = Closed({
  format: Type.Literal(snapshotFormat),
  hostname: Type.String({ minLength: 1, maxLength: 253 }),
  number: SnapshotNumber,
  /** SHA-256 of the ciphertext of the previous number; null for the first. */
  previous: OrNull(Sha256),
  /** Verity root hash of the measured root, which the files of private-root belong to; null if there is none. */
  rootHash: OrNull(Sha256),
  /**
   * SHA-256 of the header of the ciphertext (age-encryption.org/v1), its last line included. Only the VM and the owners
   * of its recipients know the file key in it, so it authenticates all that follows.
   */
  ageHeader: Sha256,
  /** SHA-256 of the ciphertext. */
  sha256: Sha256,
})
export type SnapshotHeader = Static<typeof SnapshotHeader>

/** The text that is signed. */
export function snapshotText(header: SnapshotHeader): string {
  return canonicalJson(header)
}

export const SignedSnapshot = Closed({
  /** Text of a SnapshotHeader. */
  header: Type.String({ maxLength: 2_048 }),
  /** Armored signature over exactly this text. */
  signature: Type.String({ maxLength: 2_048 }),
})
export type SignedSnapshot = Static<typeof SignedSnapshot>
