// Goal: what a VM states about its reach is read in its canonical form alone, and differs from what is expected or not.

import { expect, test } from 'bun:test'
import { fieldsOf } from '../../../scripts/rigs/gateway/receipt-samples.ts'
import type { StatementOf } from '../../../src/attest/receipt/statement.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { type EgressPolicy, egressPolicyBytesMax, egressPolicyText } from '../../../src/contract/http/egress-policy.ts'
import { failureOf } from '../../../src/terminal/verdict-exit.ts'
import { reachChecks, reachWords, readEgressPolicy } from '../../../src/verifier/ordered/reach.ts'

const policy: EgressPolicy = {
  default: 'refuse',
  allow: [
    { host: 'packages.example', port: 8443 },
    { host: 'github.com', port: 443 },
  ],
}
const canonical =
  '{"allow":[{"host":"github.com","port":443},{"host":"packages.example","port":8443}],"default":"refuse"}'

function outcome(egressPolicy: string | null, expected: EgressPolicy | 'any'): string[] {
  const statement = { ...fieldsOf.claim, egressPolicy, secrets: null } as unknown as StatementOf<'claim'>
  return reachChecks(statement, expected).map(({ outcome, reason }) => `${outcome}: ${reason}`)
}

test('goal: the canonical text has sorted rules, each once', () => {
  const [first] = policy.allow
  if (first === undefined) throw new Error('there is one')
  expect(egressPolicyText({ ...policy, allow: [...policy.allow, first] })).toBe(canonical)
})

test('goal: a policy passes alone, and against the same policy in any order', () => {
  expect(outcome(canonical, 'any')).toEqual(['pass: only github.com, packages.example:8443'])
  expect(outcome(canonical, { ...policy, allow: policy.allow.toReversed() })).toEqual([
    'pass: only github.com, packages.example:8443',
  ])
  expect(outcome('{"allow":[],"default":"refuse"}', 'any')).toEqual(['pass: nothing'])
})

test('goal: without a policy there is no line unless one is expected', () => {
  expect(outcome(null, 'any')).toEqual([])
  expect(outcome(null, { default: 'allow', allow: [] })).toEqual(['pass: any destination'])
  expect(outcome(null, policy)).toEqual([
    'fail: any destination, not only github.com, packages.example:8443 as you expect',
  ])
  expect(reachChecks(null, 'any')).toEqual([])
  expect(reachChecks(null, policy)).toMatchObject([{ outcome: 'not-checked', required: true }])
})

test('goal: another policy fails, wider or narrower', () => {
  const wider = { ...policy, allow: [...policy.allow, { host: '*.example.org', port: 443 }] }
  expect(outcome(egressPolicyText(wider), policy)[0]).toStartWith('fail: only *.example.org, github.com')
  expect(outcome(canonical, wider)[0]).toStartWith('fail: ')
  expect(outcome(canonical, { default: 'allow', allow: [] })[0]).toStartWith('fail: ')
})

test('goal: every other text fails, also if nothing is expected', () => {
  const texts = [` ${canonical}`, canonical.replace('443', '443.0'), '{}', '[]', 'x', '{"default":"refuse"}']
  const others = [canonical.replace('github.com', '192.0.2.1'), canonical.replace('github.com', 'localhost')]
  const unsorted = JSON.stringify(policy)
  for (const text of [...texts, ...others, unsorted]) {
    expect(outcome(text, 'any')[0]).toStartWith('fail: ')
    // Evidence, as with malformed secrets: no policy of the relying party decides here.
    const statement = { ...fieldsOf.claim, egressPolicy: text, secrets: null } as unknown as StatementOf<'claim'>
    expect(failureOf({ ok: false, checks: reachChecks(statement, policy) })).toBe('evidence')
  }
})

test('goal: the largest policy is read, a larger one is not', () => {
  const host = (index: number) =>
    `${String(index).padStart(59, 'a')}.${'b'.repeat(63)}.${'c'.repeat(63)}.${'d'.repeat(63)}`
  const largest = {
    default: 'refuse',
    allow: Array.from({ length: 64 }, (_, at) => ({ host: host(at), port: 65_535 })),
  } as const
  const text = egressPolicyText({ default: 'refuse', allow: [...largest.allow] })
  expect(text.length).toBeLessThanOrEqual(egressPolicyBytesMax)
  expect(readEgressPolicy(utf8(text)).allow).toHaveLength(64)
  expect(() => readEgressPolicy(utf8(text.padEnd(egressPolicyBytesMax + 1)))).toThrow('more than 20480 bytes')
  const many = Array.from({ length: 33 }, (_, at) => ({ host: 'a.example', port: at + 1 }))
  expect(() => readEgressPolicy(utf8(JSON.stringify({ default: 'refuse', allow: many })))).toThrow('32 different ports')
})

test('goal: words name the port only where it is not that of HTTPS', () => {
  expect(reachWords(policy)).toBe('only github.com, packages.example:8443')
  expect(reachWords(null)).toBe('any destination')
})
