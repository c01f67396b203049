// Goal: a request through a proxy is verified to the far side, bounded, and fails as the proxy's own failure, whatever
// the proxy does; credentials and paths are in no error; the environment's proxies have no effect.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { systemErrorCode } from '../../../src/base/fault.ts'
import { getBounded } from '../../../src/linux/net/bounded-http.ts'
import { createOutgoing, fetchDirectly, ignoreProxyVariables } from '../../../src/linux/net/outgoing.ts'
import {
  type Answer,
  type FarSide,
  farName,
  startFarSide,
  startScriptedProxy,
} from '../../rigs/proxy/scripted-proxy.ts'
import { startTinyproxy, unpackTinyproxy } from '../../rigs/proxy/tinyproxy.ts'

const directory = mkdtempSync(join(tmpdir(), 'strongroom-outgoing-'))
const passwordFile = join(directory, 'password')
const password = 'pass:word%40'
writeFileSync(passwordFile, `${password}\n`)
let far: FarSide
beforeAll(async () => {
  far = await startFarSide()
})
afterAll(async () => {
  await far[Symbol.asyncDispose]()
  rmSync(directory, { recursive: true })
})

const tinyproxy = await unpackTinyproxy(directory)
const without = skipUnless(!('reason' in tinyproxy), 'reason' in tinyproxy ? tinyproxy.reason : '')

const outgoing = (url: string, { user = '', ...changes }: { user?: string; no_proxy?: string[] } = {}) =>
  createOutgoing({ url, user, password_file: user === '' ? '' : passwordFile, no_proxy: [], ...changes })
const farUrl = `https://${farName}/secret-path?token=t`
const ask = (send: ReturnType<typeof createOutgoing>, url = farUrl, timeoutMs = 20_000) =>
  send(url, { tls: { ca: far.ca }, signal: AbortSignal.timeout(timeoutMs) })

test('goal: a good proxy gets CONNECT with the user; the far side gets neither that nor an unverified request', async () => {
  await using proxy = await startScriptedProxy(far.port, (_, tunnel) => tunnel())
  far.requests.length = 0
  const response = await ask(outgoing(proxy.url, { user: 'us@er' }))
  expect([response.status, await response.text()]).toEqual([200, 'the far side'])
  const sent = Buffer.from(`us@er:${password}`).toString('base64')
  expect(proxy.heads[0]).toStartWith(`CONNECT ${farName}:443 HTTP/1.1\r\n`)
  expect(proxy.heads[0]).toContain(`Proxy-Authorization: Basic ${sent}\r\n`)
  expect(far.requests).toHaveLength(1)
  expect(far.requests[0]).not.toContain('proxy')
  // Another name, and another authority: the tunnel itself is granted.
  far.requests.length = 0
  expect((await failure(ask(outgoing(proxy.url), 'https://other.example/secret-path'))).message).toMatch(/ALTNAME/)
  const untrusted = outgoing(proxy.url)(farUrl, { signal: AbortSignal.timeout(20_000) })
  expect((await failure(untrusted)).message).toMatch(/certificate/)
  expect(far.requests).toEqual([])
})

test('goal: the certificate of an address is compared with that address, and never with the name of the proxy', async () => {
  for (const [host, right] of [
    ['192.0.2.1', '192.0.2.1'],
    ['[2001:db8::1]', '2001:db8::1'],
  ] as const) {
    for (const names of [[right], ['127.0.0.1', 'localhost', '192.0.2.2']]) {
      await using other = await startFarSide(names)
      await using proxy = await startScriptedProxy(other.port, (_, tunnel) => tunnel())
      const init = { keepalive: false, tls: { ca: other.ca }, signal: AbortSignal.timeout(20_000) }
      const asked = outgoing(proxy.url)(`https://${host}/`, init)
      if (names[0] === right) expect((await asked).status).toBe(200)
      else expect((await failure(asked)).message).toContain('ALTNAME')
      expect(other.requests).toHaveLength(names[0] === right ? 1 : 0)
    }
  }
})

test('goal: redirects and refusals of the far side stay its own responses', async () => {
  await using proxy = await startScriptedProxy(far.port, (_, tunnel) => tunnel())
  for (const status of [302, 407, 429, 502]) {
    far.respond = () => new Response(null, { status, headers: { location: 'https://other.example/' } })
    expect((await ask(outgoing(proxy.url))).status).toBe(status)
  }
  far.respond = () => new Response('the far side')
  expect(new Set(proxy.heads.map(head => head.split(' ')[1]))).toEqual(new Set([`${farName}:443`]))
})

