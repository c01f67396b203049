// The end of a stream that has a receipt, while its signature is being made.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../../scripts/rigs/clock.ts'
import { chatBody } from '../../../../scripts/rigs/gateway/server.ts'
import { delta, sse } from '../../../../scripts/rigs/gateway/upstream-server.ts'
import { present } from '../../../../src/base/assert.ts'
import { fromUtf8, utf8 } from '../../../../src/base/bytes.ts'
import { createDeadlines } from '../../../../src/base/work/deadlines.ts'
import { openStream } from '../../../../src/inference/gateway/streams/stream.ts'
import { parseRequest } from '../../../../src/inference/openai/request.ts'
import type { UpstreamResponse } from '../../../../src/inference/upstream/connection.ts'

async function streamWith(finish: () => Promise<string>) {
  const first = [utf8(`${sse(delta({ content: 'Hi' }))}${sse(delta({}, 'stop'))}data: [DONE]\n\n`)]
  const upstream: UpstreamResponse = {
    head: {
      status: 200,
      contentType: 'text/event-stream',
      contentEncoding: '',
      contentLength: null,
      retryAfterSeconds: null,
    },
    read: () => Promise.resolve(first.pop() ?? null),
    takeWhole: () => null,
    pushTo: () => ({ pause: () => {}, resume: () => {} }),
    abort: () => {},
  }
  const { request } = parseRequest('chat', utf8(JSON.stringify(chatBody({ stream: true }))))
  const ends: string[] = []
  const { body } = await openStream(upstream, {
    deadlines: createDeadlines(createManualClock()),
    limits: {
      responseBytesMax: 10_000,
      eventBytesMax: 10_000,
      firstByteTimeoutMs: 10_000,
      idleTimeoutMs: 10_000,
      stallTimeoutMs: 10_000,
    },
    plan: { request, id: 'chatcmpl-1', createdS: 7, schema: null, obfuscate: null, dialect: null },
    counts: { bounds: { promptTokensMax: 9, completionTokensMax: 9 }, promptEstimate: 1, showsCached: false },
    seal: { update: () => {}, finish },
    onEnd: async ({ outcome }) => {
      ends.push(outcome)
    },
    signal: new AbortController().signal,
    readBy: 'reader',
    early: null,
  })
  const reader = present(body, 'nothing was sent before').getReader()
  const readAll = async () => {
    let text = ''
    for (let next = await reader.read(); !next.done; next = await reader.read()) text += fromUtf8(next.value)
    return text
  }
  return { reader, ends, readAll }
}

test('a stream that waits for its signature', async () => {
  // Goal: it has ended for its upstream; the client gets its end with the receipt only.
  const { promise, resolve } = Promise.withResolvers<string>()
  const { reader, ends, readAll } = await streamWith(() => promise)
  expect(fromUtf8((await reader.read()).value ?? new Uint8Array(0))).toContain('Hi')
  await Bun.sleep(0)
  expect(ends).toEqual(['completed'])
  resolve('AAAA')
  const rest = await readAll()
  expect(rest).toContain('AAAA')
  expect(rest).toEndWith('data: [DONE]\n\n')
})

test('a signature that cannot be made', async () => {
  // Goal: the client sees that the stream has failed, not an end without the receipt it asked for, and no endless wait.
  const { ends, readAll } = await streamWith(() => Promise.reject(new Error('no memory')))
  const text = await readAll()
  expect(text).toContain('"code":"internal"')
  expect(text).not.toContain('[DONE]')
  expect(ends).toEqual(['completed'])
})
