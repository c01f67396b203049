// Goal: a client's requests that judge a certificate go through the proxy that its environment names, to the verified
// far side; what the proxy answers is never an answer of the far side, and is bounded.

import { afterAll, afterEach, beforeAll, expect, test } from 'bun:test'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { CertificateError } from '../../../src/linux/net/tls-get.ts'
import { getByEnvironment } from '../../../src/linux/net/tunnel.ts'
import { noProxyCases } from '../../rigs/proxy/no-proxy-cases.ts'
import {
  type Answer,
  type FarSide,
  farName,
  startFarSide,
  startScriptedProxy,
} from '../../rigs/proxy/scripted-proxy.ts'

let far: FarSide
beforeAll(async () => {
  far = await startFarSide()
})
afterAll(() => far[Symbol.asyncDispose]())
afterEach(() => {
  for (const name of ['HTTPS_PROXY', 'NO_PROXY']) delete process.env[name]
})

const get = (proxy: string, { host = farName, timeoutMs = 20_000, ca = far.ca, ...more } = {}) => {
  process.env.HTTPS_PROXY = proxy
  return getByEnvironment({ url: new URL(`https://${host}/x`), ca, timeoutMs, bodyBytesMax: 1_000, ...more })
}

test('goal: a good proxy gets the user; the certificate is the one of the far side, and is judged', async () => {
  await using proxy = await startScriptedProxy(far.port, (_, tunnel) => tunnel())
  far.requests.length = 0
  const answer = await get(proxy.url.replace('//', '//us%40er:pa%3Ass@'))
  expect([answer.status, Buffer.from(answer.body).toString(), answer.certificateFault]).toEqual([
    ...[200, 'the far side', null],
  ])
  const sent = Buffer.from('us@er:pa:ss').toString('base64')
  expect(proxy.heads).toEqual([
    `CONNECT ${farName}:443 HTTP/1.1\r\nHost: ${farName}:443\r\nProxy-Authorization: Basic ${sent}\r\n\r\n`,
  ])
  await until('the connection is closed', 20_000, () => proxy.openCount() === 0)
  far.requests.length = 0
  const other = get(proxy.url, { host: 'other.example', authorization: 'Bearer secret' } as object)
  expect((await failure(other)).message).toMatch(/^ERR_TLS_CERT_ALTNAME/)
  expect(far.requests).toEqual([])
  expect((await failure(get('socks5://proxy.example:1080'))).message).toMatch(/^HTTPS_PROXY must be/)
  process.env.NO_PROXY = farName
  // The name does not exist here: only the proxy leads to it.
  expect((await failure(get(proxy.url))).message).not.toContain('proxy')
  expect(proxy.heads).toHaveLength(2)
})

test('goal: the certificate of an address is compared with that address, and never with the name of the proxy', async () => {
  const [v4, v6] = ['192.0.2.1', '2001:db8::1']
  const authorization = 'Bearer secret'
  for (const [host, right, wrong] of [
    [v4, v4, ['192.0.2.2', v6, '127.0.0.1', 'localhost']],
    [`[${v6}]`, v6, ['2001:db8::2', v4, '127.0.0.1', 'localhost']],
  ] as const) {
    await using good = await startFarSide([right])
    await using proxy = await startScriptedProxy(good.port, (_, tunnel) => tunnel())
    const answer = await get(proxy.url, { host, ca: good.ca, authorization } as object)
    expect([host, answer.status, answer.certificateFault]).toEqual([host, 200, null])
    const named = proxy.url.replace('127.0.0.1', 'localhost')
    expect((await get(named, { host, ca: good.ca, authorization } as object)).status).toBe(200)
    await using bad = await startFarSide(wrong)
    await using other = await startScriptedProxy(bad.port, (_, tunnel) => tunnel())
    for (const url of [other.url, other.url.replace('127.0.0.1', 'localhost')]) {
      const refused = await failure(get(url, { host, ca: bad.ca, authorization } as object))
      expect([host, refused instanceof CertificateError, refused.message]).toEqual([
        ...[host, true, expect.stringContaining('ALTNAME')],
      ])
    }
    expect(bad.requests).toEqual([])
  }
})

test('goal: fetch, which other requests of clients are sent by, reads NO_PROXY alike', async () => {
  await using proxy = await startScriptedProxy(far.port, client => client.end('HTTP/1.1 503 No\r\n\r\n'))
  process.env.HTTPS_PROXY = proxy.url
  for (const [url, entries, isDirect] of noProxyCases) {
    process.env.NO_PROXY = entries
    proxy.heads.length = 0
    // Nothing is there, whichever way it goes.
    await failure(fetch(url, { signal: AbortSignal.timeout(2_000) }))
    expect([url, entries, proxy.heads.length === 0]).toEqual([url, entries, isDirect])
  }
})

const page = 'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL'
const hostile: Record<string, [answer: Answer, reason: RegExp]> = {
  'no HTTP': [client => client.end('SSH-2.0-x\r\n\r\n'), /^the proxy .*: its response is no HTTP$/],
  'a page instead of a tunnel': [client => client.end(page), /^the proxy .*: its response is no tunnel$/],
  'plain text in the tunnel': [
    client => {
      client.write('HTTP/1.1 200 OK\r\n\r\n')
      client.once('data', () => client.end(page))
    },
    /^through the proxy .*: .*(TLS|closed|ssl)/i,
  ],
  'endless headers': [
    client => client.write(`HTTP/1.1 200 OK\r\n${'X-A: bbbb\r\n'.repeat(10_000)}`),
    /its response is no tunnel$/,
  ],
  'an end without an answer': [client => client.end(), /closed/],
  'a refusal with a page': [client => client.end(page.replace('200 OK', '403 No')), /it refused \(403\)$/],
  'its own limit': [client => client.end('HTTP/1.1 429 No\r\nRetry-After: 9\r\n\r\n'), /it refused \(429\)$/],
  'no user': [client => client.end('HTTP/1.1 407 Sorry\r\n\r\n'), /refused \(407\): give a user and password in HTTPS/],
  silence: [() => {}, /no response within 300 ms/],
  'a header at a time': [
    client => {
      client.write('HTTP/1.1 200 OK\r\n')
      const timer = setInterval(() => client.write('X-A: b\r\n'), 20)
      client.on('close', () => clearInterval(timer))
    },
    /no response within 300 ms/,
  ],
  'an end after the tunnel': [client => client.end('HTTP/1.1 200 OK\r\n\r\n'), /^through the proxy .*: ./],
  'a tunnel to nowhere': [
    client => void setTimeout(() => client.write('HTTP/1.1 200 OK\r\n\r\n'), 50),
    /^through the proxy .*: no response within 300 ms$/,
  ],
}

test.each(Object.entries(hostile))('goal: no answer of the far side: %s', async (name, [answer, reason]) => {
  await using proxy = await startScriptedProxy(far.port, answer)
  const isSlow = ['silence', 'a header at a time', 'a tunnel to nowhere'].includes(name)
  far.requests.length = 0
  const url = proxy.url.replace('//', '//user:pass-word@')
  const { message } = await failure(get(url, { timeoutMs: isSlow ? 300 : 20_000 }))
  expect(message).toMatch(reason)
  for (const secret of ['pass-word', 'EVIL']) expect(message).not.toContain(secret)
  expect(far.requests).toEqual([])
  await until('the connection is closed', 20_000, () => proxy.openCount() === 0)
})
