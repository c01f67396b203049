// Bodies as every service reads them: headers, limit, deadline, and what is said when one of them is not kept.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { failure } from '../../scripts/rigs/until.ts'
import { createDeadlines } from '../../src/base/work/deadlines.ts'
import { checkBodyHeaders, readBody } from '../../src/http/body.ts'
import { readJson } from '../../src/http/edge.ts'

const limits = { bytesMax: 16, timeoutMs: 1_000, depthMax: 4 }

function requestOf(body: string | ReadableStream<Uint8Array> | null, headers: Record<string, string> = {}): Request {
  return new Request('http://a.example/', { method: 'POST', body, headers })
}

function pieces(...parts: readonly string[]): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start: controller => {
      for (const part of parts) controller.enqueue(Buffer.from(part))
      controller.close()
    },
  })
}

// Goal: with a declared length and in pieces alike the limit is exact: its last byte passes, one more does not.
test('the limit of bytes', async () => {
  const deadlines = createDeadlines(createManualClock())
  const read = (request: Request) => readBody(request, limits, deadlines)
  const whole = 'x'.repeat(16)
  const bodies = (text: string) => [
    requestOf(text, { 'content-length': String(text.length) }),
    requestOf(pieces(text)),
    requestOf(pieces(...text)),
  ]
  for (const request of bodies(whole)) expect(Buffer.from(await read(request)).toString()).toBe(whole)
  for (const request of bodies(`${whole}x`)) {
    expect(await failure(read(request))).toMatchObject({
      code: 'body_too_large',
      message: 'The body is larger than 16 bytes.',
    })
  }
})

// Goal: at the deadline a stalled body is abandoned and its stream cancelled; a complete body is not disturbed.
test('the deadline', async () => {
  const clock = createManualClock()
  const deadlines = createDeadlines(clock)
  const cancelled = Promise.withResolvers<void>()
  const endless = new ReadableStream<Uint8Array>({
    start: controller => controller.enqueue(Buffer.from('{')),
    cancel: () => cancelled.resolve(),
  })
  const slow = failure(readBody(requestOf(endless), limits, deadlines))
  expect(await readJson(requestOf('{"a":1}'), limits, deadlines)).toEqual({ a: 1 })
  await clock.elapse(1_000)
  expect(await slow).toMatchObject({ code: 'body_timeout', message: 'The body did not arrive within 1000 ms.' })
  await cancelled.promise
})

// Goal: a stream that breaks and a body without bytes are the client's failures, in words.
test('bodies that are cut short or empty', async () => {
  const deadlines = createDeadlines(createManualClock())
  const broken = new ReadableStream<Uint8Array>({ start: controller => controller.error(new Error('reset')) })
  expect(await failure(readBody(requestOf(broken), limits, deadlines))).toMatchObject({
    code: 'invalid_request',
    message: 'The body ended early.',
  })
  for (const request of [requestOf(null), requestOf(''), requestOf(pieces())]) {
    expect(await failure(readBody(request, limits, deadlines))).toMatchObject({
      code: 'invalid_request',
      message: 'The body is empty; a JSON object is expected.',
    })
  }
})

// Goal: headers are checked before any byte: declared length, media type, charset if it matters, no compression.
test('headers', () => {
  const verdict = (headers: Record<string, string>, charset: 'utf-8' | 'any'): string => {
    try {
      checkBodyHeaders(new Headers(headers), { bytesMax: 16, charset })
      return 'read'
    } catch (error) {
      return String(Reflect.get(Object(error), 'code'))
    }
  }
  const TABLE: readonly (readonly [headers: Record<string, string>, strict: string, any: string])[] = [
    [{}, 'read', 'read'],
    [{ 'content-length': '16' }, 'read', 'read'],
    [{ 'content-length': '17' }, 'body_too_large', 'body_too_large'],
    [{ 'content-type': 'application/json' }, 'read', 'read'],
    [{ 'content-type': 'Application/JSON ; charset="UTF-8"' }, 'read', 'read'],
    [{ 'content-type': 'application/json; charset=latin1' }, 'invalid_request', 'read'],
    [{ 'content-type': 'application/jsonp' }, 'invalid_request', 'invalid_request'],
    [{ 'content-type': 'application/json, text/plain' }, 'invalid_request', 'invalid_request'],
    [{ 'content-type': 'text/plain' }, 'invalid_request', 'invalid_request'],
    [{ 'content-encoding': 'Identity' }, 'read', 'read'],
    [{ 'content-encoding': 'gzip' }, 'invalid_request', 'invalid_request'],
  ]
  for (const [headers, strict, any] of TABLE) {
    expect([headers, verdict(headers, 'utf-8'), verdict(headers, 'any')]).toEqual([headers, strict, any])
  }
})
