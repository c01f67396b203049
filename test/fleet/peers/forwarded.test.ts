// Goal: a request that one host passes to another leaves the client's proofs behind, and what belongs to a connection
// ends with it; the end of an answer is noticed once, however it comes.

import { expect, test } from 'bun:test'
import { failure } from '../../../scripts/rigs/until.ts'
import { peerField } from '../../../src/fleet/peers/call.codec.ts'
import { requestHeaders, responseHeaders, untilEnd } from '../../../src/fleet/peers/forwarded.ts'

const ofConnection = [
  ...['connection', 'keep-alive', 'proxy-connection', 'proxy-authenticate', 'proxy-authorization', 'te', 'trailer'],
  ...['transfer-encoding', 'upgrade', 'expect'],
]
const shown = (headers: Headers) => Object.fromEntries(headers)
const headersOf = (names: readonly string[]) => new Headers(names.map(name => [name, 'x']))

test('goal: the key, the cookie and the field by which hosts call each other are not passed on', () => {
  const secrets = ['authorization', 'cookie', 'x-api-key', peerField]
  const headers = headersOf([...secrets, ...ofConnection, 'content-type', 'x-request-id'])
  expect(shown(requestHeaders(headers))).toEqual({
    'accept-encoding': 'identity',
    'content-type': 'x',
    'x-request-id': 'x',
  })
  expect(headers.get('authorization')).toBe('x')
  expect(shown(requestHeaders(new Headers({ 'accept-encoding': 'gzip' })))).toEqual({ 'accept-encoding': 'gzip' })
})

test('goal: an answer is passed on whole but for its connection', () => {
  expect(shown(responseHeaders(headersOf([...ofConnection, 'set-cookie', 'retry-after'])))).toEqual({
    'retry-after': 'x',
    'set-cookie': 'x',
  })
})

test('goal: fields that Connection names end with the connection, and a name that is none harms nothing', () => {
  const headers = new Headers({ connection: 'X-Own, close , ,"a b"', 'x-own': '1', close: '1', 'x-other': '1' })
  expect(shown(responseHeaders(headers))).toEqual({ 'x-other': '1' })
})

test('goal: the end is noticed once: without a body, at its end, when it breaks and when it is left', async () => {
  let ends = 0
  const end = () => {
    ends += 1
  }
  const passed = (body: string | ReadableStream<Uint8Array> | null) =>
    untilEnd(new Response(body, { status: 203 }), new Headers({ a: 'b' }), end)
  const empty = passed(null)
  expect([ends, empty.status, empty.headers.get('a'), empty.body]).toEqual([1, 203, 'b', null])
  const whole = passed('text')
  expect([ends, whole.status]).toEqual([1, 203])
  expect([await whole.text(), ends]).toEqual(['text', 2])
  const broken = passed(
    new ReadableStream({
      pull: controller => controller.error(new Error('cut')),
    }),
  )
  expect([(await failure(broken.text())).message, ends]).toEqual(['cut', 3])
  let reason: unknown = null
  const left = passed(
    new ReadableStream({
      pull: controller => controller.enqueue(new Uint8Array(1)),
      cancel: given => {
        reason = given
      },
    }),
  )
  await left.body?.cancel('enough')
  expect([ends, reason]).toEqual([4, 'enough'])
})
