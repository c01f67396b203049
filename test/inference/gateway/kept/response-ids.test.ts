// The host as a client: it minted the key and stores every usage row, and still opens no kept
// response.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { MODEL, startHostGateway, target } from '../../../../scripts/rigs/gateway/server.ts'
import { startUpstream, type TestUpstream } from '../../../../scripts/rigs/gateway/upstream-server.ts'
import { systemClock } from '../../../../src/base/clock.ts'
import { systemRandom } from '../../../../src/base/ids.ts'
import type { TraceSpan } from '../../../../src/contract/vm/span.ts'
import { createResponseMemory } from '../../../../src/inference/gateway/response-memory.ts'
import { createTracer } from '../../../../src/inference/traces/tracer.ts'
import { startRealGateway } from '../../../rigs/gateway/real-gateway.ts'

let undo: AsyncDisposableStack
let upstream: TestUpstream

beforeEach(async () => {
  undo = new AsyncDisposableStack()
  upstream = await startUpstream()
  undo.defer(upstream.stop)
})

afterEach(() => undo.disposeAsync())

const messages = [{ role: 'user', content: 'Hello' }]
/** Every request whose response has an id, with the form of that id. */
const REQUESTS = [
  ['/v1/chat/completions', { messages }, /"id":"chatcmpl-([^"]+)"/],
  ['/v1/completions', { prompt: 'Hello' }, /"id":"cmpl-([^"]+)"/],
  ['/v1/responses', { input: 'Hello' }, /"id":"resp_([^"]+)"/],
  ['/v1/messages', { messages, max_tokens: 10 }, /"id":"msg_([^"]+)"/],
] as const
const secretPrompt = 'the launch code is 0451'

// Goal: ids built from the usage rows, under the very key, open neither a response nor an item of
// one.
test('ids out of usage rows', async () => {
  const gateway = undo.use(await startRealGateway([target(upstream.url)]))
  const key = await gateway.addKey()
  const ask = (more: object) => gateway.post('/v1/responses', { model: MODEL, input: 'x', ...more }, { key })
  const answer = await ask({ input: secretPrompt })
  const requestId = answer.headers.get('x-request-id') ?? ''
  expect([answer.status, (await answer.json()) as object]).toMatchObject([200, { store: true }])
  const rows = await gateway.records()
  expect(rows.map(row => row.id)).toEqual([requestId])
  for (const { id } of rows) {
    for (const guess of [id, id.replaceAll('-', '')]) {
      expect((await ask({ previous_response_id: `resp_${guess}` })).status).toBe(404)
      for (const tag of ['msg', 'rs', 'fc', 'ctc']) {
        const input = [{ type: 'item_reference', id: `${tag}_${guess}000` }]
        expect((await ask({ input })).status).toBe(404)
      }
    }
  }
  expect(upstream.seen.map(({ body }) => JSON.stringify(body).includes(secretPrompt))).toEqual([true])
})

// Goal: the id stands in the response's body alone: not in headers, rows, log, metrics, receipts or
// bytes for the host.
test.each(REQUESTS)('%s: the id is in the body alone', async (path, fields, form) => {
  const gateway = undo.use(await startRealGateway([target(upstream.url)]))
  const key = await gateway.addKey()
  const outside: string[] = []
  const ids: string[] = []
  for (const stream of [false, true]) {
    for (const receipt of ['1', 'keep']) {
      const headers = { 'x-strongroom-receipt': receipt }
      const answer = await gateway.post(path, { model: MODEL, stream, ...fields }, { key, headers })
      const body = await answer.text()
      expect([answer.status, body]).toEqual([200, expect.stringMatching(form)])
      const [, id = ''] = form.exec(body) ?? []
      // 128 bits at least.
      expect(id).toMatch(/^[0-9a-f]{32}$/)
      ids.push(id)
      outside.push(JSON.stringify([...answer.headers]), ...receiptsIn(body, answer))
      const keptPath = `${gateway.url}/v1/receipts/${answer.headers.get('x-request-id')}`
      const kept = await fetch(keptPath, { headers: { authorization: `Bearer ${key}` } })
      expect(kept.status).toBe(200)
      outside.push(opened(await kept.text()))
    }
  }
  expect(new Set(ids).size).toBe(4)
  outside.push(JSON.stringify(await gateway.records()), await gateway.metrics())
  for (const trace of (await gateway.traces()).values()) outside.push(latin1(trace))
  for (const id of ids) for (const text of outside) expectWithout(text, id)
})

// Goal: spans do not have it either; nor do ids share anything beyond chance with the request's.
test('spans', async () => {
  const spans: TraceSpan[] = []
  const settings = { sampleRatio: 1, followParent: true, forwardParent: true }
  const beginTrace = createTracer({
    settings,
    offer: span => void spans.push(span),
    clock: systemClock,
    random: systemRandom,
  })
  const gateway = undo.use(startHostGateway([target(upstream.url)], { host: { beginTrace } }))
  for (const [path, fields, form] of REQUESTS) {
    const answer = await gateway.post(path, { model: MODEL, ...fields })
    const requestId = (answer.headers.get('x-request-id') ?? '').replaceAll('-', '')
    const [, id = ''] = form.exec(await answer.text()) ?? []
    expect(longestShared(id, requestId)).toBeLessThan(10)
    expect(JSON.stringify(spans)).not.toContain(id)
    expectWithout((await gateway.log()).join('\n'), id)
  }
  expect(spans.length).toBeGreaterThanOrEqual(REQUESTS.length)
})

