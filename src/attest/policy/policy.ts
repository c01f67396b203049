// Parses a relying party's policy for SNP reports from JSON. Pure. schema.ts defines its fields, appraise.ts the
// checks, and encode.ts writes it.

import { utf8 } from '../../base/bytes.ts'
import { parsedJson, withoutComments } from '../encoding/json.ts'
import type { Valued } from './kinds.ts'
import { POLICY_FIELDS, policyKind } from './schema.ts'

export type Policy = Valued<typeof policyKind>

/**
 * Returns the command line's default: no debug, no migration, VMPL 0, and nothing that firmware of these versions never
 * writes (unknown bits of the guest policy and key_info, reserved bytes, TCBs out of order). All other fields are
 * 'any', including the measurement.
 */
export function strictPolicy(): Policy {
  return parsePolicy(Object.fromEntries(Object.entries(POLICY_FIELDS).map(([name, { strict }]) => [name, strict])))
}

/**
 * Parses a policy given as text, whose lines that begin with // are comments, or as the result of a strict reader. A
 * duplicate name in the text is an error, because JSON.parse silently keeps the last one. Throws Malformed that names
 * the field, as in `policy.guestPolicy.debug: …`.
 */
export function parsePolicy(json: unknown): Policy {
  const text = typeof json === 'string' ? utf8(withoutComments(json)) : json
  return policyKind.parse(text instanceof Uint8Array ? parsedJson('policy', text) : json, 'policy')
}
