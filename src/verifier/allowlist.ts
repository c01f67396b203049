// The allowlist that a relying party expects a gateway to have. Pure; throws Malformed.

import { sha256 } from '../attest/hash.ts'
import { Malformed } from '../attest/malformed.ts'
import { type Allowlist, parseAllowlist } from '../contract/vm/allowlist.ts'

export type ExpectedAllowlist = {
  /** SHA-256 of the exact file, as in statements and HOST_DATA. */
  readonly digest: Uint8Array
  readonly allowlist: Allowlist
}

/** Reads an allowlist from the exact bytes of the file. */
export function readAllowlist(bytes: Uint8Array): ExpectedAllowlist {
  const shape = parseAllowlist(bytes)
  if (!shape.ok) throw new Malformed(`allowlist: ${shape.problem}`)
  return { digest: sha256(bytes), allowlist: shape.value }
}
