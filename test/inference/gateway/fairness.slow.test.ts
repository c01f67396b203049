// One client's requests do not affect the others, and an upstream's usage is believed within bounds.

import { describe, expect, test } from 'bun:test'
import {
  chatBody,
  eachWithGateway,
  KEY,
  MODEL,
  startGateway,
  type TestGateway,
  target,
} from '../../../scripts/rigs/gateway/server.ts'
import { chargedTo, viewOf } from '../../../scripts/rigs/gateway/test-gateway.ts'
import {
  sendJson,
  startUpstream,
  type TestUpstream,
  wellBehaved,
} from '../../../scripts/rigs/gateway/upstream-server.ts'
import type { UpstreamTarget } from '../../../src/inference/upstream/target.ts'

let upstream: TestUpstream
let gateway: TestGateway
eachWithGateway((newUpstream, newGateway) => {
  upstream = newUpstream
  gateway = newGateway
})

const picture = { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } }
const remote = { type: 'image_url', image_url: { url: 'http://169.254.169.254/latest' } }
const ask = (content: unknown) => ({ messages: [{ role: 'user', content }] })
type Answered = { readonly error?: { readonly message: string }; readonly usage?: unknown }
const bodyOf = async (answer: Response) => (await answer.json()) as Answered
const refused = async (answer: Response) => [answer.status, (await bodyOf(answer)).error]

describe('health of an upstream', () => {
  // Goal: ordinary mistakes of clients, repeated by their SDKs, take no upstream from anybody.
  test('requests at fault', async () => {
    for (let times = 0; times < 4; times += 1) {
      expect((await gateway.chat(ask([picture]))).status).toBe(400)
      const messages = [{ role: 'assistant', tool_calls: [{ id: 'c', type: 'function' }] }]
      expect((await gateway.chat({ messages })).status).toBe(400)
    }
    expect(upstream.seen).toEqual([])
    expect((await gateway.chat()).status).toBe(200)
  })

  // Goal: neither statuses about one request or endpoint, nor failures of an engine that passes its probe, eject it.
  test.each([401, 403, 404, 429, 500, 503])('status %d, many times', async status => {
    upstream.behave = response => sendJson(response, status, {})
    for (let times = 0; times < 5; times += 1) await gateway.chat()
    expect((await viewOf(gateway)).targets[0]?.ejected).toBe(false)
    upstream.behave = wellBehaved
    expect((await gateway.chat()).status).toBe(200)
  })

  // Goal: an upstream at its limit is said to be so, with its own wait; another with room takes the request first.
  test('an upstream at its limit', async () => {
    upstream.behave = response => {
      response.setHeader('Retry-After', '17')
      sendJson(response, 429, { error: { message: 'leaky' } })
    }
    const answer = await gateway.chat()
    expect([answer.status, answer.headers.get('retry-after'), answer.headers.get('x-should-retry')]).toEqual([
      429,
      '17',
      'true',
    ])
    expect(await answer.text()).not.toContain('leaky')
    const other = await startUpstream()
    await using both = await startGateway([target(upstream.url), target(other.url)])
    for (let times = 0; times < 4; times += 1) expect((await both.chat()).status).toBe(200)
    await other.stop()
  })
})

describe('errors', () => {
  // Goal: agents act on the code; the engine's numbers are passed on, its words are not.
  test.each([
    [
      { error: { type: 'exceed_context_size_error', message: 'leaky', n_prompt_tokens: 300, n_ctx: 256 } },
      ' The prompt has 300 tokens, the context 256.',
    ],
    [{ error: { code: 'context_length_exceeded', message: 'leaky' } }, ''],
    [{ object: 'error', message: "leaky: This model's maximum context length is 5 tokens." }, ''],
    [{ error: { type: 'exceed_context_size_error', n_prompt_tokens: 'leaky', n_ctx: -1 } }, ''],
  ])('a prompt that is too long', async (body, numbers) => {
    upstream.behave = response => sendJson(response, 400, body)
    const message = `The prompt plus max_tokens exceeds the model's context. Shorten the prompt or lower max_tokens.${numbers}`
    const error = { code: 'context_length_exceeded', message, type: 'invalid_request_error', param: null }
    expect(await refused(await gateway.chat())).toEqual([400, error])
  })

  // Goal: a field that is wrong is named, in the form that official clients print.
  test('a wrong field', async () => {
    const message = 'max_tokens must be a whole number from 1 to 16777216.'
    const error = { code: 'invalid_request', message, type: 'invalid_request_error', param: 'max_tokens' }
    expect(await refused(await gateway.chat({ max_tokens: -1 }))).toEqual([400, error])
  })

  // Goal: an upstream's refusal that never ends, or is no JSON, is a plain 400 in bounded time.
  test('an endless refusal', async () => {
    upstream.behave = async (response, _seen, gone) => {
      response.writeHead(400, { 'content-type': 'application/json' })
      response.write('{"error":{"message":"')
      await gone
    }
    expect((await refused(await gateway.chat()))[0]).toBe(400)
  })
})

