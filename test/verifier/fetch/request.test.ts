// Goal: an attested request goes to the gateway of its options alone, on its own connection, and says nothing of that
// connection itself.

import { expect, test } from 'bun:test'
import { failure } from '../../../scripts/rigs/until.ts'
import { readRequest } from '../../../src/verifier/fetch/request.ts'

const settings = { origin: new URL('https://gw.test:8442'), prefix: '', requestBytesMax: 8 }
const read = (input: string | URL | Request, init?: RequestInit, changes: object = {}) =>
  readRequest(input, init, { ...settings, ...changes })

test('goal: method, URL without its fragment, headers and body, from each form of the arguments', async () => {
  const url = 'https://gw.test:8442/v1/models?a=b#part'
  for (const input of [url, new URL(url), new Request(url)]) {
    const { method, url: sent, body, signal } = await read(input)
    expect([method, sent.href, body]).toEqual(['GET', 'https://gw.test:8442/v1/models?a=b', null])
    expect(signal === null || signal instanceof AbortSignal).toBe(true)
  }
  const headers = { authorization: 'Bearer k', 'content-type': 'text/x', 'x-a': '1' }
  const sent = await read(url, { method: 'POST', headers, body: 'text' })
  expect([sent.method, new TextDecoder().decode(sent.body ?? new Uint8Array())]).toEqual(['POST', 'text'])
  expect(Object.fromEntries(sent.headers)).toEqual(headers)
  const stream = new Response('text').body
  expect(Buffer.from((await read(url, { method: 'POST', body: stream })).body ?? []).toString()).toBe('text')
  const controller = new AbortController()
  expect((await read(new Request(url), { signal: controller.signal })).signal).toBe(controller.signal)
})

test('goal: what belongs to the connection is left out', async () => {
  const names = [
    ...['accept-encoding', 'connection', 'content-length', 'expect', 'host', 'keep-alive', 'proxy-authorization'],
    ...['proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade'],
  ]
  const headers = Object.fromEntries(names.map(name => [name, '1']))
  const sent = await read('https://gw.test:8442/v1', { headers: { ...headers, accept: 'text/x' } })
  expect(Object.fromEntries(sent.headers)).toEqual({ accept: 'text/x' })
})

test('goal: every other way than the attested connection is refused by its name', async () => {
  for (const name of ['agent', 'client', 'dispatcher', 'proxy', 'tls', 'unix', 'verbose']) {
    for (const value of ['x', {}, null, false]) {
      const refused = await failure(read('https://gw.test:8442/v1', { [name]: value } as RequestInit))
      expect(refused).toMatchObject({
        name: 'RequestError',
        message: `${name}: an attested request takes its own connection; leave it out`,
      })
    }
    const { method } = await read('https://gw.test:8442/v1', { [name]: undefined } as RequestInit)
    expect(method).toBe('GET')
  }
})

test('goal: another origin, and a path outside the prefix, is refused with the address to use', async () => {
  const prefix = { prefix: '/team' }
  for (const url of [
    'https://gw.test/v1',
    'http://gw.test:8442/v1',
    'https://gw.test:8443/v1',
    'https://gw.test.evil:8442/v1',
    'https://gw.test:8442@evil/v1',
  ]) {
    expect(await failure(read(url))).toMatchObject({
      name: 'RequestError',
      message: expect.stringContaining('is not the attested gateway, which is https://gw.test:8442; give the client'),
    })
  }
  for (const path of ['/v1', '/team', '/teams/v1', '/team/../v1', '/%74eam/v1']) {
    expect([path, await failure(read(`https://gw.test:8442${path}`, {}, prefix))]).toMatchObject([
      path,
      { message: expect.stringContaining('which is https://gw.test:8442/team; give the client') },
    ])
  }
  expect((await read('https://gw.test:8442/team/v1', {}, prefix)).url.pathname).toBe('/team/v1')
})

test('goal: the largest body, and one byte more; what is no request is said to be none; an abort is passed on', async () => {
  const post = (body: string) => read('https://gw.test:8442/v1', { method: 'POST', body })
  expect((await post('x'.repeat(8))).body).toHaveLength(8)
  expect(await failure(post('x'.repeat(9)))).toMatchObject({
    name: 'RequestError',
    message: 'the body has 9 bytes, and requestBytesMax is 8',
  })
  for (const [input, init] of [
    ['/v1', {}],
    ['no address', {}],
    ['https://gw.test:8442/v1', { headers: { 'a b': '1' } }],
  ] as const) {
    expect(await failure(read(input, init))).toMatchObject({
      name: 'RequestError',
      message: expect.stringContaining('no request can be made of it: '),
    })
  }
  const reason = new Error('enough')
  expect(await failure(read('https://gw.test:8442/v1', { signal: AbortSignal.abort(reason) }))).toBe(reason)
})
