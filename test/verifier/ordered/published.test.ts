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
  expect(publishedChecks(statement)).toMatchObject([{ name: 'published', outcome: 'pass', reason: 'web: port 3000' }])
  expect(factsOf(statement)).toEqual([
    ['published', 'web.abcd2345.acme.test → port 3000, by TLS'],
    ['published', `by the key sha256:${keySha256}`],
  ])
  expect([publishedChecks(statementOf(null)), publishedChecks(null), factsOf(null)]).toEqual([[], [], []])
})

test('goal: a port in another form fails the evidence', () => {
  const bad = ['', '{', '[]', text.replace('web', 'a.b'), text.replace('3000', '22'), text.replace('}', ',"x":1}')]
  for (const other of bad) {
    const checks = publishedChecks(statementOf([text, other]))
    expect(checks).toMatchObject([{ name: 'published-form', outcome: 'fail' }])
    expect(failureOf({ ok: false, checks })).toBe('evidence')
    expect(factsOf(statementOf([text, other]))).toEqual([])
  }
})
