// The policy for callers without one. Pure.

import { type Policy, strictPolicy } from '../attest/policy/policy.ts'
import type { ReportPins } from './pins.ts'

/** Returns the default policy: rejects debug, migration and every VMPL except 0, unless waived. */
export function defaultPolicy({ vmpl }: Pick<ReportPins, 'vmpl'>): Policy {
  return vmpl === 'any' ? { ...strictPolicy(), vmpls: 'any' } : strictPolicy()
}
