// Constraints on an answer, through the whole gateway: routing, small and large bodies, and the check of the answer.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { MODEL, startGateway, target } from '../../../../scripts/rigs/gateway/server.ts'
import { sendJson, startUpstream, type TestUpstream } from '../../../../scripts/rigs/gateway/upstream-server.ts'
import type { Engine } from '../../../../src/config/upstream/kinds.ts'

let undo: AsyncDisposableStack
let upstream: TestUpstream

beforeEach(async () => {
  undo = new AsyncDisposableStack()
  upstream = await startUpstream()
  undo.defer(upstream.stop)
})

afterEach(() => undo.disposeAsync())

const gatewayOf = async (...targets: ReturnType<typeof target>[]) =>
  undo.use(await startGateway(targets, { limits: { bodyBytesMax: 8_388_608 } }))
const on = (engine: Engine) => gatewayOf(target(upstream.url, { engine }))
const chat = (text: string, fields: object) => ({
  model: MODEL,
  messages: [{ role: 'user', content: text }],
  ...fields,
})
const completion = (content: string) => ({
  choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 },
})

const LONG_SCHEMA = { type: 'object', description: 'd'.repeat(2_000), required: ['a'] }

// Goal: bodies that a thread parses, whose long values are cut out, have the same form.
test.each(['Hi', 'y'.repeat(200_000)])('small and large bodies %#', async text => {
  upstream.behave = response => sendJson(response, 200, completion('{"a":1}'))
  const vllm = await on('vllm')
  const strict = { type: 'json_schema', json_schema: { name: 'output', strict: true, schema: LONG_SCHEMA } }
  for (const fields of [{ guided_json: LONG_SCHEMA }, { structured_outputs: { json: JSON.stringify(LONG_SCHEMA) } }]) {
    const answer = await vllm.post('/v1/chat/completions', chat(text, fields))
    expect([answer.status, answer.headers.get('x-strongroom-ignored')]).toEqual([200, null])
    const { response_format, guided_json, structured_outputs } = upstream.seen.at(-1)?.body ?? {}
    expect([response_format, guided_json, structured_outputs]).toEqual([strict, undefined, undefined])
  }
  await vllm.post('/v1/chat/completions', chat(text, { guided_choice: ['a', 'b'] }))
  expect(upstream.seen.at(-1)?.body).toMatchObject({
    guided_choice: ['a', 'b'],
    structured_outputs: { choice: ['a', 'b'] },
  })
  const llama = await on('llama-server')
  upstream.behave = response => sendJson(response, 200, { choices: [{ index: 0, text: '{}', finish_reason: 'stop' }] })
  const given = { model: MODEL, prompt: text, guided_json: LONG_SCHEMA }
  expect((await llama.post('/v1/completions', given)).status).toBe(200)
  expect(upstream.seen.at(-1)?.body.json_schema).toEqual(LONG_SCHEMA)
})

// Goal: an engine that ignores the schema does not pass: the gateway has checked the answer.
test('an answer without the form', async () => {
  upstream.behave = response => sendJson(response, 200, completion('no JSON'))
  const gateway = await on('vllm')
  const answer = await gateway.post('/v1/chat/completions', chat('Hi', { guided_json: { type: 'object' } }))
  expect(answer.status).toBe(502)
})

// Goal: of two upstreams the one whose engine has the constraint answers; without one it is a 400 with the field.
test('routing', async () => {
  const plain = await startUpstream()
  undo.defer(plain.stop)
  const both = await gatewayOf(target(plain.url), target(upstream.url, { engine: 'sglang' }))
  for (let times = 0; times < 4; times += 1) {
    expect((await both.post('/v1/chat/completions', chat('Hi', { guided_regex: 'a+' }))).status).toBe(200)
  }
  expect([plain.seen.length, upstream.seen.length]).toEqual([0, 4])
  expect(upstream.seen[0]?.body.regex).toBe('a+')
  const alone = await gatewayOf(target(plain.url))
  const refused = await alone.post('/v1/chat/completions', chat('Hi', { guided_regex: 'a+' }))
  const { error } = (await refused.json()) as { error: { param: string; message: string } }
  expect([refused.status, error.param]).toEqual([400, 'guided_regex'])
  expect(error.message).toBe(
    'guided_regex is not supported for this model; send a JSON schema in response_format of a chat.',
  )
})
