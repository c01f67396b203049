// Routes of the gateway besides completions: a model by its id, and the 404 for an unknown route.

import { describe, expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import OpenAI from 'openai'
import { CALLER, KEY, MODEL, startGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { GatewayError, GatewayModel } from '../../../src/contract/http/inference.ts'
import { openSocket } from '../../rigs/gateway/socket.ts'

const auth = { authorization: `Bearer ${KEY}` }
/** Nobody listens there: no test of this file may ask an upstream. */
const nowhere = 'http://127.0.0.1:9/v1'
const MODELS = ['meta/llama', 'a b', 'a%20b', '100%', 'ü', MODEL]

const gatewayOf = () => startGateway([target(nowhere, { models: MODELS })])

async function messageOf(answer: Response): Promise<string> {
  const body: unknown = await answer.json()
  expect([...Value.Errors(GatewayError, body)]).toEqual([])
  return Value.Decode(GatewayError, body).error.message
}

// Goal: Codex tries a WebSocket first, and goes on over HTTP at once if the answer is 426. Without a key it gets the
// same 401 as ever.
test('a WebSocket of any keyed route is 426 with a key, a plain GET 405', async () => {
  await using gateway = await gatewayOf()
  for (const [path, fields, status] of [
    ['/v1/responses', `Authorization: Bearer ${KEY}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n`, 426],
    ['/v1/responses', `Authorization: Bearer ${KEY}\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n`, 426],
    ['/v1/messages', `x-api-key: ${KEY}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n`, 426],
    ['/v1/responses', `Authorization: Bearer ${KEY}\r\n`, 405],
    ['/v1/responses', 'Upgrade: websocket\r\nConnection: Upgrade\r\n', 401],
    ['/v1/nothing', `Authorization: Bearer ${KEY}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n`, 404],
  ] as const) {
    const text = await rawGet(gateway.url, path, fields)
    expect([path, fields, text.slice(0, 12)]).toEqual([path, fields, `HTTP/1.1 ${status}`])
    expect(text.toLowerCase()).not.toMatch(/^upgrade:/m)
    if (status !== 426) continue
    expect(text.toLowerCase()).toContain('\r\nallow: post\r\n')
    expect(text).toContain('"code":"upgrade_required"')
    expect(text).toContain('send POST over HTTP.')
    expect(text.includes('"type":"error"')).toBe(path === '/v1/messages')
  }
})

/** Returns the head and body of the response, up to the end of the connection. */
function rawGet(url: string, path: string, fields: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = ''
    const socket = openSocket(url, () => {
      const version = 'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n'
      socket.write(`GET ${path} HTTP/1.1\r\nHost: ${new URL(url).host}\r\n${version}${fields}\r\n`)
    })
    socket.on('data', bytes => {
      text += bytes
      if (text.endsWith('}')) socket.destroy()
    })
    socket.on('close', () => resolve(text))
    socket.on('error', reject)
  })
}

// Goal: clients of Anthropic's API list the models with the same key header as they send messages. Authorization counts
// first, and metered routes of other APIs do not take the header.
test('GET takes the key in x-api-key', async () => {
  await using gateway = await gatewayOf()
  const statusOf = async (path: string, headers: Record<string, string>, method = 'GET') =>
    (await fetch(gateway.url + path, { method, headers })).status
  const own = { 'x-api-key': KEY }
  for (const path of ['/v1/models', `/v1/models/${MODEL}`, '/v1/usage']) {
    expect([path, await statusOf(path, own)]).toEqual([path, 200])
    expect([path, await statusOf(path, { 'x-api-key': 'nonsense' })]).toEqual([path, 401])
    expect([path, await statusOf(path, { ...own, authorization: 'Bearer nonsense' })]).toEqual([path, 401])
    expect([path, await statusOf(path, { 'x-api-key': 'nonsense', ...auth })]).toEqual([path, 200])
  }
  expect(await statusOf('/v1/receipts/none', own)).toBe(404)
  expect(await statusOf('/v1/nothing', own)).toBe(404)
  expect(await statusOf('/v1/chat/completions', own, 'POST')).toBe(401)
})

