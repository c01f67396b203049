// The policy where the caller has none. Pure.

import { type Policy, strictPolicy } from '../attest/policy/policy.ts'
import type { ReportPins } from './pins.ts'

/** Default policy: refuses debug, migration and every VMPL but 0, unless waived. */
export function defaultPolicy({ vmpl }: Pick<ReportPins, 'vmpl'>): Policy {
  return vmpl === 'any' ? { ...strictPolicy(), vmpls: 'any' } : strictPolicy()
}
