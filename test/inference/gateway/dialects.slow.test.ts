// APIs that are translated to chat completions: the same misbehaving upstreams, receipts, encryption, usage and limits.

import { describe, expect, test } from 'bun:test'
import { postEncrypted } from '../../../scripts/rigs/gateway/encrypted-client.ts'
import {
  eachWithGateway,
  IMPATIENT,
  KEY,
  startGateway,
  type TestGateway,
  target,
} from '../../../scripts/rigs/gateway/server.ts'
import { chargedTo, samplesOf, viewOf } from '../../../scripts/rigs/gateway/test-gateway.ts'
import { sendJson, type TestUpstream, wellBehaved } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { splitResponse } from '../../../src/attest/receipt/response-read.ts'
import { verifyResponse } from '../../../src/attest/receipt/response-verify.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { gatewayErrorIn, namedEventsOf, TEST_SHAPES, type TestShape } from '../../rigs/dialects/apis.ts'
import { BEFORE, begun, FORMED, isSilent, SECRETS, WITHIN } from '../../rigs/hostile/misbehaviour.ts'
import { upstreamIn } from '../../rigs/receipt-upstream.ts'

let upstream: TestUpstream
let gateway: TestGateway
eachWithGateway((freshUpstream, freshGateway) => {
  upstream = freshUpstream
  gateway = freshGateway
})

const DIALECTS: readonly (TestShape & { readonly operation: string })[] = Object.entries(TEST_SHAPES).map(
  ([operation, dialect]) => ({ operation, ...dialect }),
)
const asked = { headers: { 'x-strongroom-receipt': '1' } }
const promptEstimate = (chat: unknown) => Math.ceil(JSON.stringify(chat).length / 4)

/** In the place of the gateway that there is, where one with time to wait for more would take too long. */
async function asPatientAs(name: string): Promise<AsyncDisposable | null> {
  if (!isSilent(name)) return null
  gateway = await startGateway([target(upstream.url)], { limits: IMPATIENT })
  return gateway
}

async function expectNoLeak(text: string, answer: { readonly headers: Headers }): Promise<void> {
  const all = [text, JSON.stringify([...answer.headers]), ...(await gateway.log())].join('\n')
  for (const secret of SECRETS) expect(all).not.toContain(secret)
}

async function expectAllClosed(): Promise<void> {
  await until('the upstream is free', 60_000, () => upstream.active() === 0)
  const { requests } = await chargedTo(gateway, KEY)
  await until('nothing runs', 60_000, async () => {
    const { running, targets } = await viewOf(gateway)
    return running === 0 && targets[0]?.active === 0
  })
  expect((await gateway.records()).length).toBe(requests)
}

describe.each(DIALECTS)('$operation: before the first event', dialect => {
  for (const [name, behave] of Object.entries(BEFORE)) {
    test(`goal: ${name} gives a 502 without the engine's words, and the request is accounted once`, async () => {
      await using _own = await asPatientAs(name)
      upstream.behave = behave
      const answer = await gateway.post(dialect.path, dialect.body({ stream: true }))
      const text = await answer.text()
      expect([answer.status, gatewayErrorIn(JSON.parse(text)).code]).toEqual([502, 'upstream_failed'])
      await expectNoLeak(text, answer)
      expect((await gateway.records()).map(({ outcome, tokens }) => [outcome, tokens])).toEqual([
        ['failed', { prompt: 0, completion: 0 }],
      ])
      await expectAllClosed()
    })
  }
})

const WAYS = DIALECTS.flatMap(dialect => [
  { ...dialect, way: 'by their form, to the server', before: FORMED, isEncrypted: false },
  { ...dialect, way: 'in full, to the encryption', before: [], isEncrypted: true },
])

