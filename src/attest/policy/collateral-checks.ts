// Checks whether the evidence beside a report meets the policy: the holder of its key, the revocation list, the
// certificate table. Pure.

import { dayMs } from '../../base/time.ts'
import type { VekExtensions } from '../amd/vek-extensions.ts'
import { type Check, check, fail, notChecked } from '../verdict.ts'
import { skipped } from './field-checks.ts'
import type { Policy } from './policy.ts'

/** Evidence beside a report. Null if it was not given or is unreadable. */
export type CollateralFacts = {
  readonly asOfMs: number
  readonly holder: VekExtensions['holder'] | null
  /** Time of the list; null unless the ARK signed it. */
  readonly crlThisUpdateMs: number | null
  /** GUIDs in the host's certificate table. */
  readonly certificateEntries: readonly string[] | null
}

/** Returns one check for each field. A field whose evidence is missing makes the verdict bad. */
export function collateralChecks(policy: Policy, facts: CollateralFacts | null): Check[] {
  return [cspCheck(policy.cspIds, facts), crlAgeCheck(policy.maxCrlAgeDays, facts), tableCheck(policy, facts)]
}

function cspCheck(allowed: Policy['cspIds'], facts: CollateralFacts | null): Check {
  const name = 'csp-id'
  if (allowed === 'any') return skipped(name)
  const holder = facts?.holder ?? null
  if (holder === null) return notChecked(name, 'there is no VEK that names a cloud provider', true)
  if (holder.kind === 'vcek') return fail(name, 'a VCEK names no cloud provider')
  return check(name, allowed.includes(holder.cspId), `${holder.cspId} is not among the allowed`, holder.cspId)
}

function crlAgeCheck(days: number | 'any', facts: CollateralFacts | null): Check {
  const name = 'crl-age'
  if (days === 'any') return skipped(name)
  const issuedMs = facts?.crlThisUpdateMs ?? null
  if (facts === null || issuedMs === null) return notChecked(name, 'there is no revocation list of the ARK', true)
  const ageMs = facts.asOfMs - issuedMs
  const issued = `issued ${new Date(issuedMs).toISOString()}`
  return check(name, ageMs <= days * dayMs, `${issued}, more than ${days} days before this verification`, issued)
}

function tableCheck({ certificateEntries: wanted }: Policy, facts: CollateralFacts | null): Check {
  const name = 'certificate-entries'
  if (wanted === 'any') return skipped(name)
  const found = facts?.certificateEntries ?? null
  if (found === null) return notChecked(name, 'no certificate table was given', true)
  const missing = wanted.filter(guid => !found.includes(guid))
  return check(name, missing.length === 0, `the certificate table lacks ${missing.join(', ')}`)
}