describe('what an upstream is configured for', () => {
  const only = (more: Partial<UpstreamTarget>) => startGateway([target(upstream.url, more)])

  // Goal: content parts and URLs go only to upstreams that the operator allows; the engine would fetch the URLs.
  test('content parts', async () => {
    await using plain = await only({})
    await using seeing = await only({ content: ['image'] })
    await using fetching = await only({ content: ['image'], remoteUrls: true })
    const statuses = async (gateway: TestGateway) => [
      (await gateway.chat(ask([picture]))).status,
      (await gateway.chat(ask([remote]))).status,
    ]
    expect(await statuses(plain)).toEqual([400, 400])
    expect(await statuses(seeing)).toEqual([200, 400])
    expect(await statuses(fetching)).toEqual([200, 200])
    const { error } = await bodyOf(await seeing.chat(ask([remote])))
    expect(error?.message).toBe('URLs are not fetched for this model; send the content itself as a data: URL.')
  })

  // Goal: of two upstreams only the one that can takes the request.
  test('the one that can', async () => {
    const other = await startUpstream()
    await using both = await startGateway([target(upstream.url), target(other.url, { content: ['image'] })])
    for (let times = 0; times < 4; times += 1) expect((await both.chat(ask([picture]))).status).toBe(200)
    expect([upstream.seen.length, other.seen.length]).toEqual([0, 4])
    await other.stop()
  })

  // Goal: more choices than an engine gives at a time are refused by name.
  test('choices', async () => {
    await using few = await only({ choicesMax: 4 })
    const message = 'n is 9; this model returns at most 4 choices per request.'
    expect(await refused(await few.chat({ n: 9 }))).toEqual([400, expect.objectContaining({ message, param: 'n' })])
  })

  // Goal: an operator may refuse what would be left out.
  test('refused fields', async () => {
    await using strict = await startGateway([target(upstream.url)], { limits: { refusesUnknownFields: true } })
    expect(await refused(await strict.chat({ cache_prompt: true }))).toMatchObject([400, { param: 'cache_prompt' }])
    expect(upstream.seen).toEqual([])
    expect((await strict.chat()).status).toBe(200)
  })
})

describe('usage', () => {
  const completion = (usage: Record<string, number>) => ({
    choices: [{ index: 0, message: { role: 'assistant', content: 'x' }, finish_reason: 'stop' }],
    usage,
  })

  // Goal: the estimate replaces an impossible count, the row says so, and the key's limit is charged no more.
  test.each([
    { prompt_tokens: 3, completion_tokens: 9e15 },
    { prompt_tokens: 9e15, completion_tokens: 1 },
  ])('%j', async usage => {
    upstream.behave = response => sendJson(response, 200, completion(usage))
    const answer = await gateway.chat()
    expect(answer.status).toBe(200)
    const bodyBytes = JSON.stringify(chatBody()).length
    const [record] = await gateway.records()
    expect(record).toMatchObject({ tokensSource: 'implausible', tokens: { prompt: Math.ceil(bodyBytes / 4) } })
    expect(record?.tokens.completion).toBeLessThan(50)
    const used = record?.tokens ?? { prompt: -1, completion: -1 }
    expect(await chargedTo(gateway, KEY)).toEqual({ requests: 1, tokens: used.prompt + used.completion })
    expect((await bodyOf(answer)).usage).toBeUndefined()
  })

  // Goal: the client's own bound counts too: a model cannot have made more.
  test('more than max_tokens', async () => {
    upstream.behave = response => sendJson(response, 200, completion({ prompt_tokens: 3, completion_tokens: 6 }))
    await gateway.chat({ max_tokens: 5 })
    await gateway.chat({ max_tokens: 6 })
    expect((await gateway.records()).map(record => record.tokensSource)).toEqual(['implausible', 'reported'])
  })

  // Goal: text that breaks the requested format is charged, because it was generated; other failures are free.
  test('refused answers', async () => {
    const schema = { type: 'object', required: ['a'], properties: { a: { type: 'integer' } } }
    const strict = { response_format: { type: 'json_schema', json_schema: { name: 's', strict: true, schema } } }
    const object = { response_format: { type: 'json_object' } }
    const tools = { tools: [{ type: 'function', function: { name: 'f' } }], tool_choice: 'required' }
    const usage = { prompt_tokens: 7, completion_tokens: 5 }
    upstream.behave = response => sendJson(response, 200, completion(usage))
    for (const asked of [strict, object, tools]) {
      expect((await gateway.chat(asked)).status).toBe(502)
      expect((await gateway.records()).at(-1)).toMatchObject({
        outcome: 'failed',
        tokens: { prompt: 7, completion: 5 },
      })
    }
    upstream.behave = response => sendJson(response, 200, { choices: 'none', usage })
    expect((await gateway.chat()).status).toBe(502)
    expect((await gateway.records()).at(-1)).toMatchObject({ outcome: 'failed', tokens: { prompt: 0, completion: 0 } })
  })

  // Goal: how much of a prompt was cached tells what others have asked; no answer says it, whole or streamed.
  test('cached tokens', async () => {
    const usage = { prompt_tokens: 7, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 6 } }
    upstream.behave = (response, { body }) => {
      const choice = { index: 0, finish_reason: 'stop' }
      if (body.stream !== true)
        return sendJson(response, 200, { choices: [{ ...choice, message: { content: 'x' } }], usage })
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      const chunk = { choices: [{ ...choice, delta: { content: 'x' } }] }
      response.end(
        `data: ${JSON.stringify(chunk)}\n\ndata: ${JSON.stringify({ choices: [], usage })}\n\ndata: [DONE]\n\n`,
      )
    }
    const streamed = { stream: true, stream_options: { include_usage: true } }
    for (const fields of [{}, streamed]) {
      const text = await (await gateway.post('/v1/chat/completions', { ...chatBody(fields), model: MODEL })).text()
      expect(text).toContain('"prompt_tokens":7')
      expect(text).not.toContain('cached')
    }
  })
})
