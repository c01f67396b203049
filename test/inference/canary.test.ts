// The canary: searches for keys of clients and upstreams, prompts and answers in every place where they do not belong.
// For a gateway in a VM that is the host's whole side, with the bytes of the channel.

import { expect, test } from 'bun:test'
import { chatBody, target } from '../../scripts/rigs/gateway/server.ts'
import { isEnclave, viewOf } from '../../scripts/rigs/gateway/test-gateway.ts'
import {
  type Behaviour,
  delta,
  openSse,
  sendJson,
  sse,
  startUpstream,
  USAGE,
  wellBehaved,
} from '../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../scripts/rigs/until.ts'
import { type RealGateway, startRealGateway } from '../rigs/gateway/real-gateway.ts'

const PROMPT = 'prompt-canary-7c1e5b'
/** Texts that clients send beside the prompt, and their answers. */
const TEXTS = {
  system: 'system-canary-93d0aa',
  tool: 'tool-canary-5b7720',
  description: 'description-canary-c4f1d8',
  model: 'model-canary-e60b31',
  user: 'user-canary-1f94ce',
  schema: 'schema-canary-0ad35c',
}
const ANSWERS = { answer: 'answer-canary-28be07', reasoning: 'reasoning-canary-a1d5f3', call: 'call-canary-77e09b' }
const UPSTREAM_KEYS = { first: 'upstream-canary-first-51b0c9d2e7', second: 'upstream-canary-second-8fa3416c0b' }

/** By the model's name. Each quotes its own key and whatever it was sent, as engines and proxies do in errors. */
const BEHAVIOURS: Readonly<Record<string, Behaviour>> = {
  well: wellBehaved,
  answers: (response, { body }) => {
    const { answer, reasoning, call } = ANSWERS
    const said = { role: 'assistant', content: answer, reasoning_content: reasoning }
    const tool_calls = [
      { index: 0, id: call, type: 'function', function: { name: TEXTS.tool, arguments: `{"a":"${call}"}` } },
    ]
    const message = { ...said, tool_calls }
    if (body.stream !== true) {
      return sendJson(response, 200, { choices: [{ index: 0, message, finish_reason: 'tool_calls' }], usage: USAGE })
    }
    openSse(response)
    response.end(`${sse(delta(message))}${sse(delta({}, 'tool_calls'))}data: [DONE]\n\n`)
  },
  'quotes-401': (response, seen) =>
    sendJson(response, 401, { error: { message: `bad key ${seen.headers.get('authorization')}` } }),
  'quotes-400': (response, seen) => sendJson(response, 400, { error: { message: quoted(seen) } }),
  'quotes-500': (response, seen) => sendJson(response, 500, { error: { message: quoted(seen) } }),
  'quotes-html': (response, seen) =>
    void response
      .writeHead(200, { 'content-type': 'text/html', 'x-key': String(seen.headers.get('authorization')) })
      .end(quoted(seen)),
  'quotes-in-stream': (response, seen) => {
    openSse(response)
    response.write(sse(delta({ content: 'x' })))
    response.end(sse({ error: { message: quoted(seen) } }))
  },
  'quotes-garbage': (response, seen) => {
    openSse(response)
    response.end(`data: ${quoted(seen)}\n\n`)
  },
}

function quoted(seen: Parameters<Behaviour>[1]): string {
  return JSON.stringify([[...seen.headers], seen.body])
}

/** A text as it may be found: plain, hexadecimal, base64. */
function forms(text: string): Buffer[] {
  const bytes = Buffer.from(text)
  return [bytes, Buffer.from(bytes.toString('hex')), Buffer.from(bytes.toString('base64').replace(/.{0,2}=*$/, ''))]
}

function findings(secrets: Readonly<Record<string, string>>, places: ReadonlyMap<string, Uint8Array | string>) {
  return Object.entries(secrets).flatMap(([name, secret]) =>
    [...places]
      .filter(([, bytes]) => forms(secret).some(form => Buffer.from(bytes as string).includes(form)))
      .map(([place]) => `${name} in ${place}`),
  )
}

/** Requests of every outcome with this key, in every place where clients put keys. Gives all that came back. */
async function ask(gateway: RealGateway, key: string): Promise<Map<string, string>> {
  const answers = new Map<string, string>()
  const keep = async (name: string, response: Response) => {
    answers.set(name, JSON.stringify([response.status, [...response.headers], await response.text()]))
  }
  const headers = { 'x-api-key': key, 'api-key': key, cookie: `key=${key}`, 'openai-organization': key, 'x-trace': key }
  const messages = [
    { role: 'system', content: TEXTS.system },
    { role: 'user', content: PROMPT },
  ]
  const tools = [{ type: 'function', function: { name: TEXTS.tool, description: TEXTS.description } }]
  for (const model of [...Object.keys(BEHAVIOURS), TEXTS.model]) {
    for (const stream of [false, true]) {
      const body = chatBody({ model, messages, tools, user: TEXTS.user, stream })
      const path = `/v1/chat/completions?api_key=${key}`
      await keep(`answer ${model} ${stream}`, await gateway.post(path, body, { key, headers }))
    }
  }
  const sealed = { ...headers, 'x-strongroom-receipt': '1' }
  const body = chatBody({ model: 'well', messages })
  await keep('answer sealed', await gateway.post('/v1/chat/completions', body, { key, headers: sealed }))
  await keep('answer malformed', await gateway.post('/v1/chat/completions', `{"model":"${PROMPT}`, { key, headers }))
  const wrongField = chatBody({ model: 'well', messages: PROMPT })
  await keep('answer invalid', await gateway.post('/v1/chat/completions', wrongField, { key, headers }))
  const schema = { pattern: `${TEXTS.schema}(` }
  const format = { type: 'json_schema', json_schema: { name: 's', strict: true, schema } }
  const badSchema = chatBody({ model: 'well', messages, response_format: format })
  await keep('answer bad schema', await gateway.post('/v1/chat/completions', badSchema, { key, headers }))
  await keep('answer no route', await gateway.post(`/v1/${key}`, body, { key, headers }))
  return answers
}

