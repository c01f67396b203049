// Goal: a verifier sees each secret and where it goes, and accepts no others than it expects; its host counts as reach,
// so that no pin of reach overlooks it.

import { expect, test } from 'bun:test'
import { fieldsOf } from '../../../scripts/rigs/gateway/receipt-samples.ts'
import type { StatementOf } from '../../../src/attest/receipt/statement.ts'
import { type EgressPolicy, egressPolicyText } from '../../../src/contract/http/egress-policy.ts'
import type { SecretFacts } from '../../../src/contract/vm/orders/secret-facts.ts'
import { statedSecrets as textsOf } from '../../../src/guest/secrets/secrets.ts'
import { failureOf } from '../../../src/terminal/verdict-exit.ts'
import { reachChecks, statedReach } from '../../../src/verifier/ordered/reach.ts'
import { secretChecks, statedSecrets } from '../../../src/verifier/ordered/secrets.ts'

const secret = { name: 'TOKEN', host: 'api.example.com', port: 443, header: 'Authorization' }
const policy: EgressPolicy = { default: 'refuse', allow: [{ host: 'github.com', port: 443 }] }
const statementOf = (secrets: readonly string[] | null, egressPolicy: string | null = null) =>
  ({ ...fieldsOf.claim, egressPolicy, secrets }) as unknown as StatementOf<'claim'>
const outcomes = (statement: StatementOf<'claim'> | null, expected: Parameters<typeof secretChecks>[1] = 'any') =>
  secretChecks(statement, expected).map(({ outcome, reason }) => `${outcome}: ${reason}`)

test('goal: secrets are named with their hosts, and there is no check without any', () => {
  const other = { ...secret, name: 'OTHER', host: 'b.test', port: 8443, method: 'GET', path: '/a/' }
  const statement = statementOf(textsOf([secret, other]))
  expect(statedSecrets(statement)).toEqual([secret, other])
  expect(outcomes(statement)).toEqual([
    'pass: 2, not readable by the agent: TOKEN for api.example.com, OTHER for b.test',
  ])
  expect([outcomes(statementOf(null)), outcomes(null)]).toEqual([[], []])
})

test('goal: exactly the expected secrets pass, in any order', () => {
  const other = { ...secret, name: 'OTHER', host: 'b.test', port: 8443, method: 'GET', path: '/a/' }
  const statement = statementOf(textsOf([secret, other]))
  const words = 'pass: 2, not readable by the agent: TOKEN for api.example.com, OTHER for b.test'
  expect(outcomes(statement, [secret, other])).toEqual([words])
  expect(outcomes(statement, [other, secret])).toEqual([words])
  expect(outcomes(statement, [secret])).toEqual([
    'fail: you do not expect OTHER, in Authorization of requests to b.test:8443, only GET /a/',
  ])
  expect(outcomes(statementOf(textsOf([secret])), [secret, other])).toEqual([
    'fail: it lacks OTHER, in Authorization of requests to b.test:8443, only GET /a/',
  ])
  expect(outcomes(statement, [])[0]).toStartWith('fail: you do not expect TOKEN, ')
  expect([outcomes(statementOf(null), []), outcomes(statementOf([]), [])]).toEqual([['pass: none'], ['pass: none']])
  expect(outcomes(statementOf(null), [secret])[0]).toStartWith('fail: it lacks TOKEN')
  expect(secretChecks(null, [])).toMatchObject([{ name: 'secrets', outcome: 'not-checked', required: true }])
  expect(failureOf({ ok: false, checks: secretChecks(statement, []) })).toBe('policy')
})

// Goal: a host, a rule or a field that differs is a difference, whichever it is.
test.each<[string, { readonly [Field in keyof SecretFacts]?: SecretFacts[Field] | undefined }]>([
  ['name', { name: 'TOKEN_' }],
  ['host', { host: 'api.example.org' }],
  ['port', { port: 8443 }],
  ['header', { header: 'X-Api-Key' }],
  ['method', { method: 'POST' }],
  ['no method', { method: undefined }],
  ['path', { path: '/a/b' }],
  ['no path', { path: undefined }],
])('goal: another %s fails', (_, change) => {
  const limited = { ...secret, method: 'GET', path: '/a/' }
  expect(outcomes(statementOf(textsOf([limited])), [limited])[0]).toStartWith('pass: ')
  const other = { ...limited, ...change } as SecretFacts
  expect(outcomes(statementOf(textsOf([limited])), [other])[0]).toMatch(/^fail: .*it lacks /)
  expect(outcomes(statementOf(textsOf([other])), [limited])[0]).toMatch(/^fail: .*it lacks /)
})

test('goal: a secret in another form fails', () => {
  const [good = ''] = textsOf([secret]) ?? []
  for (const text of [
    '{}',
    'x',
    good.replace('443', '0'),
    good.replace('api.', 'API.'),
    good.replace('{', '{"x":1,'),
  ]) {
    expect(outcomes(statementOf([good, text]))[0]).toStartWith('fail: secret')
    // Evidence, as with a malformed policy: nothing that the relying party expects decides here.
    expect(failureOf({ ok: false, checks: secretChecks(statementOf([good, text]), [secret]) })).toBe('evidence')
  }
})

test('goal: the host of a secret is a part of the reach, unless the policy lists it', () => {
  const statement = statementOf(
    textsOf([secret, { ...secret, name: 'SECOND', header: 'X-Key' }]),
    egressPolicyText(policy),
  )
  const whole: EgressPolicy = { ...policy, allow: [...policy.allow, { host: 'api.example.com', port: 443 }] }
  expect(statedReach(statement)).toEqual(whole)
  const reach = (expected: EgressPolicy | 'any') =>
    reachChecks(statement, expected).map(({ outcome, reason }) => `${outcome}: ${reason}`)
  expect(reach('any')).toEqual(['pass: only api.example.com, github.com'])
  expect(reach(whole)).toEqual(['pass: only api.example.com, github.com'])
  expect(reach(policy)[0]).toStartWith('fail: only api.example.com, github.com, not only github.com')
  for (const host of ['api.example.com', '*.example.com']) {
    const listed: EgressPolicy = { default: 'refuse', allow: [{ host, port: 443 }] }
    expect(statedReach(statementOf(textsOf([secret]), egressPolicyText(listed)))).toEqual(listed)
  }
  // Another port, and a name that only ends alike.
  for (const rule of [
    { host: 'api.example.com', port: 8443 },
    { host: '*.api.example.com', port: 443 },
  ]) {
    const listed: EgressPolicy = { default: 'refuse', allow: [rule] }
    expect(statedReach(statementOf(textsOf([secret]), egressPolicyText(listed)))?.allow).toHaveLength(2)
  }
  expect(statedReach(statementOf(textsOf([secret])))).toBeNull()
})
