// Goal: each response has both ids in its body, and repeats the correlation id in a header only where it cannot end it.

import { expect, test } from 'bun:test'
import {
  correlationHeaders,
  failureEnvelope,
  JsonData,
  Reply,
  successResponse,
} from '../../../src/instances/http/envelope.ts'

/** As Bun gives the field: one character for each byte. */
const asked = (correlation: string | null) => ({
  request: { headers: { get: (name: string) => (name === 'x-correlation-id' ? correlation : null) } } as never,
  requestId: 'r1',
})

test('goal: the data of a reply, its status and headers', async () => {
  const plain = successResponse(asked(null), new Reply({ a: 1 }))
  expect([plain.status, await plain.json()]).toEqual([200, { request_id: 'r1', correlation_id: null, data: { a: 1 } }])
  const made = successResponse(asked('c'), new Reply(null, { status: 201, headers: { 'X-A': '1' } }))
  expect([made.status, made.headers.get('x-a'), await made.json()]).toEqual([
    201,
    '1',
    { request_id: 'r1', correlation_id: 'c', data: null },
  ])
})

test('goal: data that is JSON already is passed on in its pieces', async () => {
  const pieces = ['[1,', new TextEncoder().encode('"é"'), ']']
  const response = successResponse(asked('c'), new Reply(new JsonData(pieces), { headers: { 'X-A': '1' } }))
  expect(response.headers.get('content-type')).toBe('application/json;charset=utf-8')
  expect(response.headers.get('x-a')).toBe('1')
  expect(await response.text()).toBe('{"request_id":"r1","correlation_id":"c","data":[1,"é"]}')
})

test('goal: a correlation id is shown as UTF-8 where it is, and else as Latin-1', () => {
  const shown = (text: string) => failureEnvelope(asked(text), { code: 'x', message: 'm' } as never).correlation_id
  expect(shown('plain')).toBe('plain')
  expect(shown(Buffer.from('Ä€').toString('latin1'))).toBe('Ä€')
  expect(shown('\xff')).toBe('\xff')
  expect(failureEnvelope(asked(null), { code: 'x', message: 'm' } as never)).toEqual({
    request_id: 'r1',
    correlation_id: null,
    error: { code: 'x', message: 'm' },
  } as never)
})

test('goal: only visible characters, space, tab and bytes from 0x80 go into the header', () => {
  expect(correlationHeaders(asked(null))).toEqual({})
  for (const text of ['', 'a b\tc', '\x20\x7e', '\x80\xff']) {
    expect(correlationHeaders(asked(text))).toEqual({ 'X-Correlation-ID': text })
  }
  for (const text of ['a\r\nb', '\x00', '\x1f', '\x7f', '\u0100']) expect(correlationHeaders(asked(text))).toEqual({})
})
