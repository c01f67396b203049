// The key canary: keys of clients and of upstreams, and prompts, are looked for in every place where they do not belong.

import { expect, test } from 'bun:test'
import { revokeGatewayKey } from '../../src/store/directory/gateway-key.query.ts'
import { chatBody, target } from '../rigs/gateway-server.ts'
import { type RealGateway, startRealGateway } from '../rigs/real-gateway.ts'
import { until } from '../rigs/until.ts'
import { type Behaviour, delta, openSse, sendJson, sse, startUpstream, wellBehaved } from '../rigs/upstream-server.ts'

const PROMPT = 'prompt-canary-7c1e5b'
const UPSTREAM_KEYS = { first: 'upstream-canary-first-51b0c9d2e7', second: 'upstream-canary-second-8fa3416c0b' }

/** By the model's name. Each quotes its own key and whatever it was sent, as engines and proxies do in errors. */
const BEHAVIOURS: Readonly<Record<string, Behaviour>> = {
  well: wellBehaved,
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
  const messages = [{ role: 'user', content: PROMPT }]
  for (const model of [...Object.keys(BEHAVIOURS), 'unknown']) {
    for (const stream of [false, true]) {
      const body = chatBody({ model, messages, stream })
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
  await keep('answer no route', await gateway.post(`/v1/${key}`, body, { key, headers }))
  return answers
}

// Goal: no key of a client or an upstream, good or bad, is in a log, the database, an answer, another's request or the metrics; nor is a prompt kept.
test('keys and prompts are nowhere but where they belong', async () => {
  const behave: Behaviour = (response, seen, gone) => BEHAVIOURS[String(seen.body.model)]?.(response, seen, gone)
  const first = await startUpstream(behave)
  const second = await startUpstream(behave)
  const models = Object.keys(BEHAVIOURS)
  await using gateway = startRealGateway(
    [
      target(first.url, { name: 'first', key: UPSTREAM_KEYS.first, models }),
      target(second.url, { name: 'second', key: UPSTREAM_KEYS.second, models }),
    ],
    { ejectFailures: 1_000_000 },
  )
  const clients = {
    good: gateway.addKey(),
    revoked: gateway.addKey(),
    expired: gateway.addKey({ expiresAtMs: 1 }),
    unknown: 'gw_abcdefgh_0123456789abcdefghijklmnopqrstuv',
  }
  const [, revokedPrefix = ''] = clients.revoked.split('_')
  revokeGatewayKey(gateway.store.db, { prefix: revokedPrefix, nowMs: Date.now() })
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
  await until('it is at an upstream', 5_000, () => first.seen.length + second.seen.length > seenBefore)
  leaving.abort()
  await left.catch(() => {})
  await until('it has ended', 5_000, () => gateway.limiter.running() === 0)

  // The canary sings: every outcome was there, both upstreams were asked, and what is looked at is what was used.
  expect(statuses.get('good: answer well false')).toBe(200)
  expect(statuses.get('good: answer quotes-401 false')).toBe(502)
  expect(statuses.get('good: answer quotes-400 false')).toBe(400)
  expect(new Set([...statuses].filter(([name]) => !name.startsWith('good')).map(([, status]) => status))).toEqual(
    new Set([401]),
  )
  const requests = gateway.usage().requests
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
  const ours = new Map<string, Uint8Array | string>([
    ...gateway.fileBytes(),
    ['log', gateway.log.join('\n')],
    ['metrics', gateway.metrics()],
  ])
  expect([...ours.keys()]).toContain('strongroom.db-wal')
  const prefixes = findings({ prefix: clients.good.split('_')[1] ?? '', model: 'quotes-401' }, ours)
  expect(prefixes).toContain('prefix in strongroom.db-wal')
  expect(prefixes).toContain('model in metrics')
  const sent = new Map(
    Object.entries(upstreams).map(([name, { seen }]) => [
      `requests to ${name}`,
      JSON.stringify(
        seen.map(one => [one.path, [...one.headers].filter(([key]) => key !== 'authorization'), one.body]),
      ),
    ]),
  )
  expect(findings({ prompt: PROMPT }, sent)).toEqual(['prompt in requests to first', 'prompt in requests to second'])
  const everywhere = new Map([...ours, ...answers, ...sent])
  expect(findings({ ...secrets, ...UPSTREAM_KEYS }, everywhere)).toEqual([])
  expect(findings({ prompt: PROMPT }, new Map([...ours, ...answers]))).toEqual([])
  await first.stop()
  await second.stop()
}, 30_000)