describe('one model', () => {
  test('goal: every id of the list is found by the official client, slashes and percent signs included', async () => {
    await using gateway = await gatewayOf()
    const openai = new OpenAI({ apiKey: KEY, baseURL: `${gateway.url}/v1` })
    const { data } = await openai.models.list()
    expect(data.map(model => model.id).slice(0, MODELS.length)).toEqual(MODELS)
    for (const model of data) expect(await openai.models.retrieve(model.id)).toMatchObject({ ...model })
  })

  test('goal: an id may come as it is or percent-encoded; what is none is a 404, and what is no text one too', async () => {
    await using gateway = await gatewayOf()
    const rows = [
      ['meta/llama', 'meta/llama'],
      ['meta%2Fllama', 'meta/llama'],
      ['meta%2fllama?x=1', 'meta/llama'],
      ['a%20b', 'a b'],
      ['a%2520b', 'a%20b'],
      ['%C3%BC', 'ü'],
      ['100%25', '100%'],
      ['100%', '100%'],
      ['meta', null],
      ['meta/', null],
      ['meta%252Fllama', null],
      ['%ff', null],
      ['%', null],
      ['constructor', null],
      ['x'.repeat(4000), null],
    ] as const
    for (const [path, id] of rows) {
      const answer = await fetch(`${gateway.url}/v1/models/${path}`, { headers: auth })
      expect([path, answer.status]).toEqual([path, id === null ? 404 : 200])
      expect(answer.headers.get('x-ratelimit-limit-requests')).toBe(String(CALLER.requestsPerMinute))
      if (id === null) {
        expect(await messageOf(answer)).toBe(
          'This key cannot use a model with that name. GET /v1/models lists the models it can use.',
        )
        continue
      }
      const model: unknown = await answer.json()
      expect(Value.Check(GatewayModel, model)).toBe(true)
      expect(model).toMatchObject({ id })
    }
    expect((await fetch(`${gateway.url}/v1/models/${MODEL}`, { method: 'HEAD', headers: auth })).status).toBe(200)
    expect((await fetch(`${gateway.url}/v1/models/${MODEL}`, { method: 'DELETE', headers: auth })).status).toBe(405)
  })
})

describe('no such route', () => {
  test('goal: with a good key the 404 names every route, and the one that a slip has missed', async () => {
    await using gateway = await gatewayOf()
    const rows = [
      ['/v1/nothing', null],
      ['/v1/', null],
      ['/v1/chat/completions/', '/v1/chat/completions'],
      ['/v1//chat/completions', '/v1/chat/completions'],
      ['/v1/v1/chat/completions', '/v1/chat/completions'],
      ['/v1/v1/v1/models/', '/v1/models'],
      ['/v1/v1/models/meta/llama', '/v1/models/{id}'],
      ['/v1/models/', '/v1/models'],
      [`/v1/v1/models/${'x'.repeat(4000)}`, '/v1/models/{id}'],
    ] as const
    for (const [path, meant] of rows) {
      const answer = await fetch(gateway.url + path, { method: 'POST', headers: auth })
      const message = await messageOf(answer)
      expect([path, answer.status]).toEqual([path, 404])
      expect(/ Did you mean (\S+)\? /.exec(message)?.[1] ?? null).toBe(meant)
      expect(message).toContain('POST /v1/chat/completions, ')
      expect(message).toContain('GET /v1/models/{id}')
      expect(message).toContain('GET /health, ')
      expect(message.length).toBeLessThan(600)
    }
  })

  test('goal: without a key below /v1/ what exists and what does not look the same, whatever the method', async () => {
    await using gateway = await gatewayOf()
    const told = async (path: string, method: string) => {
      const answer = await fetch(gateway.url + path, { method })
      const headers = Object.fromEntries(
        [...answer.headers].filter(([name]) => !['date', 'x-request-id'].includes(name)),
      )
      return { status: answer.status, headers, body: await answer.json() }
    }
    const unknown = await told('/v1/nothing', 'POST')
    expect(unknown.status).toBe(401)
    for (const path of ['/v1/chat/completions', '/v1/models', '/v1/models/tiny', '/v1/v1/models', '/v1/models/']) {
      for (const method of ['GET', 'POST', 'DELETE']) expect(await told(path, method)).toEqual(unknown)
    }
  })

  test('goal: elsewhere everybody is told the public routes and that the base address ends in /v1, and nothing more', async () => {
    await using gateway = await gatewayOf()
    const rows = [
      ['/', null],
      ['/chat/completions', null],
      ['/v1', null],
      ['/health/', '/health'],
      ['/attestation//', '/attestation'],
    ] as const
    for (const [path, meant] of rows) {
      for (const headers of [{}, auth]) {
        const answer = await fetch(gateway.url + path, { headers })
        const message = await messageOf(answer)
        expect([path, answer.status]).toEqual([path, 404])
        expect(/ Did you mean (\S+)\? /.exec(message)?.[1] ?? null).toBe(meant)
        expect(message).toContain('the base URL of an OpenAI client ends in /v1')
        expect(message).toContain('GET /health, GET /attestation, ')
        expect(message).not.toMatch(/\/v1\/\w/)
      }
    }
  })
})
