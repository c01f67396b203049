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
  ...[
    ...['/repos/..', '/repos/./x', '/repos/.', '/repos/x/../../admin', '/repos/%2e%2E/admin', '/repos/.%2e/admin'],
    ...['/repos//x', '/repos//../admin', '/repos\\..\\admin', '/repos/..%5cadmin', '/repos/..%2Fadmin'],
    ...['/repos/%252e%252e/admin', '/repos/..%00/admin', '/repos/.%09./admin', '/repos/.%0a./admin'],
    ...['/repos/;/../admin', '/repos;/x', '/repos/x;a=1', '/repos/%c0%ae%c0%ae/admin', '/repos/..%c0%afadmin'],
    ...['/repos/..%c1%9cadmin', '/repos/..%e0%80%afadmin', '/repos/..%f0%80%80%afadmin', '/repos/%u002e%u002e/admin'],
    ...['/repos/#/../admin', '/allowed/../repos/x', '/./repos/x'],
    // Some servers drop dots and blanks at the end of a segment, or read other characters as dots and slashes.
    ...['/repos/..%20/admin', '/repos/%2e%2E%20/admin', '/repos/.../admin', '/repos/.%20./admin', '/repos/..+/admin'],
    ...[
      '/repos/%20/admin',
      '/repos/x./admin',
      '/repos/x%20',
      '/repos/%ef%bc%8e%EF%BC%8E/admin',
      '/repos/..%ef%bc%8fadmin',
    ],
    ...['/repos/%E2%80%A5/admin', '/repos/%e2%80%a4%e2%80%a4/admin', '/repos/..%e2%88%95admin'],
  ].map((target): [string, string, string[]] => ['POST', target, ['ALL']]),
  // Other characters change nothing.
  ['POST', '/repos/a%20b/%e0%a4%95/%f0%9f%98%80/..x/.y/~z?p=%2e%2e//;', ['REPOS']],
  ['POST', '/repos/.well-known/x', ['REPOS']],
  ['POST', '/repos/c++/main...topic/%20x/%e2%80%9cx%e2%80%9d/%e2%9d%a4%ef%b8%8f?q=x.', ['REPOS']],
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

// Goal: where a secret is limited to a method or path, no field names another one.
test.each([
  ...['X-HTTP-Method-Override', 'x-http-method', 'X-METHOD-OVERRIDE', 'X-Method', 'X_HTTP_METHOD_OVERRIDE'],
  ...['X.Http-Method_Override', 'X-Original-URL', 'X-Rewrite-URL', 'X-Original-URI', 'X_Rewrite_URL'],
  ...['X-MethodOverride', 'X-HTTPMethodOverride', 'HTTP-Method-Override', 'Method-Override', 'X-Original-Method'],
  ...['X-Forwarded-Uri', 'X-Forwarded-Path', 'X-Forwarded-Prefix', 'X-Forwarded-Method', 'X-Original-Path'],
  ...['X-Envoy-Original-Path', 'X-Override-URL', 'X-Replaced-Path', 'SCRIPT_NAME', 'Path-Info', 'X-Script-Name'],
])('goal: %s is refused beside a limited secret, and passed on without one', name => {
  const prepared =
    (rule: Partial<Secret>, method = 'POST') =>
    () =>
      prepareRequest(
        head(method, '/repos/x', [
          ['Host', 'api.test'],
          [name, 'DELETE'],
        ]),
        {
          ...{ hostname: 'api.test', port: 443, secrets: [secretOf('ONE', rule)] },
        },
      )
  for (const rule of [{ method: 'POST' }, { path: '/repos/' }, { method: 'POST', path: '/repos' }]) {
    expect(prepared(rule)).toThrow(`${name} could evade the method or path of a secret`)
  }
  // Without limits, and where this request gets no secret.
  for (const rule of [{}, { path: '/other' }]) expect(prepared(rule)().fields).toContainEqual([name, 'DELETE'])
  expect(prepared({ method: 'POST' }, 'GET')().fields).toContainEqual([name, 'DELETE'])
})

// Goal: a secret of one path does not copy or move to or from another path.
test.each([
  ...['Destination', 'destination', 'x-amz-copy-source', 'X_Amz_Copy_Source', 'x-goog-copy-source', 'x-ms-copy-source'],
  ...['x-amz-rename-source', 'x-ms-rename-source', 'X-Copy-From'],
])('goal: %s is refused beside a secret of a path, and passed on beside others', name => {
  const fields = [
    ['Host', 'api.test'],
    [name, '/admin/x'],
  ] as const
  const prepared = (method: string, rule: Partial<Secret>) => () =>
    prepareRequest(head(method, '/repos/x', fields), {
      ...{ hostname: 'api.test', port: 443, secrets: [secretOf('ONE', rule)] },
    })
  for (const method of ['MOVE', 'COPY', 'PUT']) {
    for (const rule of [{ path: '/repos/' }, { path: '/repos', method }]) {
      expect(prepared(method, rule)).toThrow(`${name} could evade the method or path of a secret`)
    }
    for (const rule of [{}, { method }, { path: '/other' }]) {
      expect(prepared(method, rule)().fields).toContainEqual([name, '/admin/x'])
    }
  }
})

// Goal: other fields that programs send stay.
test.each([
  ...['X-Method-Name', 'X-Https-Method', 'Method', 'X-Original-Url-Hash', 'X-Forwarded-For', 'X-Forwarded-Proto'],
  ...['Access-Control-Request-Method', 'Sec-Fetch-Destination', 'X-Original-Host', 'Path', 'Prefix'],
])('goal: %s is another field, and is passed on', name => {
  const fields = [
    ['Host', 'api.test'],
    [name, '1'],
  ] as const
  const destination = { hostname: 'api.test', port: 443, secrets: [secretOf('ONE', { method: 'GET', path: '/' })] }
  expect(prepareRequest(head('GET', '/', fields), destination).fields).toContainEqual([name, '1'])
})

// Goal: no field of the program's stands beside a secret's under a name that servers of CGI's kind read as the same.
test('goal: fields that differ in signs alone are dropped', () => {
  const fields = [
    ['Host', 'api.test'],
    ...['X_Api_Key', 'x-api-key', 'x.API_key', 'Content_Length', 'Transfer_Encoding', 'Accept_Encoding'].map(
      (name): [string, string] => [name, 'of the program'],
    ),
    ['X-Api-Keys', 'another'],
  ] as RequestHead['fields']
  const destination = { hostname: 'api.test', port: 443, secrets: [secretOf('KEY', { header: 'X-Api-Key' })] }
  expect(prepareRequest(head('GET', '/', fields), destination).fields).toEqual([
    ['Host', 'api.test'],
    ['X-Api-Keys', 'another'],
    ['Accept-Encoding', 'identity'],
    ['X-Api-Key', 'Bearer value-of-KEY'],
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