test('goal: size and time of a response are bounded through the tunnel', async () => {
  await using proxy = await startScriptedProxy(far.port, (_, tunnel) => tunnel())
  const signal = new AbortController().signal
  const send = outgoing(proxy.url)
  const limits = { signal, bodyBytesMax: 1_000, send: (url: string | URL) => ask(send, String(url)) }
  far.respond = () => new Response('x'.repeat(1_001))
  expect(await getBounded(farUrl, { ...limits, timeoutMs: 20_000 })).toEqual({ kind: 'too-large' })
  far.respond = () =>
    new Response(
      new ReadableStream({
        pull: async controller => {
          await Bun.sleep(50)
          controller.enqueue(new Uint8Array(1))
        },
      }),
    )
  const slow = await getBounded(farUrl, {
    ...limits,
    timeoutMs: 500,
    send: (url, init) => send(url, { ...init, tls: { ca: far.ca } }),
  })
  expect(slow).toEqual({ kind: 'unreachable', reason: 'no response within 500 ms' })
  far.respond = () => new Response('the far side')
})

/** Writes pieces until the client is gone, or more came through than any bound admits. */
function flood(client: Socket, piece: string): void {
  let sentBytes = 0
  const write = () => {
    while (sentBytes < floodBytesMax && !client.destroyed) {
      sentBytes += piece.length
      if (!client.write(piece)) return void client.once('drain', write)
    }
    client.end()
  }
  write()
}
const floodBytesMax = 64 * 1024 * 1024
const page = 'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL'

const hostile: Record<string, [answer: Answer, reason: RegExp]> = {
  'no HTTP': [client => client.end('SSH-2.0-x\r\n\r\n\r\n'), /^through the proxy /],
  'a page instead of a tunnel': [client => client.end(page), /^through the proxy /],
  'plain text in the tunnel': [
    client => client.end(`HTTP/1.1 200 OK\r\n\r\n${page}`),
    /^through the proxy .*(TLS|closed|ECONNRESET)/,
  ],
  'a redirect': [
    client => client.end('HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n'),
    /refused \(302\): it does not connect this host to far\.example$/,
  ],
  'endless headers': [client => flood(client, `HTTP/1.1 200 OK\r\n${'X-A: bbbb\r\n'.repeat(5_000)}`), /^through the/],
  'an endless status line': [client => flood(client, `HTTP/1.1 200 ${'b'.repeat(60_000)}`), /^through the proxy /],
  'an endless refusal': [
    client => {
      client.write('HTTP/1.1 503 No\r\n\r\n')
      flood(client, 'b'.repeat(60_000))
    },
    /refused \(503\)/,
  ],
  'an end without an answer': [client => client.end(), /^through the proxy /],
  'an end half way': [client => client.end('HTTP/1.1 200 O'), /^through the proxy /],
  'an end after the tunnel': [client => client.end('HTTP/1.1 200 OK\r\n\r\n'), /^through the proxy /],
  'no user': [client => client.end('HTTP/1.1 407 Give\r\nContent-Length: 0\r\n\r\n'), /refused \(407\)/],
  'its own limit': [client => client.end('HTTP/1.1 429 No\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n'), /\(429\)/],
}

test.each(Object.entries(hostile))('goal: an answer of the proxy is no response: %s', async (_, [answer, reason]) => {
  await using proxy = await startScriptedProxy(far.port, answer)
  far.requests.length = 0
  const send = outgoing(proxy.url, { user: 'user-word' })
  const { message } = await failure(ask(send))
  expect(message).toMatch(reason)
  expect(message).toContain(proxy.url)
  for (const secret of ['user-word', password, 'secret-path', 'EVIL', '\x1b', 'token'])
    expect(message).not.toContain(secret)
  expect(far.requests).toEqual([])
  await until('the connection is closed', 20_000, () => proxy.openCount() === 0)
})

const slow: Record<string, Answer> = {
  'is silent': () => {},
  'sends a header at a time': client => {
    client.write('HTTP/1.1 200 OK\r\n')
    const timer = setInterval(() => client.write('X-A: b\r\n'), 20)
    client.on('close', () => clearInterval(timer))
  },
  'opens a tunnel to nowhere': client => client.write('HTTP/1.1 200 OK\r\n\r\n'),
}

test.each(Object.entries(slow))('goal: the time of the whole request counts for a proxy that %s', async (_, answer) => {
  await using proxy = await startScriptedProxy(far.port, answer)
  const started = performance.now()
  expect((await failure(ask(outgoing(proxy.url), farUrl, 300))).message).toContain('timed out')
  expect(performance.now() - started).toBeLessThan(10_000)
  await until('the connection is closed', 20_000, () => proxy.openCount() === 0)
})

