// The allowlist that a relying party expects a gateway to have. Pure; throws Malformed.

import { sha256 } from '../attest/hash.ts'
import { Malformed } from '../attest/malformed.ts'
import { messageOf } from '../base/fault.ts'
import { parseJson } from '../base/json.ts'
import { Allowlist } from '../contract/allowlist.ts'
import { shapeOf } from '../contract/shape.ts'

export type ExpectedAllowlist = {
  /** SHA-256 of the exact file. Statements and HOST_DATA carry it. */
  readonly digest: Uint8Array
  readonly allowlist: Allowlist
}

/** Takes the exact bytes of the file. */
export function readAllowlist(bytes: Uint8Array): ExpectedAllowlist {
  let document: unknown
  try {
    document = parseJson(bytes, { depthMax: 8 })
  } catch (error) {
    throw new Malformed(`allowlist: ${messageOf(error)}`, { cause: error })
  }
  const shape = shapeOf(Allowlist, document)
  if (!shape.ok) throw new Malformed(`allowlist: ${shape.problem}`)
  return { digest: sha256(bytes), allowlist: shape.value }
}
