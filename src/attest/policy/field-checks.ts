// Checks of one value against one field of a policy, for policies of every kind of report. Pure.

import { equalConstantTime, toHex } from '../../base/bytes.ts'
import { hasBit, type NamedBits } from '../report/bits.ts'
import { type Check, check, notChecked } from '../verdict.ts'
import type { BitRule, BitRules } from './kinds.ts'

export function skipped(name: string): Check {
  return notChecked(name, "the policy has 'any'", false)
}

/** Passes if the value is one of those allowed. Compares the results of `text`. */
export function listCheck<T>(name: string, value: T, allowed: readonly T[] | 'any', text: (item: T) => string): Check {
  if (allowed === 'any') return skipped(name)
  const found = text(value)
  const isAllowed = allowed.some(other => text(other) === found)
  const others = allowed.length === 1 ? allowed.map(text).join() : `one of the ${allowed.length} allowed`
  return check(name, isAllowed, `${found} is not ${others}`, found)
}

export function bytesCheck(name: string, value: Uint8Array, wanted: Uint8Array | 'any'): Check {
  if (wanted === 'any') return skipped(name)
  return check(name, equalConstantTime(value, wanted), `${toHex(value)} is not ${toHex(wanted)}`, toHex(value))
}

export function bitChecks<Name extends string>(
  prefix: string,
  bits: Readonly<Record<Name, number>>,
  value: bigint,
  rules: BitRules<Name>,
  named: NamedBits<Name>,
): Check[] {
  const checks = (Object.keys(bits) as Name[]).map(bit => {
    const name = `${prefix}-${kebab(bit)}`
    const rule: BitRule = rules[bit]
    if (rule === 'any') return skipped(name)
    const isSet = hasBit(value, bits[bit])
    const state = `bit ${bits[bit]} is ${isSet ? 'set' : 'not set'}`
    return check(name, isSet === (rule === 'required'), `${state}, but it is ${rule}`, state)
  })
  const unknown = `${prefix}-unknown`
  if (rules.unknown === 'any') return [...checks, skipped(unknown)]
  const reason = `bits without a known meaning are set: ${named.unknown.join(', ')}`
  return [...checks, check(unknown, named.unknown.length === 0, reason)]
}

/** Bits that must be set, and bits that must be clear. */
export type MaskRule = { readonly required: bigint; readonly forbidden: bigint }

export function maskCheck(name: string, value: bigint, rule: MaskRule | 'any'): Check {
  if (rule === 'any') return skipped(name)
  const text = (bits: bigint) => `0x${bits.toString(16)}`
  const faults = [
    ...((value & rule.required) === rule.required ? [] : [`not all of ${text(rule.required)} is set`]),
    ...((value & rule.forbidden) === 0n ? [] : [`some of ${text(rule.forbidden)} is set`]),
  ]
  return check(name, faults.length === 0, `${text(value)}: ${faults.join(', ')}`, text(value))
}

/**
 * Converts `singleSocket` to `single-socket`. Uses no pattern, which the runtime would compile for a single verdict.
 */
function kebab(name: string): string {
  let kebab = ''
  for (const letter of name) kebab += letter >= 'A' && letter <= 'Z' ? `-${letter.toLowerCase()}` : letter
  return kebab
}