describe.each(WAYS)('$operation: after the first event; chunks go $way', ({ before, isEncrypted, ...dialect }) => {
  for (const [name, behave] of Object.entries(WITHIN)) {
    test(`goal: ${name} ends the stream with that API's error event without the engine's words, and without its end`, async () => {
      await using _own = await asPatientAs(name)
      upstream.behave = begun(behave, before)
      const body = dialect.body({ stream: true })
      const answer = isEncrypted
        ? await postEncrypted(gateway, dialect.path, body)
        : await gateway.post(dialect.path, body)
      // Encrypted: rejects unless the end is one that clients take for an end.
      const text = await answer.text()
      expect('response' in answer ? answer.response.status : answer.status).toBe(200)
      const events = namedEventsOf(text)
      const pieces = events.map(dialect.pieceOf).filter(piece => piece !== null)
      expect(pieces).toEqual(['Hi', ...(before.length > 0 ? [' a', ' b', ' c', ' "d"\n'] : [])])
      const last = events.at(-1) ?? {}
      expect([last.type, gatewayErrorIn(last).code]).toEqual(['error', 'upstream_failed'])
      expect(text).not.toContain(dialect.end)
      await expectNoLeak(text, answer)
      expect((await gateway.records()).map(({ outcome, tokens }) => [outcome, tokens])).toEqual([
        ['failed', { prompt: promptEstimate(dialect.chat({ stream: true })), completion: 1 + before.length }],
      ])
      await expectAllClosed()
    })
  }
})

