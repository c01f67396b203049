// Goal: an order for a secret is refused where the broker could insert it in a way that nobody expects.

import { expect, test } from 'bun:test'
import { checkValue } from '../../../../src/contract/check.ts'
import {
  formatSecret,
  isPlainPath,
  placeholderOf,
  Secret,
  secretProblem,
  secretsMax,
} from '../../../../src/contract/vm/orders/secret.ts'
import { factsOf } from '../../../../src/contract/vm/orders/secret-facts.ts'

const secret: Secret = {
  name: 'GITHUB_TOKEN',
  host: 'api.github.com',
  port: 443,
  header: 'Authorization',
  format: 'Bearer {}',
  value: 'ghp_12345',
}
const problemOf = (changed: Partial<Secret>, others: readonly Secret[] = []) =>
  secretProblem({ ...secret, ...changed }, others)

// Goal: each field has its own limits, and no message has a value.
test.each([
  ['name', ['', 'github', '1A', 'A-B', 'A B', 'A'.repeat(65)]],
  ['host', ['', 'localhost', 'API.github.com', '*.github.com', '10.0.0.1', 'a.b:443', 'a..b', '-a.b', 'a.b.', '[::1]']],
  ['header', ['', 'A:', 'A B', 'A\r\nB', 'Ä', 'a'.repeat(65)]],
  ['format', ['', '{', 'a\n{}', '{}\r\nX: y', 'é{}', '{}'.padEnd(300)]],
  [
    'value',
    [
      '',
      'short',
      ' leading1',
      'trailing1 ',
      'with\nline1',
      'with\rline1',
      'with\0nul1',
      'ümläute12',
      'a'.repeat(4_097),
    ],
  ],
  ['method', ['', 'GET ', 'G\tT']],
  ['path', ['', 'a', '/a?b', '/a#b', '/a b', '/ä', `/${'a'.repeat(256)}`]],
])('goal: the schema refuses a bad %s', (field, values) => {
  for (const value of values) {
    const result = checkValue(Secret, { ...secret, [field]: value })
    expect([value, result.ok]).toEqual([value, false])
    // A value is never in a message.
    if (field === 'value' && !result.ok && value !== '') expect(result.problem).not.toContain(value)
  }
  expect(checkValue(Secret, { ...secret, method: 'GET', path: '/repos/a-b_c.d~e' }).ok).toBe(true)
})

test('goal: a field that frames messages, a variable that shells obey and a doubtful path are refused with a remedy', () => {
  expect(problemOf({})).toBeNull()
  for (const header of [
    'Host',
    'content-length',
    'Transfer-Encoding',
    'Connection',
    'TE',
    'Range',
    'accept-encoding',
  ]) {
    expect(problemOf({ header })).toBe(`header: ${header} frames requests; name the field of the API's keys`)
  }
  for (const name of [
    'PATH',
    'LD_PRELOAD',
    'BASH_ENV',
    'SSL_CERT_FILE',
    'NODE_EXTRA_CA_CERTS',
    'GIT_SSH_COMMAND',
    'HTTPS_PROXY',
    'ALL_PROXY',
    'PERL5OPT',
    'RUSTC_WRAPPER',
    'GIT_ASKPASS',
    'BUN_OPTIONS',
    'DENO_DIR',
  ]) {
    expect(problemOf({ name })).toBe(`name: sessions need ${name} for something else; take another name`)
  }
  for (const name of [
    'NODE_AUTH_TOKEN',
    'GIT_TOKEN',
    'PIP_INDEX_TOKEN',
    'OPENAI_API_KEY',
    'DENO_AUTH_TOKENS',
    'PROXY_TOKEN',
  ])
    expect(problemOf({ name })).toBeNull()
  for (const method of ['TRACE', 'CONNECT']) expect(problemOf({ method })).toStartWith('method: ')
  for (const path of ['/a/../b', '/a/./b', '/..', '//a', '/a%2fb', '/a/%2E%2e/b', '/a\\b', '/a;b/c', '/a%252fb']) {
    expect(problemOf({ path })).toStartWith('path: ')
  }
})

