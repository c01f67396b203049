// Goal: a request gets the secret of the most precise rule that it meets, and no other.

import { expect, test } from 'bun:test'
import type { RequestHead } from '../../../src/broker/secrets/http/head.codec.ts'
import { prepareRequest, secretsFor } from '../../../src/broker/secrets/insert.plan.ts'
import type { Secret } from '../../../src/contract/vm/orders/secret.ts'

const base: Secret = {
  ...{ name: 'ALL', host: 'api.test', port: 443, header: 'Authorization', format: 'Bearer {}', value: 'value-of-all' },
}
const secretOf = (name: string, changed: Partial<Secret>): Secret => ({
  ...base,
  name,
  value: `value-of-${name}`,
  ...changed,
})
const head = (method: string, target: string, fields: RequestHead['fields'] = [['Host', 'api.test']]): RequestHead => ({
  ...{ method, target, fields },
})

const secrets = [
  base,
  secretOf('READ', { method: 'GET' }),
  secretOf('REPOS', { path: '/repos/' }),
  secretOf('ONE', { path: '/repos/acme/one', method: 'GET' }),
  secretOf('KEY', { header: 'X-Api-Key', format: '{}', path: '/v1' }),
]

// Goal: each request gets the secrets of the most precise rules, and a doubtful path none of a path's.
test.each([
  ['POST', '/', ['ALL']],
  ['GET', '/', ['READ']],
  ['GET', '/repos', ['READ']],
  ['GET', '/repos/', ['REPOS']],
  ['GET', '/repos/acme/one', ['ONE']],
  ['GET', '/repos/acme/one/x?a=/../', ['ONE']],
  ['POST', '/repos/acme/one', ['REPOS']],
  ['GET', '/repos/acme/one-more', ['REPOS']],
  ['POST', '/REPOS/acme', ['ALL']],
  ['POST', '/v1', ['ALL', 'KEY']],
  ['POST', '/v1?x', ['ALL', 'KEY']],
  ['POST', '/v1/x', ['ALL', 'KEY']],
  ['POST', '/v10', ['ALL']],
  ['OPTIONS', '*', ['ALL']],
  // Servers differ on where these lead.
  ['POST', '/repos/../admin', ['ALL']],
  ['POST', '/repos/%2e%2e/admin', ['ALL']],
  ['POST', '/repos/x%2f..%2f..', ['ALL']],
  ['POST', '/repos/..;/admin', ['ALL']],
  ['POST', '//repos/x', ['ALL']],
  ['POST', '/%72epos/x', ['ALL']],
])('goal: %s %s gets %j', (method, target, names) => {
  const found = secretsFor(head(method, target), secrets)
  expect(found.map(({ name }) => name)).toEqual(names)
  expect(
    secretsFor(head(method, target), secrets.toReversed())
      .map(({ name }) => name)
      .toSorted(),
  ).toEqual(names)
})

test('goal: without a rule that it meets a request keeps the placeholder', () => {
  const fields = [
    ['Host', 'api.test'],
    ['Authorization', 'Bearer strongroom-placeholder-REPOS'],
  ] as const
  const destination = { hostname: 'api.test', port: 443, secrets: [secretOf('REPOS', { path: '/repos/' })] }
  expect(prepareRequest(head('GET', '/user', fields), destination).fields).toEqual([
    ['Host', 'api.test'],
    ['Authorization', 'Bearer strongroom-placeholder-REPOS'],
    ['Accept-Encoding', 'identity'],
  ])
  expect(prepareRequest(head('GET', '/repos/', fields), destination).fields).toEqual([
    ['Host', 'api.test'],
    ['Accept-Encoding', 'identity'],
    ['Authorization', 'Bearer value-of-REPOS'],
  ])
})

test('goal: the host is that of the connection, with its port', () => {
  const at = (port: number, host: string) =>
    prepareRequest(head('GET', '/', [['host', host]]), { hostname: 'api.test', port, secrets }).fields[0]
  expect(at(443, 'API.test')).toEqual(['Host', 'api.test'])
  expect(at(443, 'api.test:443')).toEqual(['Host', 'api.test'])
  expect(at(8443, 'api.test:8443')).toEqual(['Host', 'api.test:8443'])
  for (const host of [
    '',
    'api.test.',
    'api.test:',
    'api.test:443:443',
    'api.test:0443x',
    ' api.test',
    'api.test,api.test',
  ]) {
    expect(() => at(443, host)).toThrow('the Host field names another host than api.test')
  }
  expect(() => at(8443, 'api.test')).toThrow('names another host')
})
