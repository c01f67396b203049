// A relying party's policy as JSON. Pure.

import { toHex } from '../../base/bytes.ts'
import type { Policy } from './policy.ts'
import { POLICY_FIELDS } from './schema.ts'

/**
 * The JSON form, for JSON.stringify. parsePolicy gives the same policy back. Fields that came later are left out where
 * they say 'any', so that verifiers from before them, which refuse what they do not know, take the policy too.
 */
export function encodePolicy(policy: Policy): { readonly [field: string]: unknown } {
  const names = fieldNames.filter(name => !isLater(name) || policy[name] !== 'any')
  return Object.fromEntries(names.map(name => [name, jsonOf(policy[name])]))
}

/** Optional fields that this policy sets, for callers that check only a few fields. */
export function laterFieldsIn(policy: Policy): string[] {
  return fieldNames.filter(name => isLater(name) && policy[name] !== 'any')
}

const fieldNames = Object.keys(POLICY_FIELDS) as (keyof Policy)[]

function isLater(name: keyof Policy): boolean {
  return 'whenMissing' in POLICY_FIELDS[name]
}

/** A parsed value in its JSON form, for JSON.stringify. */
export function jsonOf(value: unknown): unknown {
  if (value instanceof Uint8Array) return toHex(value)
  if (typeof value === 'bigint') return `0x${value.toString(16)}`
  if (Array.isArray(value)) return value.map(jsonOf)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, jsonOf(inner)]))
}
