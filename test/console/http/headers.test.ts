// Goal: the headers that the console sends with each response, written out: a header that goes or a rule that gets
// weaker fails here.

import { expect, test } from 'bun:test'
import { noSessionCookie, sessionCookie, tokenOf } from '../../../src/console/http/cookie.ts'
import { guarded, ownGuarded, pageGuarded } from '../../../src/console/http/headers.ts'

const fixed = {
  'cross-origin-embedder-policy': 'require-corp',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy':
    'publickey-credentials-create=(self), publickey-credentials-get=(self), clipboard-write=(self), ' +
    'camera=(), microphone=(), geolocation=(), payment=(), usb=()',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
}
const data = "default-src 'none'; sandbox; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
const page =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'none'; " +
  "frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

const shown = ({ headers }: Response) => Object.fromEntries(headers)

test('goal: the headers of a file of the page, of a document of the console, and of one of a service', () => {
  const bare = () => new Response('x', { headers: { 'content-type': 'text/x' } })
  const all = (policy: string) => ({
    ...fixed,
    'cache-control': 'no-store',
    'content-security-policy': policy,
    'content-type': 'text/x',
  })
  expect(shown(pageGuarded(bare()))).toEqual(all(page))
  expect(shown(ownGuarded(bare()))).toEqual(all(data))
  expect(shown(guarded(bare()))).toEqual(all(data))
})

test('goal: a service sets nothing for the origin of the console, and weakens none of its rules', async () => {
  const strange = [
    ...['set-cookie', 'access-control-allow-origin', 'access-control-allow-credentials', 'alt-svc'],
    ...['clear-site-data', 'strict-transport-security', 'nel', 'report-to', 'reporting-endpoints'],
    ...['content-security-policy-report-only', 'service-worker-allowed', 'link', 'refresh', 'speculation-rules'],
    'www-authenticate',
  ]
  const headers = new Headers(strange.map(name => [name, 'x']))
  for (const name of [...Object.keys(fixed), 'content-security-policy']) headers.set(name, 'x')
  const response = guarded(new Response('body', { status: 206, headers }))
  expect([response.status, await response.text()]).toEqual([206, 'body'])
  expect(shown(response)).toEqual({ ...fixed, 'cache-control': 'no-store', 'content-security-policy': data })
})

test('goal: how long a response may be kept is for who made it to say, and a cookie for the console alone', () => {
  const headers = { 'cache-control': 'max-age=60', 'set-cookie': 'a=b' }
  for (const guard of [pageGuarded, ownGuarded]) {
    const made = guard(new Response(null, { headers })).headers
    expect([made.get('cache-control'), made.get('set-cookie')]).toEqual(['max-age=60', 'a=b'])
  }
})

test('goal: the cookie is for this host alone, over TLS, for no script and no other site, as long as the session', () => {
  expect(sessionCookie('t0k', 90_999)).toBe(
    '__Host-strongroom=t0k; Path=/; Max-Age=90; Secure; HttpOnly; SameSite=Strict',
  )
  expect(noSessionCookie).toBe('__Host-strongroom=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Strict')
})

test('goal: the cookie is found among others; of two with its name none is believed', () => {
  expect(tokenOf('a=b; __Host-strongroom=t0k; c=d')).toBe('t0k')
  expect(tokenOf('__Host-strongroom=t0k')).toBe('t0k')
  expect(tokenOf('__Host-strongroom=a=b')).toBe('a=b')
  expect(tokenOf('__Host-strongroom=')).toBe('')
  for (const header of [null, '', 'a=b', 'x__Host-strongroom=t', '__Host-strongroom2=t', '__host-strongroom=t']) {
    expect([header, tokenOf(header)]).toEqual([header, null])
  }
  expect(tokenOf('__Host-strongroom=a; __Host-strongroom=b')).toBeNull()
  expect(tokenOf('__Host-strongroom=a;__Host-strongroom=a')).toBeNull()
})