test('goal: a format has exactly one place for the value', () => {
  expect(formatSecret('Bearer {}', 'v$&')).toBe('Bearer v$&')
  expect(formatSecret('{}', 'v')).toBe('v')
  expect(formatSecret('Basic {basic:x-access-token}', 'v')).toBe(`Basic ${btoa('x-access-token:v')}`)
  for (const format of ['', 'Bearer', '{}{}', '{} {basic:a}', '{basic:}', '{basic:a:b}', '{x}', '{{}}', '{}}', '{']) {
    expect([format, formatSecret(format, 'v')]).toEqual([format, null])
    expect(problemOf({ format })).toBe('format: it must have {} or {basic:USER} exactly once, and no other brace')
  }
  expect(problemOf({ format: ' {}' })).toBe('format: it begins or ends with a blank; remove that')
})

test('goal: two secrets never fill in one field of the same requests, and their number is bounded', () => {
  const other = { ...secret, name: 'OTHER' }
  const taken = 'header: OTHER fills it in the same requests; remove OTHER first'
  expect(problemOf({}, [other])).toBe(taken)
  expect(problemOf({ header: 'AUTHORIZATION' }, [other])).toBe(taken)
  for (const changed of [
    { path: '/a/' },
    { method: 'GET' },
    { host: 'github.com' },
    { port: 8443 },
    { header: 'X-Key' },
  ]) {
    expect(problemOf(changed, [other])).toBeNull()
  }
  const many = Array.from({ length: secretsMax }, (_, index) => ({
    ...secret,
    name: `S${index}`,
    host: `h${index}.test`,
  }))
  expect(problemOf({}, many)).toBe('name: this instance has 32 secrets, the most; remove one first')
  // Replaces S0.
  expect(problemOf({ name: 'S0' }, many)).toBeNull()
})

test('goal: nothing of a value or its format is in the facts', () => {
  expect(factsOf(secret)).toEqual({ name: 'GITHUB_TOKEN', host: 'api.github.com', port: 443, header: 'Authorization' })
  const precise = { ...secret, method: 'GET', path: '/a/' }
  expect(JSON.stringify(factsOf(precise))).toBe(
    '{"name":"GITHUB_TOKEN","host":"api.github.com","port":443,"header":"Authorization","method":"GET","path":"/a/"}',
  )
  expect(placeholderOf('A')).toBe('strongroom-placeholder-A')
})

test('goal: only paths that every server reads alike are plain', () => {
  for (const path of ['/', '/a', '/a/', '/a.b/c..d', '/.git/x', '/.well-known/x', '/a%20b', '/a...b', '/..a', '/c++/'])
    expect([path, isPlainPath(path)]).toEqual([path, true])
  for (const path of ['/.', '/a/..', '/%2e%2e/', '/a/%2E', '/.%2e/x', '/a%5Cb', '/a%00'])
    expect([path, isPlainPath(path)]).toEqual([path, false])
  for (const path of ['/...', '/..%20/x', '/.../x', '/a./x', '/a%2E', '/a%20', '/..+/x', '/..%20+/x', '/.+.+/x'])
    expect([path, isPlainPath(path)]).toEqual([path, false])
})

test('goal: no character that Unicode gives a plainer form makes a dot or a slash', () => {
  const found: string[] = []
  for (let code = 0x80; code < 0x11_0000; code += 1) {
    const character = String.fromCodePoint(code)
    if (!/^[./\\]+$/.test(character.normalize('NFKC'))) continue
    found.push(character)
    const path = `/a/${encodeURIComponent(character)}x`
    expect([path, isPlainPath(path)]).toEqual([path, false])
  }
  expect(found).toContain('\uff0e')
})