test('goal: a proxy that is not there, and a file without a password, are named', async () => {
  const nobody = await startScriptedProxy(far.port, () => {})
  await nobody[Symbol.asyncDispose]()
  expect((await failure(ask(outgoing(nobody.url)))).message).toBe(
    `the proxy ${nobody.url} cannot be reached: ECONNREFUSED`,
  )
  const missing = createOutgoing({ url: nobody.url, user: 'u', password_file: '/nonexistent/p', no_proxy: [] })
  expect((await failure(ask(missing))).message).toContain('network.proxy.password_file /nonexistent/p cannot be read')
})

test('goal: variables of the environment neither add a proxy nor take one away', async () => {
  await using proxy = await startScriptedProxy(far.port, (_, tunnel) => tunnel())
  const url = `https://127.0.0.1:${far.port}/`
  // A connection that is kept would hide that the proxy is used.
  const init = { keepalive: false, tls: { rejectUnauthorized: false } }
  const environment = { https_proxy: proxy.url, HTTPS_PROXY: proxy.url, NO_PROXY: '*', no_proxy: farName }
  try {
    process.env.HTTPS_PROXY = proxy.url
    // The variable has an effect on fetch itself.
    expect((await fetch(url, init)).status).toBe(200)
    expect(proxy.heads).toHaveLength(1)
    for (const send of [fetchDirectly, outgoing('http://127.0.0.1:9')]) expect((await send(url, init)).status).toBe(200)
    expect(proxy.heads).toHaveLength(1)
    Object.assign(process.env, environment)
    expect(ignoreProxyVariables()).toEqual(['HTTPS_PROXY', 'https_proxy', 'NO_PROXY', 'no_proxy'])
    expect(await (await ask(outgoing(proxy.url))).text()).toBe('the far side')
    expect(proxy.heads).toHaveLength(2)
  } finally {
    for (const name of Object.keys(environment)) delete process.env[name]
  }
})

test('goal: an error of a direct request has no path either', async () => {
  const send = fetchDirectly(`https://127.0.0.1:${far.port}/secret-path`, { tls: { ca: far.ca } })
  const { message } = await failure(send)
  expect(message).toMatch(/ALTNAME/)
  expect(message).not.toContain('secret-path')
})

test('goal: an error without a code gets none, because others show a code instead of the message', async () => {
  const error = await failure(fetchDirectly(`https://127.0.0.1:${far.port}/`, { headers: { a: 'b\0' } }))
  expect([error.message, systemErrorCode(error)]).toEqual([expect.stringContaining('invalid value'), null])
  const named = await failure(ask(outgoing('http://127.0.0.1:1')))
  expect(systemErrorCode(named)).toBe('ECONNREFUSED')
})

test('goal: an error has no advice for programmers', async () => {
  await using proxy = await startScriptedProxy(far.port, client => client.end())
  for (const send of [outgoing(proxy.url), fetchDirectly]) {
    const { message } = await failure(ask(send, send === fetchDirectly ? proxy.url : farUrl))
    expect(message).toEndWith('The socket connection was closed unexpectedly.')
  }
  const limits = { timeoutMs: 20_000, bodyBytesMax: 9, signal: new AbortController().signal }
  expect(await getBounded(proxy.url, limits)).toEqual({
    ...{ kind: 'unreachable', reason: 'ECONNRESET: The socket connection was closed unexpectedly.' },
  })
})

test.skipIf(without)('goal: tinyproxy leads to the far side, and its refusals are its own', async () => {
  if ('reason' in tinyproxy) throw new Error(tinyproxy.reason)
  const filter = join(directory, 'filter')
  writeFileSync(filter, '^denied\\.example$\n')
  const lines = [`ConnectPort ${far.port}`, `BasicAuth user ${'pass-word'}`, `Filter "${filter}"`]
  await using proxy = await startTinyproxy(tinyproxy.path, { directory, names: [farName, 'denied.example'], lines })
  const url = `https://${farName}:${far.port}/`
  const secret = join(directory, 'tinyproxy-password')
  writeFileSync(secret, 'pass-word')
  const settings = { url: proxy.url, user: 'user', password_file: secret, no_proxy: [] }
  expect(await (await ask(createOutgoing(settings), url)).text()).toBe('the far side')
  const refusals: [string, Partial<typeof settings>, string][] = [
    [`https://denied.example:${far.port}/`, {}, 'refused (403)'],
    [`https://${farName}:444/`, {}, 'refused (403)'],
    [url, { password_file: passwordFile }, 'refused (401): it does not accept the user'],
    [url, { user: '', password_file: '' }, 'refused (407): it needs a user'],
  ]
  for (const [url, changes, reason] of refusals)
    expect((await failure(ask(createOutgoing({ ...settings, ...changes }), url))).message).toContain(reason)
})
