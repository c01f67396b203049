// The allowlist that a relying party holds a gateway to. Pure; throws Malformed.

import { Value } from '@sinclair/typebox/value'
import { sha256 } from '../attest/hash.ts'
import { Malformed } from '../attest/malformed.ts'
import { messageOf } from '../base/fault.ts'
import { parseJson } from '../base/json.ts'
import { Allowlist } from '../contract/allowlist.ts'

export type ReadAllowlist = {
  /** SHA-256 of the exact file, as statements and HOST_DATA name it. */
  readonly digest: Uint8Array
  readonly allowlist: Allowlist
}

export function readAllowlist(bytes: Uint8Array): ReadAllowlist {
  let document: unknown
  try {
    document = parseJson(bytes, { depthMax: 8 })
  } catch (error) {
    throw new Malformed(`allowlist: ${messageOf(error)}`, { cause: error })
  }
  if (Value.Check(Allowlist, document)) return { digest: sha256(bytes), allowlist: document }
  const [first] = Value.Errors(Allowlist, document)
  throw new Malformed(`allowlist: ${first?.path ?? ''}: ${first?.message ?? 'not as its schema says'}`)
}