// Goal: no key of a client or upstream, good or bad, is in a log, the database, a response, another's request or the
// metrics; nor is a prompt kept.
test('keys and prompts are nowhere but where they belong', async () => {
  const behave: Behaviour = (response, seen, gone) => BEHAVIOURS[String(seen.body.model)]?.(response, seen, gone)
  const first = await startUpstream(behave)
  const second = await startUpstream(behave)
  const models = Object.keys(BEHAVIOURS)
  await using gateway = await startRealGateway(
    [
      target(first.url, { name: 'first', key: UPSTREAM_KEYS.first, models }),
      target(second.url, { name: 'second', key: UPSTREAM_KEYS.second, models }),
    ],
    { ejectFailures: 1_000_000 },
  )
  const clients = {
    good: await gateway.addKey(),
    revoked: await gateway.addKey(),
    expired: await gateway.addKey({ expiresAtMs: 1 }),
    unknown: 'gw_abcdefgh_0123456789abcdefghijklmnopqrstuv',
  }
  await gateway.revokeKey(clients.revoked)
  const statuses = new Map<string, number>()
  const answers = new Map<string, string>()
  for (const [name, key] of Object.entries(clients)) {
    for (const [place, answer] of await ask(gateway, key)) {
      answers.set(`${name}: ${place}`, answer)
      statuses.set(`${name}: ${place}`, JSON.parse(answer)[0])
    }
  }
  // One that leaves.
  const leaving = new AbortController()
  const seenBefore = first.seen.length + second.seen.length
  first.behave = second.behave = () => {}
  const left = gateway.post('/v1/chat/completions', chatBody({ model: 'well', user: 'leaving' }), {
    key: clients.good,
    signal: leaving.signal,
  })
  await until('it is at an upstream', 15_000, () => first.seen.length + second.seen.length > seenBefore)
  leaving.abort()
  await left.catch(() => {})
  await until('it has ended', 15_000, async () => (await viewOf(gateway)).running === 0)

  // The canary sings: every outcome was there, both upstreams were asked, and what is looked at is what was used.
  expect(statuses.get('good: answer well false')).toBe(200)
  expect(answers.get('good: answer answers true')).toContain(ANSWERS.call)
  expect(statuses.get('good: answer quotes-401 false')).toBe(502)
  expect(statuses.get('good: answer quotes-400 false')).toBe(400)
  expect(new Set([...statuses].filter(([name]) => !name.startsWith('good')).map(([, status]) => status))).toEqual(
    new Set([401]),
  )
  const { requests } = await gateway.usage()
  expect(requests).toBe(2 * models.length + 2)
  const upstreams = { first, second }
  for (const [name, upstream] of Object.entries(upstreams)) {
    expect(upstream.seen.length).toBeGreaterThan(0)
    for (const seen of upstream.seen) {
      expect(seen.headers.get('authorization')).toBe(`Bearer ${Reflect.get(UPSTREAM_KEYS, name)}`)
      expect(seen.path).toBe('/v1/chat/completions')
    }
  }

  const secrets = Object.fromEntries(
    Object.entries(clients).map(([name, key]) => [`${name} client key`, key.split('_')[2] ?? '']),
  )
  const ours = await gateway.traces()
  expect([...ours.keys()]).toContain('strongroom.db-wal')
  const prefixes = findings({ prefix: clients.good.split('_')[1] ?? '', model: 'quotes-401' }, ours)
  expect(prefixes).toContain('prefix in strongroom.db-wal')
  expect(prefixes).toContain('model in metrics')
  const said = ['prefix in what the VM said', 'prefix in what the VM was told', 'model in what the VM said']
  if (isEnclave) expect(prefixes).toEqual(expect.arrayContaining(said))
  const sent = new Map(
    Object.entries(upstreams).map(([name, { seen }]) => [
      `requests to ${name}`,
      JSON.stringify(
        seen.map(seen => [seen.path, [...seen.headers].filter(([key]) => key !== 'authorization'), seen.body]),
      ),
    ]),
  )
  expect(findings({ prompt: PROMPT }, sent)).toEqual(['prompt in requests to first', 'prompt in requests to second'])
  const everywhere = new Map([...ours, ...answers, ...sent])
  expect(findings(secrets, everywhere)).toEqual([])
  // The host has them from its operator and hands them over; nobody else sees them.
  const handedOver = isEnclave ? ['first', 'second'].map(name => `${name} in what the VM was told`) : []
  expect(findings(UPSTREAM_KEYS, everywhere)).toEqual(handedOver)
  expect(findings({ prompt: PROMPT }, new Map([...ours, ...answers]))).toEqual([])
  expect(findings({ ...TEXTS, ...ANSWERS }, ours)).toEqual([])
  await first.stop()
  await second.stop()
}, 30_000)
