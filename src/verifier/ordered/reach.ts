// The reach of an instance's programs, as its VM states it: the VM enforces it, and the host cannot loosen it.
// Pure.

import { parsedJson } from '../../attest/encoding/json.ts'
import { type Parsed, parsed, wellFormed } from '../../attest/malformed.ts'
import type { StatementOf } from '../../attest/receipt/statement.ts'
import { type Check, fail, notChecked, pass } from '../../attest/verdict.ts'
import { utf8 } from '../../base/bytes.ts'
import {
  EgressPolicy,
  type EgressRule,
  egressPolicyBytesMax,
  egressPolicyProblem,
  egressPolicyText,
} from '../../contract/http/egress-policy.ts'
import { ofForm } from '../form.ts'
import { statedSecrets } from './secrets.ts'

/** Reads a policy in any form. Throws Malformed. */
export function readEgressPolicy(bytes: Uint8Array): EgressPolicy {
  wellFormed(bytes.length <= egressPolicyBytesMax, `egress policy: more than ${egressPolicyBytesMax} bytes`)
  const policy = ofForm('egress policy', EgressPolicy, parsedJson('egress policy', bytes))
  const problem = egressPolicyProblem(policy)
  wellFormed(problem === null, problem ?? '')
  return policy
}

/**
 * Returns the policy in force, with the hosts of secrets that it does not list: the broker connects to them as well.
 * Null if the VM restricts nothing. Throws Malformed unless it is the canonical text.
 */
export function statedReach(statement: Pick<StatementOf<'claim'>, 'egressPolicy' | 'secrets'>): EgressPolicy | null {
  const { egressPolicy } = statement
  if (egressPolicy === null) return null
  const policy = readEgressPolicy(utf8(egressPolicy))
  wellFormed(egressPolicyText(policy) === egressPolicy, 'egress policy: not in its canonical form')
  const allow = [...policy.allow]
  for (const { host, port } of statedSecrets(statement)) {
    if (!allow.some(rule => covers(rule, host, port))) allow.push({ host, port })
  }
  return { ...policy, allow }
}

function covers(rule: EgressRule, host: string, port: number): boolean {
  const isBelow = rule.host.startsWith('*.') && host.endsWith(rule.host.slice(1))
  return rule.port === port && (rule.host === host || isBelow)
}

/**
 * Compares the policy in force with the expected one. No check if nothing is expected and nothing is restricted.
 * `statement`: null if the receipt cannot be read.
 */
export function reachChecks(statement: StatementOf<'claim'> | null, expected: EgressPolicy | 'any'): Check[] {
  const name = 'reach'
  if (statement === null) return expected === 'any' ? [] : [notChecked(name, 'the receipt cannot be read', true)]
  const stated: Parsed<EgressPolicy | null> = parsed(() => statedReach(statement))
  // Counts as evidence: the relying party expects nothing about the form.
  if (!stated.ok) return [fail('reach-form', stated.reason)]
  const words = reachWords(stated.value)
  if (expected === 'any') return stated.value === null ? [] : [pass(name, words)]
  const isOpen = expected.default === 'allow' && stated.value === null
  const isSame = stated.value !== null && egressPolicyText(stated.value) === egressPolicyText(expected)
  return [isOpen || isSame ? pass(name, words) : fail(name, `${words}, not ${reachWords(expected)} as you expect`)]
}

/** Names the destinations; the port only where it is not that of HTTPS. */
export function reachWords(policy: EgressPolicy | null): string {
  if (policy === null || policy.default === 'allow') return 'any destination'
  const destinations = policy.allow.map(({ host, port }) => (port === 443 ? host : `${host}:${port}`))
  return destinations.length === 0 ? 'nothing' : `only ${destinations.toSorted().join(', ')}`
}
