// A relying party's policy for SNP reports, from JSON. Pure. schema.ts has its fields, appraise.ts the checks,
// encode.ts the way back.

import { utf8 } from '../../base/bytes.ts'
import { parsedJson } from '../encoding/json.ts'
import type { Valued } from './kinds.ts'
import { POLICY_FIELDS, policyKind } from './schema.ts'

export type Policy = Valued<typeof policyKind>

/**
 * The command line's default: no debug, no migration, VMPL 0, and nothing that firmware of these versions never writes:
 * unknown bits of the guest policy and key_info, reserved bytes, TCBs out of order. All else is 'any', measurement
 * included.
 */
export function strictPolicy(): Policy {
  return parsePolicy(Object.fromEntries(Object.entries(POLICY_FIELDS).map(([name, { strict }]) => [name, strict])))
}

/**
 * Takes the text, in which no name may stand twice, or what a strict reader made of it: JSON.parse silently takes the
 * last of two. Throws Malformed naming the field, as in `policy.guestPolicy.debug: …`.
 */
export function parsePolicy(json: unknown): Policy {
  const text = typeof json === 'string' ? utf8(json) : json
  return policyKind.parse(text instanceof Uint8Array ? parsedJson('policy', text) : json, 'policy')
}
