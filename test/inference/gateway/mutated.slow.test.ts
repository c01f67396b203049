// Requests whose fields have any name, any value and any number, at every endpoint that takes a body.

import { expect, test } from 'bun:test'
import { EMBEDDING_MODEL } from '../../../scripts/rigs/gateway/embeddings-upstream.ts'
import { MODEL, startGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { sendJson, startUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import type { Json } from '../../rigs/dialects/requests.ts'
import { fuzzSeed, generator } from '../../rigs/hostile/fuzz.ts'
import { mutatedJson } from '../../rigs/hostile/mutated-json.ts'

const image = 'data:image/png;base64,aaaa'
const schema = { type: 'object', properties: { x: { type: 'integer' } }, required: ['x'], additionalProperties: false }

/** Each with most of the fields that its endpoint knows. */
const SAMPLES: readonly (readonly [path: string, body: Json])[] = [
  [
    '/v1/chat/completions',
    {
      model: MODEL,
      messages: [
        { role: 'system', content: 's' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'x' },
            { type: 'image_url', image_url: { url: image } },
          ],
        },
        {
          role: 'assistant',
          content: null,
          tool_calls: [{ id: 'a', type: 'function', function: { name: 'b', arguments: '{}' } }],
        },
        { role: 'tool', tool_call_id: 'a', content: 'x' },
      ],
      tools: [{ type: 'function', function: { name: 'b', parameters: schema } }],
      tool_choice: 'auto',
      response_format: { type: 'json_schema', json_schema: { name: 's', strict: true, schema } },
      stop: ['a'],
      n: 2,
      logit_bias: { '5': 1 },
      stream: true,
      stream_options: { include_usage: true },
    },
  ],
  ['/v1/completions', { model: MODEL, prompt: ['x'], max_tokens: 5, suffix: 's', echo: true, logprobs: 2, stop: 'a' }],
  [
    '/v1/embeddings',
    { model: EMBEDDING_MODEL, input: ['a', 'b'], dimensions: 2, encoding_format: 'base64', user: 'u' },
  ],
  [
    '/v1/messages',
    {
      model: MODEL,
      max_tokens: 5,
      system: [{ type: 'text', text: 's', cache_control: { type: 'ephemeral' } }],
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'x' },
            { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'aaaa' } },
          ],
        },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 't', signature: '' },
            { type: 'tool_use', id: 'a', name: 'b', input: { x: 1 } },
          ],
        },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'a', content: 'ok', is_error: true }] },
      ],
      tools: [{ name: 'b', input_schema: schema }],
      tool_choice: { type: 'any', disable_parallel_tool_use: true },
      output_config: { format: { type: 'json_schema', schema } },
      stop_sequences: ['a'],
      stream: true,
      metadata: { user_id: 'x' },
      thinking: { type: 'enabled' },
    },
  ],
  [
    '/v1/responses',
    {
      model: MODEL,
      input: [
        {
          role: 'user',
          content: [
            { type: 'input_text', text: 'x' },
            { type: 'input_image', image_url: image },
          ],
        },
        { type: 'function_call', call_id: 'c', name: 'n', arguments: '{}' },
        { type: 'function_call_output', call_id: 'c', output: 'x' },
        { type: 'reasoning', id: 'r', summary: [] },
      ],
      instructions: 'i',
      tools: [{ type: 'function', name: 'n', parameters: schema, strict: true }],
      tool_choice: 'auto',
      text: { format: { type: 'json_schema', name: 's', schema, strict: true }, verbosity: 'low' },
      reasoning: { effort: 'low', summary: 'auto' },
      max_output_tokens: 5,
      stream: true,
      store: false,
      metadata: { a: 'b' },
    },
  ],
]

const requestsEach = 600
const together = 8
const errorBytesMax = 2_000

// Goal: every invalid request gets a short error quickly: a field called `a[b]` once held the gateway for ever, and a
// name of 20,000 steps for a second. None is the gateway's own failure.
test.each(SAMPLES)(
  '%s',
  async (path, sample) => {
    const seed = fuzzSeed()
    const below = generator(seed)
    await using ends = new AsyncDisposableStack()
    // It refuses all that gets through, which says nothing of its health.
    const upstream = await startUpstream(response => sendJson(response, 400, { error: { message: 'no' } }))
    ends.defer(() => upstream.stop())
    const models = { models: [EMBEDDING_MODEL, MODEL], embeddingModels: [EMBEDDING_MODEL], content: ['image' as const] }
    const caller = { requestsPerMinute: 1_000_000, tokensPerMinute: 1_000_000_000 }
    const gateway = ends.use(await startGateway([target(upstream.url, models)], { caller }))
    let slowestMs = 0
    const ask = async () => {
      const body = JSON.stringify(mutatedJson(sample, below))
      const response = await gateway.post(path, body)
      const text = await response.text()
      if ([400, 404, 413].includes(response.status) && text.length < errorBytesMax) return
      const sent = `STRONGROOM_FUZZ_SEED=${seed}: ${body.slice(0, 2_000)}`
      throw new Error(`${response.status} ${text.slice(0, 500)} to ${sent}`)
    }
    for (let asked = 0; asked < requestsEach; asked += together) {
      const { user } = process.cpuUsage()
      await Promise.all(Array.from({ length: together }, ask))
      slowestMs = Math.max(slowestMs, process.cpuUsage({ user, system: 0 }).user / 1_000)
    }
    // Some get through, and some do not.
    expect(upstream.seen.length).toBeGreaterThan(requestsEach / 100)
    expect(upstream.seen.length).toBeLessThan(requestsEach)
    expect(slowestMs).toBeLessThan(1_000)
  },
  60_000,
)
