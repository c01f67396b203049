// Large bodies and the thread that parses them: whose turn it is, and what becomes of a failure.

import { afterEach, expect, test } from 'bun:test'
import { MODEL } from '../../../scripts/rigs/gateway/server.ts'
import { fromUtf8, utf8 } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { createLogger } from '../../../src/base/log.ts'
import type { ThreadRefusal } from '../../../src/base/work/request-thread.ts'
import {
  createLargeBodies,
  type LargeBodies,
  type LargeCompletion,
} from '../../../src/inference/gateway/bodies/large-bodies.ts'
import type { FromThread, ToThread } from '../../../src/inference/gateway/bodies/thread.ts'

const log = createLogger({ level: 'error', sink: () => {}, nowMs: Date.now })
const deps = { clock: systemClock, random: systemRandom, log }
let bodies: LargeBodies | null = null
afterEach(() => {
  bodies?.close()
  bodies = null
})

const largeOf = (text: string, more: Partial<LargeCompletion> = {}): LargeCompletion => ({
  body: utf8(text),
  owner: 'o',
  signal: new AbortController().signal,
  hasLabels: true,
  operation: 'chat',
  keepsItems: true,
  earlier: null,
  earlierOf: () => Promise.reject(new Error('nothing is earlier')),
  ...more,
})
const chatOf = (content: string) => JSON.stringify({ model: MODEL, messages: [{ role: 'user', content }], user: 'u1' })

type Ask = (message: ToThread) => Promise<FromThread | ThreadRefusal>

/** A thread that answers by this function. */
function threadOf(ask: Ask) {
  const ended = Promise.withResolvers<string>()
  return { ask, askInTime: ask, end: ended.resolve, ended: ended.promise }
}

// Goal: the thread itself gives what the serving thread goes on with, and the client's bytes come back.
test('a body', async () => {
  bodies = createLargeBodies(deps)
  const text = chatOf('x'.repeat(200_000))
  const { read, body } = await bodies.readCompletion(largeOf(text))
  expect(fromUtf8(body)).toBe(text)
  expect(read).toMatchObject({ request: { model: MODEL, stream: false }, labels: { endUser: 'u1', tags: null } })
  expect([read.bodyBytes, read.promptEstimate]).toEqual([text.length, Math.ceil(text.length / 4)])
  expect(read.source.text.length).toBeLessThan(200)
  const pieces = read.values?.putBack(read.source.text) ?? []
  expect(JSON.parse(Buffer.concat(pieces).toString())).toEqual(JSON.parse(text))
})

// Goal: a client's mistake gets the same error as in a small body, and the thread goes on.
test('faults', async () => {
  bodies = createLargeBodies(deps)
  await expect(bodies.readCompletion(largeOf('{'))).rejects.toMatchObject({ code: 'invalid_request' })
  const { readCompletion } = bodies
  await expect(readCompletion(largeOf(`{"model":"m","messages":[{"role":"x"}]}`))).rejects.toMatchObject({
    code: 'invalid_request',
    param: 'messages[0].role',
  })
  const strict = { type: 'json_schema', json_schema: { name: 's', strict: true, schema: { a: 'x'.repeat(300_000) } } }
  const text = JSON.stringify({ ...JSON.parse(chatOf('x')), response_format: strict })
  await expect(readCompletion(largeOf(text))).rejects.toThrow('is longer than 262144 characters')
  const format = { type: 'json_schema', name: 's', schema: { a: 'x'.repeat(300_000) } }
  const asked = { model: MODEL, input: 'x', text: { format } }
  await expect(readCompletion(largeOf(JSON.stringify(asked), { operation: 'responses' }))).rejects.toThrow(
    'text.format and tool_choice are longer than 262144 characters together',
  )
  expect((await readCompletion(largeOf(chatOf('x')))).read.request.model).toBe(MODEL)
})

// Goal: what a request builds on is loaded once its ids are known, and stands before its own input.
test('earlier responses', async () => {
  bodies = createLargeBodies(deps)
  const asked = { model: MODEL, previous_response_id: 'resp_1', input: [{ type: 'item_reference', id: 'msg_2' }] }
  const { read } = await bodies.readCompletion(
    largeOf(JSON.stringify(asked), {
      operation: 'responses',
      earlierOf: async ids => {
        expect(ids).toEqual({ previous: 'resp_1', named: ['msg_2'] })
        return {
          items: [
            { role: 'user', content: 'first' },
            { role: 'assistant', content: 'x'.repeat(100_000) },
          ],
          named: new Map([['msg_2', { type: 'message', role: 'user', content: 'named' }]]),
        }
      },
    }),
  )
  const sent = JSON.parse(Buffer.concat(read.values?.putBack(read.source.text) ?? []).toString())
  expect(sent.messages.map(({ content }: { content: string }) => content.slice(0, 9))).toEqual([
    'first',
    'xxxxxxxxx',
    'named',
  ])
  expect(read.traits?.input).toEqual({ text: '[{"type":"message","role":"user","content":"named"}]' })
})

// Goal: an organization with many large bodies delays another one by one of them.
test('turns', async () => {
  const seen: string[] = []
  const ask: Ask = async ({ body }) => {
    seen.push(fromUtf8(body))
    await new Promise<void>(resolve => setImmediate(resolve))
    return { kind: 'fault', code: 'invalid_request', message: 'x', param: undefined }
  }
  bodies = createLargeBodies({ ...deps, begin: () => threadOf(ask) })
  const { readCompletion } = bodies
  const send = (text: string, owner: string) => readCompletion(largeOf(text, { owner })).catch(() => null)
  await Promise.all([send('a1', 'a'), send('a2', 'a'), send('a3', 'a'), send('b1', 'b'), send('b2', 'b')])
  expect(seen).toEqual(['a1', 'b1', 'a2', 'b2', 'a3'])
})

// Goal: a body whose client has left costs the thread nothing.
test('a client that has left', async () => {
  const seen: string[] = []
  const ask: Ask = async ({ body }) => {
    seen.push(fromUtf8(body))
    return { kind: 'fault', code: 'invalid_request', message: 'x', param: undefined }
  }
  bodies = createLargeBodies({ ...deps, begin: () => threadOf(ask) })
  const leaving = new AbortController()
  const first = bodies.readCompletion(largeOf('first'))
  const second = bodies.readCompletion(largeOf('second', { signal: leaving.signal }))
  leaving.abort(new Error('gone'))
  const reasons = (await Promise.allSettled([first, second])).map(end => (end as PromiseRejectedResult).reason.message)
  expect(reasons).toEqual(['x', 'gone'])
  expect(seen).toEqual(['first'])
})

// Goal: a thread that ends fails the body that it had, and the next body has another thread.
test('a thread that ends', async () => {
  let begun = 0
  const ask: Ask = async () =>
    begun === 1
      ? { kind: 'refused', reason: 'it has no memory' }
      : { kind: 'fault', code: 'invalid_request', message: 'read', param: undefined }
  bodies = createLargeBodies({
    ...deps,
    begin: () => {
      begun += 1
      return threadOf(ask)
    },
  })
  const { readCompletion } = bodies
  await expect(readCompletion(largeOf('a'))).rejects.toThrow('This large body could not be read.')
  await expect(readCompletion(largeOf('b'))).rejects.toThrow('read')
  expect(begun).toBe(2)
})