// Goal: the memory of responses, which another process may have, gets digests and no id, in
// whatever it is sent.
test('the memory', async () => {
  const memory = createResponseMemory(systemClock)
  const sent: unknown[] = []
  const responses: typeof memory = {
    isOn: true,
    survey: (digests, by) => {
      sent.push(digests, by)
      return memory.survey(digests, by)
    },
    find: (digest, by) => {
      sent.push(digest, by)
      return memory.find(digest, by)
    },
    keep: (digest, kept) => {
      sent.push(digest, kept)
      memory.keep(digest, kept)
    },
  }
  const gateway = undo.use(startHostGateway([target(upstream.url)], { host: { responses } }))
  const ask = async (more: object) => {
    const answer = await gateway.post('/v1/responses', { model: MODEL, input: secretPrompt, ...more })
    expect(answer.status).toBe(200)
    return (await answer.json()) as { id: string; output: { id: string }[] }
  }
  const first = await ask({})
  const second = await ask({ previous_response_id: first.id })
  const input = [
    { type: 'item_reference', id: second.output.at(-1)?.id },
    { role: 'user', content: 'x' },
  ]
  const third = await ask({ input, previous_response_id: second.id })
  const ids = [first, second, third].map(({ id }) => id.slice('resp_'.length))
  expect(sent.length).toBeGreaterThan(10)
  for (const id of ids) expectWithout(JSON.stringify(sent), id)
  // SHA-256 of the id is the name.
  const digests = ids.map(id => new Bun.CryptoHasher('sha256').update(id).digest('hex'))
  for (const digest of digests) expect(JSON.stringify(sent)).toContain(digest)
})

// Goal: what an upstream gets of a call's made-up id is no part of the id that opens the response.
test('made-up ids of calls', async () => {
  upstream.behave = response => {
    const call = { type: 'function', function: { name: 'read', arguments: '{}' } }
    const message = { role: 'assistant', content: null, tool_calls: [call] }
    response
      .writeHead(200, { 'content-type': 'application/json' })
      .end(JSON.stringify({ choices: [{ index: 0, finish_reason: 'tool_calls', message }] }))
  }
  const gateway = undo.use(await startRealGateway([target(upstream.url)]))
  const tools = [{ type: 'function', name: 'read', parameters: {} }]
  const key = await gateway.addKey()
  const answer = await gateway.post('/v1/responses', { model: MODEL, input: 'x', tools }, { key })
  const { id, output } = (await answer.json()) as { id: string; output: { call_id: string }[] }
  const callId = output[0]?.call_id ?? ''
  expect(callId).toMatch(/^call_[0-9a-f]{12}_0$/)
  expect(longestShared(id, callId)).toBeLessThan(8)
})

// Goal: the host, with the very key, gets of a kept receipt the digests of salted text and what its
// own row has.
test('a kept receipt opens nothing', async () => {
  const gateway = undo.use(await startRealGateway([target(upstream.url)]))
  const key = await gateway.addKey()
  const asked = { model: MODEL, input: secretPrompt }
  const headers = { 'x-strongroom-receipt': 'keep' }
  const answer = await gateway.post('/v1/responses', asked, { key, headers })
  const { id } = (await answer.json()) as { id: string }
  const salt = Buffer.from(answer.headers.get('x-strongroom-receipt-salt') ?? '', 'base64url')
  const kept = await fetch(`${gateway.url}${answer.headers.get('x-strongroom-receipt-path')}`, {
    headers: { authorization: `Bearer ${key}` },
  })
  const bytes = opened(await kept.text())
  expect([kept.status, salt.length]).toEqual([200, 32])
  expectWithout(bytes, id.slice('resp_'.length))
  for (const text of [secretPrompt, 'Grüße', salt.toString('latin1')]) expect(bytes).not.toContain(text)
  // Nor the digest of the request without the salt, which would confirm a guess.
  const digest = new Bun.CryptoHasher('sha256', undefined).update(JSON.stringify(asked)).digest()
  expect(bytes).not.toContain(digest.toString('latin1'))
})

function receiptsIn(body: string, answer: Response): string[] {
  const carried = [answer.headers.get('x-strongroom-receipt'), /strongroom-receipt (\S+)/.exec(body)?.[1] ?? null]
  return carried.flatMap(text => (text === null ? [] : text.split('.').map(opened)))
}

/** The bytes of base64url. */
function opened(text: string): string {
  return Buffer.from(text, 'base64url').toString('latin1')
}

function latin1(trace: Uint8Array | string): string {
  return typeof trace === 'string' ? trace : Buffer.from(trace).toString('latin1')
}

/** Neither in hexadecimal nor as bytes. */
function expectWithout(text: string, id: string): void {
  expect(text.replaceAll('-', '').includes(id)).toBe(false)
  expect(text.includes(Buffer.from(id, 'hex').toString('latin1'))).toBe(false)
}

/** Characters of the longest part that both have. */
function longestShared(text: string, other: string): number {
  let longest = 0
  for (let start = 0; start < text.length; start += 1) {
    while (start + longest < text.length && other.includes(text.slice(start, start + longest + 1))) longest += 1
  }
  return longest
}
