// Goal: a verifier sees each published port and the digest of its key, as the VM states them; a form that it cannot
// read counts as evidence.

import { expect, test } from 'bun:test'
import { fieldsOf } from '../../../scripts/rigs/gateway/receipt-samples.ts'
import type { StatementOf } from '../../../src/attest/receipt/statement.ts'
import { publishedFacts } from '../../../src/client/verify/published-facts.ts'
import { failureOf } from '../../../src/terminal/verdict-exit.ts'
import type { InstanceVerdict } from '../../../src/verifier/instance.ts'
import { publishedChecks, statedPublished } from '../../../src/verifier/ordered/published.ts'

const keySha256 = 'ab'.repeat(32)
const text = `{"keySha256":"${keySha256}","name":"web","port":3000}`
const statementOf = (published: readonly string[] | null) =>
  ({ ...fieldsOf.claim, hostname: 'abcd2345.acme.test', published }) as unknown as StatementOf<'claim'>
const factsOf = (statement: StatementOf<'claim'> | null) =>
  publishedFacts({ receipt: { statement } } as unknown as InstanceVerdict)

test('goal: ports are named with their keys, and there is no check without any', () => {
  const statement = statementOf([text])
  expect(statedPublished(statement)).toEqual([{ keySha256, name: 'web', port: 3_000 }])
  expect(publishedChecks(statement, 'any')).toMatchObject([
    { name: 'published', outcome: 'pass', reason: `web: port 3000 by the key ${keySha256.slice(0, 16)}…` },
  ])
  expect(factsOf(statement)).toEqual([
    ['published', 'web.abcd2345.acme.test → port 3000, by TLS'],
    ['published', `by the key sha256:${keySha256}`],
  ])
  expect([publishedChecks(statementOf(null), 'any'), publishedChecks(null, 'any'), factsOf(null)]).toEqual([[], [], []])
})

test('goal: a port in another form fails the evidence', () => {
  const bad = ['', '{', '[]', text.replace('web', 'a.b'), text.replace('3000', '22'), text.replace('}', ',"x":1}')]
  for (const other of bad) {
    const checks = publishedChecks(statementOf([text, other]), 'any')
    expect(checks).toMatchObject([{ name: 'published-form', outcome: 'fail' }])
    expect(failureOf({ ok: false, checks })).toBe('evidence')
    expect(factsOf(statementOf([text, other]))).toEqual([])
  }
})

test('goal: a relying party has none, or just these, in any order, with any key or one', () => {
  const outcome = (published: readonly string[] | null, expected: Parameters<typeof publishedChecks>[1]) =>
    publishedChecks(statementOf(published), expected).map(({ outcome, reason }) => `${outcome} ${reason}`)
  const api = text.replace('web', 'api')
  const [web, other] = [
    { name: 'web', port: 3_000 },
    { name: 'api', port: 3_000 },
  ]
  expect([outcome(null, []), outcome([], [])]).toEqual([[], []])
  expect(outcome([text], [])).toEqual([expect.stringMatching(/^fail anyone reaches web: port 3000/)])
  expect(outcome(null, [web])).toEqual(['fail it lacks web: port 3000'])
  expect(outcome([api, text], [web, other])).toEqual([expect.stringContaining('pass')])
  expect(outcome([text], [{ ...web, keySha256 }])).toEqual([expect.stringContaining('pass')])
  for (const wrong of [{ ...web, keySha256: 'cd'.repeat(32) }, { ...web, port: 3_001 }, other]) {
    expect(outcome([text], [wrong])).toEqual([expect.stringMatching(/^fail anyone reaches web.*; it lacks /)])
  }
  expect(publishedChecks(null, [])).toMatchObject([{ name: 'published', outcome: 'not-checked' }])
})