describe.each(DIALECTS)('$operation', dialect => {
  // Goal: what goes up is the chat, what is booked and told is what a chat is booked, whole and streamed.
  test('usage', async () => {
    for (const stream of [false, true]) {
      const chat = await gateway.chat({ stream })
      await chat.text()
      const answer = await gateway.post(dialect.path, dialect.body({ stream }))
      const text = await answer.text()
      expect(answer.status).toBe(200)
      const usage = stream
        ? namedEventsOf(text)
            .map(dialect.usageOf)
            .findLast(usage => usage !== null)
        : dialect.usageOf(JSON.parse(text))
      expect(usage).toEqual([11, 3])
      const [ofChat, ofShape] = (await gateway.records()).slice(-2)
      expect({ ...ofShape, id: '', atMs: 0 }).toEqual({ ...ofChat, id: '', atMs: 0 } as never)
      const [first, second] = upstream.seen.slice(-2)
      expect([second?.path, second?.body]).toEqual([
        first?.path,
        { ...first?.body, ...dialect.chat({ stream }) },
      ] as never)
    }
    upstream.behave = (response, seen, gone) =>
      seen.body.stream === true
        ? wellBehaved(response, { ...seen, body: { ...seen.body, stream_options: {} } }, gone)
        : sendJson(response, 200, { choices: [{ index: 0, message: { content: 'x' }, finish_reason: 'stop' }] })
    for (const stream of [false, true]) {
      await (await gateway.post(dialect.path, dialect.body({ stream }))).text()
      const { tokens, tokensSource } = (await gateway.records()).at(-1) ?? {}
      expect([tokens?.prompt, tokensSource]).toEqual([promptEstimate(dialect.chat({ stream })), 'estimated'])
    }
  })

  // Goal: metrics tell the API apart from chats.
  test('metrics', async () => {
    await (await gateway.post(dialect.path, dialect.body())).text()
    const names = async () =>
      samplesOf(await gateway.metrics())
        .filter(({ name }) => name === 'strongroom_gateway_requests_total')
        .map(({ labels }) => labels.gen_ai_operation_name)
    await until('it is counted', 60_000, async () => (await names()).length > 0)
    expect(await names()).toEqual([dialect.operation])
  })

  // Goal: the receipt covers the client's own request and the bytes that it got; in a stream it stands right before the
  // last event.
  test('receipts', async () => {
    for (const stream of [false, true]) {
      const body = dialect.body({ stream })
      const answer = await gateway.post(dialect.path, body, asked)
      const bytes = new Uint8Array(await answer.arrayBuffer())
      const { body: response, receipt: inStream } = splitResponse(bytes)
      const beside = answer.headers.get('x-strongroom-receipt')
      expect([answer.status, inStream === null, beside === null]).toEqual([200, !stream, stream])
      if (stream) {
        const end = `: strongroom-receipt ${inStream}\n\n${dialect.end}`
        expect(new TextDecoder().decode(bytes).endsWith(end)).toBe(true)
      }
      const receipt = inStream ?? beside ?? ''
      const question = { keys: await gateway.publicKeys(), response, outside: [upstreamIn(receipt)] } as const
      const verdictOn = (request: unknown) =>
        verifyResponse(receipt, { ...question, request: utf8(JSON.stringify(request)) })
      const { ok, claim } = await verdictOn(body)
      expect([ok, claim?.promptTokens, claim?.completionTokens]).toEqual([true, 11, 3])
      expect((await verdictOn({ ...body, temperature: 1 })).ok).toBe(false)
    }
  })

  // Goal: encrypted requests get the same, encrypted; a stream that is whole is taken for whole, refusals are readable.
  test('encryption', async () => {
    for (const stream of [false, true]) {
      const answer = await postEncrypted(gateway, dialect.path, dialect.body({ stream }), { suite: 'xwing' })
      const text = await answer.text()
      const said = stream
        ? namedEventsOf(text)
            .map(dialect.pieceOf)
            .filter(piece => piece !== null)
            .join('')
        : dialect.textOf(JSON.parse(text))
      expect(said).toBe('Grüße 👋 you')
    }
    const refused = await postEncrypted(gateway, dialect.path, dialect.body({ n: 2 }))
    expect(gatewayErrorIn(JSON.parse(await refused.text()))).toMatchObject({
      code: 'invalid_request',
      param: 'n',
    })
  })

  // Goal: no name of a field holds the gateway: one that looks like a path once held it for ever.
  test.each([
    ['foo[bar]', 'foo[bar]'],
    ['a bracket', ']'],
    ['a path of 20,000 steps', 'a.'.repeat(20_000)],
  ])('a field called like %s is left out, or refused', async (_label, name) => {
    const ignored = await gateway.post(dialect.path, dialect.body({ [name]: 1 }))
    expect([ignored.status, ignored.headers.get('x-strongroom-ignored')]).toEqual([200, '?'])
    await using strict = await startGateway([target(upstream.url)], { limits: { refusesUnknownFields: true } })
    const answer = await strict.post(dialect.path, dialect.body({ [name]: 1 }))
    const { param } = gatewayErrorIn(JSON.parse(await answer.text()))
    expect([answer.status, param?.slice(0, 200)]).toEqual([400, name.slice(0, 200)])
    await until('nothing runs', 60_000, async () => (await viewOf(strict)).running === 0)
  })

  // Goal: event sizes do not distinguish pieces of text of about the same length.
  test('padding', async () => {
    await using padding = await startGateway([target(upstream.url)], { limits: { padsStreams: true } })
    const answer = await padding.post(dialect.path, dialect.body({ stream: true }))
    const pieces = (await answer.text()).split('\n\n').filter(event => event.includes('"obfuscation"'))
    expect(pieces.length).toBe(3)
    expect(new Set(pieces.map(piece => Buffer.byteLength(piece))).size).toBe(1)
  })

  // Goal: 401, 404, 405, 413 and 429 are the gateway's own, in that API's document.
  test('refusals', async () => {
    await using busy = await startGateway([target(upstream.url)], { caller: { requestsPerMinute: 4 } })
    const large = JSON.stringify(dialect.body({ metadata: 'x'.repeat(70_000) }))
    const rows = [
      [401, 'unauthenticated', { headers: { authorization: 'Bearer x' } }, dialect.body()],
      [404, 'not_found', {}, dialect.body({ model: 'nope' })],
      [405, 'method_not_allowed', { method: 'PUT' }, dialect.body()],
      [413, 'body_too_large', {}, large],
      [400, 'invalid_request', {}, '{"a":1,"a":2}'],
      [400, 'invalid_request', {}, '[]'],
      [400, 'invalid_request', {}, dialect.body({ n: 2 })],
      [429, 'rate_limited', {}, dialect.body()],
    ] as const
    for (const [status, code, init, body] of rows) {
      const answer = await busy.post(dialect.path, body, init)
      expect([status, answer.status, gatewayErrorIn(JSON.parse(await answer.text())).code]).toEqual([
        status,
        status,
        code,
      ])
    }
  })

  // Goal: another upstream serves what the first one failed at, until the first event.
  test('failover', async () => {
    const upstreams = [target('http://127.0.0.1:9/v1', { name: 'gone', weight: 1000 }), target(upstream.url)]
    await using two = await startGateway(upstreams)
    for (const stream of [false, true]) {
      expect((await two.post(dialect.path, dialect.body({ stream }))).status).toBe(200)
    }
  })
})
