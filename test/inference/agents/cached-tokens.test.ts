// Counts of cached tokens in every API, and a model's prices and context in the list.

import { expect, test } from 'bun:test'
import { KEY, MODEL, startGateway, startHostGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import {
  type Behaviour,
  chunk,
  delta,
  openSse,
  sendJson,
  sse,
  startUpstream,
} from '../../../scripts/rigs/gateway/upstream-server.ts'
import { createCost } from '../../../src/inference/metering/price.ts'

const usage = { prompt_tokens: 70, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 64 } }

const behave: Behaviour = (response, { body }) => {
  if (body.stream !== true) {
    sendJson(response, 200, { choices: [{ index: 0, finish_reason: 'stop', message: { content: 'x' } }], usage })
    return
  }
  openSse(response)
  response.write(sse(delta({ content: 'x' }, 'stop')))
  response.write(sse(chunk([], { usage })))
  response.end('data: [DONE]\n\n')
}

const prompt = 'a prompt that is long enough for seventy tokens to be believed'
const messages = [{ role: 'user', content: prompt }]
const ASKED = [
  ['/v1/chat/completions', { messages }, '"cached_tokens":64'],
  ['/v1/responses', { input: prompt }, '"input_tokens_details":{"cached_tokens":64}'],
  ['/v1/messages', { messages, max_tokens: 5 }, '"cache_read_input_tokens":64'],
] as const

// Goal: an engine whose cache is the organization's own has its count passed on and booked; that of another tells of
// other tenants' prompts, and is neither shown nor paid.
test.each(['vllm', 'sglang', 'llama-server', 'openai'] as const)('counts of %s', async engine => {
  await using undo = new AsyncDisposableStack()
  const upstream = await startUpstream(behave)
  undo.defer(upstream.stop)
  const gateway = undo.use(await startGateway([target(upstream.url, { engine })]))
  const isOwn = engine === 'vllm' || engine === 'sglang'
  for (const [path, fields, shown] of ASKED) {
    for (const stream of [false, true]) {
      const isChat = path === '/v1/chat/completions'
      const asked = { ...fields, stream, ...(isChat && stream ? { stream_options: { include_usage: true } } : {}) }
      const text = await (await gateway.post(path, { model: MODEL, ...asked })).text()
      expect([path, stream, text.includes(shown)]).toEqual([path, stream, isOwn])
      expect(/cache[a-z_]*":64/.test(text)).toBe(isOwn)
      const tokens = { prompt: 70, completion: 1, ...(isOwn ? { cached: 64 } : {}) }
      expect((await gateway.records()).at(-1)).toMatchObject({ tokens, tokensSource: 'reported' })
      expect('cached' in ((await gateway.records()).at(-1)?.tokens ?? {})).toBe(isOwn)
    }
  }
})

// Goal: a client can choose a model by its context and price; what the operator does not state is left out.
test('models', async () => {
  await using undo = new AsyncDisposableStack()
  const upstream = await startUpstream()
  undo.defer(upstream.stop)
  const cost = createCost([
    {
      model: 'priced',
      prompt_usd_per_million: '3',
      completion_usd_per_million: '15',
      cached_prompt_usd_per_million: '0.3',
    },
    { model: 'plain', prompt_usd_per_million: '0.000001', completion_usd_per_million: '0' },
  ])
  const gateway = undo.use(
    startHostGateway(
      [
        target(upstream.url, { name: 'a', models: ['priced', 'plain', 'free'], contextTokens: 8_192 }),
        target(upstream.url, { name: 'b', models: ['priced'], contextTokens: 4_096 }),
        target(upstream.url, { name: 'c', models: ['free'], contextTokens: null }),
      ],
      { host: { cost: () => cost } },
    ),
  )
  const answer = await fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${KEY}` } })
  const { data } = (await answer.json()) as { data: Record<string, unknown>[] }
  const stated = Object.fromEntries(data.map(({ id, context_length, pricing }) => [id, { context_length, pricing }]))
  expect(stated).toEqual({
    priced: {
      context_length: 4_096,
      pricing: { prompt: '0.000003', completion: '0.000015', input_cache_read: '0.0000003' },
    },
    plain: { context_length: 8_192, pricing: { prompt: '0.000000000001', completion: '0' } },
    free: { context_length: undefined, pricing: undefined },
  })
})
