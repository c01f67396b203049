// Attacks on what agents use: an upstream that answers what was not allowed, counts that cannot be, and clients that
// build on more than they pay for.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { MODEL, startGateway, type TestGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import {
  chunk,
  delta,
  openSse,
  sendJson,
  sse,
  startUpstream,
  type TestUpstream,
} from '../../../scripts/rigs/gateway/upstream-server.ts'

let undo: AsyncDisposableStack
let upstream: TestUpstream
let gateway: TestGateway
beforeEach(async () => {
  undo = new AsyncDisposableStack()
  upstream = await startUpstream()
  undo.defer(upstream.stop)
  gateway = undo.use(await startGateway([target(upstream.url, { engine: 'vllm' })]))
})
afterEach(() => undo.disposeAsync())

const usage = { prompt_tokens: 7, completion_tokens: 5 }

/** Calls this tool, whole or as a stream. */
function callsTool(name: string, args: string): void {
  const call = { id: 'call_1', type: 'function', function: { name, arguments: args } }
  upstream.behave = (response, { body }) => {
    if (body.stream !== true) {
      const message = { role: 'assistant', content: null, tool_calls: [call] }
      sendJson(response, 200, { choices: [{ index: 0, finish_reason: 'tool_calls', message }], usage })
      return
    }
    openSse(response)
    response.write(sse(delta({ tool_calls: [{ index: 0, ...call }] })))
    response.write(sse(delta({}, 'tool_calls')))
    response.write(sse(chunk([], { usage })))
    response.end('data: [DONE]\n\n')
  }
}

const named = (name: string) => ({ type: 'function', function: { name } })
const chat = {
  messages: [{ role: 'user', content: 'x' }],
  tools: [named('read'), named('remove')],
  tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [named('read')] } },
}
const responses = {
  input: 'x',
  tools: [
    { type: 'function', name: 'read', parameters: {} },
    { type: 'function', name: 'remove', parameters: {} },
  ],
  tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'read' }] },
}

// Goal: a tool that the client has but does not allow now is never called, though the upstream says so; it is paid.
test.each([
  ['/v1/chat/completions', chat],
  ['/v1/responses', responses],
])('a tool that is not allowed, %s', async (path, fields) => {
  callsTool('remove', '{}')
  const whole = await gateway.post(path, { model: MODEL, ...fields })
  expect([whole.status, (await whole.text()).includes('remove')]).toEqual([502, false])
  const streamed = await (await gateway.post(path, { model: MODEL, ...fields, stream: true })).text()
  expect([streamed.includes('remove'), streamed.includes('upstream_failed')]).toEqual([false, true])
  expect((await gateway.records()).map(({ outcome, tokens }) => [outcome, tokens.prompt])).toEqual([
    ['failed', 7],
    ['failed', expect.any(Number)],
  ])
  callsTool('read', '{}')
  expect((await gateway.post(path, { model: MODEL, ...fields })).status).toBe(200)
})

// Goal: a custom tool gets arguments of another form as its text, so that the agent reports the mistake to the model.
test.each(['{}', '{"input":5}', '["input"]', 'x', ''])('a custom tool that is called with %j', async args => {
  callsTool('patch', args)
  // An empty object stands for no arguments.
  const input = args === '{}' ? '' : args
  const asked = { model: MODEL, input: 'x', tools: [{ type: 'custom', name: 'patch' }] }
  const whole = await gateway.post('/v1/responses', asked)
  expect(whole.status).toBe(200)
  const { output } = (await whole.json()) as { output: object[] }
  expect(output).toMatchObject([{ type: 'custom_tool_call', name: 'patch', input }])
  const streamed = await (await gateway.post('/v1/responses', { ...asked, stream: true })).text()
  expect(streamed).toContain('response.completed')
  const done = streamed
    .split('\n')
    .filter(line => line.startsWith('data: {"type":"response.custom_tool_call_input.done"'))
  expect(done.map(line => JSON.parse(line.slice('data: '.length)).input)).toEqual([input])
})

// Goal: a count of cached tokens that cannot be lowers no price and is shown to nobody.
test.each([71, -1, 1.5, '64', null, {}])('%p cached tokens of 70', async cached => {
  const counted = { prompt_tokens: 70, completion_tokens: 1, prompt_tokens_details: { cached_tokens: cached } }
  upstream.behave = response => {
    const message = { role: 'assistant', content: 'x' }
    sendJson(response, 200, { choices: [{ index: 0, finish_reason: 'stop', message }], usage: counted })
  }
  const answer = await gateway.chat()
  expect([answer.status, (await answer.text()).includes('cached')]).toEqual([200, false])
  expect((await gateway.records()).at(-1)?.tokens).toEqual({ prompt: 70, completion: 1 })
})

// Goal: a few bytes that name earlier responses are paid as the prompt that they stand for.
test('a short request on a long chain', async () => {
  upstream.behave = response => {
    const message = { role: 'assistant', content: 'x' }
    sendJson(response, 200, { choices: [{ index: 0, finish_reason: 'stop', message }] })
  }
  let previous: string | null = null
  for (let turn = 0; turn < 3; turn += 1) {
    const input: string = turn === 2 ? 'x' : 'y'.repeat(40_000)
    const asked = { model: MODEL, input, ...(previous === null ? {} : { previous_response_id: previous }) }
    const answer = await gateway.post('/v1/responses', asked)
    previous = ((await answer.json()) as { id: string }).id
  }
  const prompts = (await gateway.records()).map(({ tokens }) => tokens.prompt)
  expect(prompts.map(count => Math.floor(count / 10_000))).toEqual([1, 2, 2])
})

// Goal: hundreds of names of items that are not there end in one refusal, and no upstream is asked.
test('many references', async () => {
  const input = Array.from({ length: 600 }, (_, at) => ({
    type: 'item_reference',
    id: `msg_${at.toString(16).padStart(32, '0')}000`,
  }))
  const answer = await gateway.post('/v1/responses', { model: MODEL, input })
  expect([answer.status, upstream.seen.length]).toEqual([404, 0])
})
