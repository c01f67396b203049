// A relying party's policy as JSON. Pure.

import { toHex } from '../../base/bytes.ts'
import type { Policy } from './policy.ts'
import { POLICY_FIELDS } from './schema.ts'

/**
 * Returns the JSON form, for JSON.stringify; parsePolicy restores the policy. Omits newer fields with value 'any', so
 * that older verifiers, which reject unknown fields, accept the policy.
 */
export function encodePolicy(policy: Policy): { readonly [field: string]: unknown } {
  const names = fieldNames.filter(name => !isLater(name) || policy[name] !== 'any')
  return Object.fromEntries(names.map(name => [name, jsonOf(policy[name])]))
}

/** Returns the optional fields that this policy sets, for callers that check only a few fields. */
export function laterFieldsIn(policy: Policy): string[] {
  return fieldNames.filter(name => isLater(name) && policy[name] !== 'any')
}

const fieldNames = Object.keys(POLICY_FIELDS) as (keyof Policy)[]

function isLater(name: keyof Policy): boolean {
  return 'whenMissing' in POLICY_FIELDS[name]
}

/** Converts a parsed value to its JSON form, for JSON.stringify. */
export function jsonOf(value: unknown): unknown {
  if (value instanceof Uint8Array) return toHex(value)
  if (typeof value === 'bigint') return `0x${value.toString(16)}`
  if (Array.isArray(value)) return value.map(jsonOf)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, jsonOf(inner)]))
}
