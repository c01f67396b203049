// The command line's default policy for TDX quotes, and a policy as JSON. Pure.

import { jsonOf } from '../policy/encode.ts'
import { parseTdxPolicy, TDX_POLICY_FIELDS, type TdxPolicy } from './policy.ts'

/**
 * No debug, profiling or migration, no unknown attribute, no service TD, page faults that the guest sees, and a TCB
 * that is up to date. All else is 'any', measurements included.
 */
export function strictTdxPolicy(): TdxPolicy {
  return parseTdxPolicy(
    Object.fromEntries(Object.entries(TDX_POLICY_FIELDS).map(([name, { strict }]) => [name, strict])),
  )
}

/** The JSON form, for JSON.stringify. parseTdxPolicy gives the same policy back. */
export function encodeTdxPolicy(policy: TdxPolicy): { readonly [field: string]: unknown } {
  return Object.fromEntries(Object.entries(policy).map(([name, value]) => [name, jsonOf(value)]))
}
