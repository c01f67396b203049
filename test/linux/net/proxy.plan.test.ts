// Goal: which requests go through the proxy does not depend on how a host is spelled, and never holds for
// loopback; a refusal of the proxy has a message of its own.

import { expect, test } from 'bun:test'
import {
  isNoProxyEntry,
  type ProxySettings,
  proxyFailure,
  proxyInEnvironment,
  usesProxy,
} from '../../../src/linux/net/proxy.plan.ts'
import { noProxyCases } from '../../rigs/proxy/no-proxy-cases.ts'

const settings = (...entries: string[]): ProxySettings => ({
  url: 'http://proxy.example:3128',
  user: '',
  password_file: '',
  no_proxy: entries,
})
const uses = (url: string, ...entries: string[]) => usesProxy(new URL(url), settings(...entries))

test('goal: https to other hosts goes through the proxy', () => {
  for (const url of [
    'https://far.example/x',
    'https://192.0.2.1:8443',
    'https://[2001:db8::1]/',
    'https://mylocalhost/',
  ])
    expect([url, uses(url)]).toEqual([url, true])
  expect(usesProxy(new URL('https://far.example/'), { ...settings(), url: '' })).toBe(false)
  expect(uses('http://far.example/')).toBe(false)
})

test('goal: loopback is never reached through it, in any spelling', () => {
  const own = [
    'localhost',
    'LOCALHOST.',
    'a.localhost',
    '127.0.0.1',
    '127.9',
    '0x7f000001',
    '2130706433',
    '0.0.0.0',
    'ip6-localhost',
    'ip6-loopback.',
    'localhost.localdomain',
  ]
  for (const host of [...own, '[::1]', '[0:0:0:0:0:0:0:1]', '[::]', '[::ffff:127.0.0.1]', '[::ffff:7f00:5]'])
    expect([host, uses(`https://${host}:8441/`)]).toEqual([host, false])
})

test('goal: entries of no_proxy match names, all names below one, addresses and networks', () => {
  const table: [entry: string, matching: string[], other: string[]][] = [
    [
      'far.example',
      ['far.example', 'FAR.example', 'far.example.', 'far.example:8443'],
      ['a.far.example', 'xfar.example'],
    ],
    ['*.far.example', ['a.far.example', 'b.a.far.example.'], ['far.example', 'xfar.example', 'far.example.org']],
    ['192.0.2.1', ['192.0.2.1', '0xc0000201', '[::ffff:192.0.2.1]'], ['192.0.2.10', '192.0.2.1.example']],
    ['10.0.0.0/8', ['10.1.2.3:444', '[::ffff:a01:203]'], ['11.0.0.1', '[2001:db8::10]', '10.example']],
    ['2001:db8::/32', ['[2001:db8:1::5]', '[2001:0DB8::1]'], ['[2001:db9::1]', '192.0.2.1']],
    ['2001:db8::7', ['[2001:db8:0::7]'], ['[2001:db8::8]']],
  ]
  for (const [entry, matching, other] of table) {
    for (const host of matching) expect([entry, host, uses(`https://${host}/`, entry)]).toEqual([entry, host, false])
    for (const host of other) expect([entry, host, uses(`https://${host}/`, entry)]).toEqual([entry, host, true])
  }
})

test('goal: entries of another form are no entries', () => {
  const right = ['far.example', '*.example', 'intranet', '10.0.0.0/8', '0.0.0.0/0', '::/0', '2001:db8::1', '192.0.2.1']
  for (const entry of right) expect([entry, isNoProxyEntry(entry)]).toEqual([entry, true])
  const wrong = [
    '.example',
    'Far.example',
    'far.example:443',
    'https://far.example',
    '*',
    '*far.example',
    'a..b',
    'a b',
  ]
  const networks = ['10.0.0.0/33', '10.0.0.0/8/8', '10.0.0.0/', '10.0.0.0/08', '2001:db8::/129', '10.0.0', '[::1]', '']
  for (const entry of [...wrong, ...networks, 'fe80::1%eth0', 'a'.repeat(300)])
    expect([entry, isNoProxyEntry(entry)]).toEqual([entry, false])
})

test('goal: each failure names the proxy, and whose it is', () => {
  const far = new URL('https://hooks.example/secret-path')
  const said = (code: string, message: string, user = '') =>
    proxyFailure({ code, message }, far, { ...settings(), user })
  const refused = (status: number) => `Proxy refused to open a tunnel: ${status} Sorry`
  expect(said('ECONNREFUSED', 'x')).toBe('the proxy http://proxy.example:3128 cannot be reached: ECONNREFUSED')
  expect(said('ERR_PROXY_TUNNEL', refused(407))).toBe(
    'the proxy http://proxy.example:3128 refused (407): it needs a user: set network.proxy.user',
  )
  expect(said('ERR_PROXY_TUNNEL', refused(407), 'u')).toBe(
    'the proxy http://proxy.example:3128 refused (407): it does not accept the user of network.proxy',
  )
  expect(said('ERR_PROXY_TUNNEL', refused(429))).toBe(
    'the proxy http://proxy.example:3128 refused (429): it does not connect this host to hooks.example',
  )
  expect(said('CERT_HAS_EXPIRED', 'it has expired')).toBe('through the proxy http://proxy.example:3128: it has expired')
})

test('goal: a client’s environment names a proxy for https alone, with the exceptions of NO_PROXY', () => {
  const at = (url: string, env: Record<string, string>) => proxyInEnvironment(env, new URL(url))?.href ?? null
  const proxy = 'http://u:p@proxy.example:3128'
  for (const name of ['HTTPS_PROXY', 'https_proxy', 'ALL_PROXY', 'all_proxy'])
    expect([name, at('https://far.example/', { [name]: proxy })]).toEqual([name, `${proxy}/`])
  for (const env of [{}, { HTTP_PROXY: proxy }, { HTTPS_PROXY: '' }]) expect(at('https://far.example/', env)).toBeNull()
  expect(at('https://far.example/', { https_proxy: 'https://lower.example', HTTPS_PROXY: proxy })).toBe(
    'https://lower.example/',
  )
  for (const text of ['socks5://proxy.example', 'http://'])
    expect(() => at('https://far.example/', { HTTPS_PROXY: text })).toThrow(/^HTTPS_PROXY must be/)
  expect(() => at('https://far.example/', { ALL_PROXY: 'http://' })).toThrow(/^ALL_PROXY must be/)
  expect(at('https://far.example/', { ALL_PROXY: 'socks5://proxy.example:1080' })).toBeNull()
  for (const text of ['proxy.example:3128', 'u:p@proxy.example:3128', 'localhost:3128'])
    expect(at('https://far.example/', { HTTPS_PROXY: text })).toBe(`http://${text}/`)
})

test.each(noProxyCases)('goal: %p with NO_PROXY=%p is direct: %p', (url, NO_PROXY, isDirect) => {
  const proxy = proxyInEnvironment({ HTTPS_PROXY: 'http://proxy.example:3128', NO_PROXY }, new URL(url))
  expect(proxy === null).toBe(isDirect)
})
