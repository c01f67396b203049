// The command line's default policy for TDX quotes, and a policy as JSON. Pure.

import { jsonOf } from '../policy/encode.ts'
import { parseTdxPolicy, TDX_POLICY_FIELDS, type TdxPolicy } from './policy.ts'

/**
 * Returns the default: no debug, profiling or migration, no unknown attribute, no service TD, page faults visible to
 * the guest, and a TCB that is up to date by an evaluation since March 2024. All other fields are 'any', including
 * measurements.
 */
export function strictTdxPolicy(): TdxPolicy {
  return parseTdxPolicy(
    Object.fromEntries(Object.entries(TDX_POLICY_FIELDS).map(([name, { strict }]) => [name, strict])),
  )
}

/** Returns the JSON form, for JSON.stringify. parseTdxPolicy restores the policy. */
export function encodeTdxPolicy(policy: TdxPolicy): { readonly [field: string]: unknown } {
  return Object.fromEntries(Object.entries(policy).map(([name, value]) => [name, jsonOf(value)]))
}
