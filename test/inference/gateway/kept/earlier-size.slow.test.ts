// Small requests that name large earlier responses: they pay for their size before anything of it
// is loaded.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { MODEL, startHostGateway, type TestGateway, target } from '../../../../scripts/rigs/gateway/server.ts'
import { sendJson, startUpstream, type TestUpstream } from '../../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../../scripts/rigs/until.ts'
import { systemClock } from '../../../../src/base/clock.ts'
import { createResponseMemory } from '../../../../src/inference/gateway/response-memory.ts'
import type { Caller } from '../../../../src/inference/types.ts'
import { startRelayedGateway } from '../../../rigs/gateway/relayed-gateway.ts'

let undo: AsyncDisposableStack
let upstream: TestUpstream
let isHeld: boolean
/** Texts that were read of kept responses. */
let reads: number

beforeEach(async () => {
  undo = new AsyncDisposableStack()
  isHeld = false
  reads = 0
  upstream = await startUpstream(async response => {
    await until('the test lets responses go', 120_000, () => !isHeld)
    const message = { role: 'assistant', content: 'x' }
    const usage = { prompt_tokens: 7, completion_tokens: 5 }
    sendJson(response, 200, { choices: [{ index: 0, finish_reason: 'stop', message }], usage })
  })
  undo.defer(upstream.stop)
  undo.defer(() => {
    isHeld = false
  })
})

afterEach(() => undo.disposeAsync())

const path = '/v1/responses'
const limits = { bodyBytesMax: 4_194_304 }
type Poster = Pick<TestGateway, 'post'>

function start(caller: Partial<Pick<Caller, 'tokensPerMinute'>>): TestGateway {
  const memory = createResponseMemory(systemClock)
  const responses: typeof memory = {
    ...memory,
    find: (...asked) => {
      reads += 1
      return memory.find(...asked)
    },
  }
  return undo.use(startHostGateway([target(upstream.url)], { limits, caller, host: { responses } }))
}

/** The id of the last of so many responses, each with an input of so many characters. */
async function chain(gateway: Poster, count: number, input: string): Promise<string> {
  let previous: string | null = null
  for (let at = 0; at < count; at += 1) {
    const answer: Response = await gateway.post(path, { model: MODEL, input, previous_response_id: previous })
    expect(answer.status).toBe(200)
    previous = ((await answer.json()) as { id: string }).id
  }
  return previous ?? ''
}

type Told = { readonly error: { readonly code: string; readonly param: string | null; readonly message: string } }
const errorOf = async (answer: Response) => ((await answer.json()) as Told).error
const small = (id: string) => ({ model: MODEL, input: 'x', previous_response_id: id })
/** Four MiB together with what stands around them. */
const large = 'y'.repeat(1_040_000)
const megatokens = { tokensPerMinute: 1_000_000_000 }

/**
 * 32 requests at once that name it. Returns how many of them were at the upstream at once; the
 * others got a 429.
 */
async function flood(gateway: Poster, id: string): Promise<number> {
  const body = JSON.stringify(small(id))
  expect(body.length).toBeLessThan(130)
  isHeld = true
  const before = upstream.seen.length
  let refused = 0
  const answers = Array.from({ length: 32 }, async () => {
    const answer = await gateway.post(path, body)
    if (answer.status !== 200) refused += 1
    return answer
  })
  await until('each waits or is refused', 120_000, () => upstream.seen.length - before + refused === 32)
  const atUpstream = upstream.seen.length - before
  isHeld = false
  const all = await Promise.all(answers)
  for (const answer of all.filter(({ status }) => status !== 200)) {
    expect([answer.status, answer.headers.get('retry-after')]).toEqual([429, '5'])
    const { code, message } = await errorOf(answer)
    expect(code).toBe('rate_limited')
    expect(message).toContain('Your organization’s requests hold all memory')
    expect(message).toContain('earlier responses')
  }
  return atUpstream
}

// Goal: 32 requests of 120 bytes on a chain of 4 MiB take no more memory than an organization's
// share of it.
test('memory', async () => {
  const gateway = start(megatokens)
  const id = await chain(gateway, 4, large)
  reads = 0
  // 64 MiB, by three times 4 MiB.
  expect(await flood(gateway, id)).toBe(5)
  // The others were refused before a text was read.
  expect(reads).toBe(5 * 4)
  // All of it comes back.
  expect(await flood(gateway, id)).toBe(5)
}, 120_000)

// Goal: the same where several processes serve the clients: each has a share of its own.
test('memory of relays', async () => {
  const gateway = undo.use(
    await startRelayedGateway([target(upstream.url)], { processes: 2, settings: limits, caller: megatokens }),
  )
  await until('both listen', 120_000, () => gateway.counts().running === 2)
  const id = await chain(gateway, 4, large)
  const atOnce = await flood(gateway, id)
  // The kernel decides which of the two gets a connection.
  expect(atOnce).toBeGreaterThanOrEqual(5)
  expect(atOnce).toBeLessThanOrEqual(10)
}, 120_000)

// Goal: their tokens are reserved before they are read, so that requests at the same time cannot
// pass the key's limit.
test('tokens', async () => {
  const gateway = start({ tokensPerMinute: 300_000 })
  const id = await chain(gateway, 1, 'y'.repeat(800_000))
  isHeld = true
  reads = 0
  const first = gateway.post(path, small(id))
  await until('it is at the upstream', 60_000, () => upstream.seen.length === 2)
  expect(reads).toBe(1)
  const second = await gateway.post(path, small(id))
  expect(second.status).toBe(429)
  const seconds = Number(second.headers.get('retry-after'))
  expect(seconds).toBeGreaterThan(0)
  expect(await errorOf(second)).toMatchObject({
    code: 'rate_limited',
    message: `Limit of 300000 tokens per minute reached, including the earlier responses that the request names. Retry in ${seconds} s.`,
  })
  expect([reads, upstream.seen.length]).toEqual([1, 2])
  isHeld = false
  expect((await first).status).toBe(200)
  // The tokens that were used replace those that were reserved.
  expect((await gateway.post(path, small(id))).status).toBe(200)
  // Characters of a chat on the way: four make a token.
  const remaining = (await gateway.chat()).headers.get('x-ratelimit-remaining-tokens')
  expect(Number(remaining)).toBeGreaterThan(298_000)
})

// Goal: more than the key's limit of a minute waits for an empty window, and takes all of it.
test('more tokens than the limit', async () => {
  const gateway = start({ tokensPerMinute: 1_000 })
  const id = await chain(gateway, 1, 'y'.repeat(3_000))
  // 13 of 1,000 are used, so that the window is not empty.
  const answer = await gateway.post(path, small(id))
  expect([answer.status, (await errorOf(answer)).code]).toEqual([429, 'rate_limited'])
  expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(50)
})

// Goal: a chain beyond 4 MiB, or of too many values, is a 413 that says so; not a text of it is
// read.
test.each([
  ['characters', 5, large, 'characters'],
  [
    'values',
    2,
    [
      { type: 'reasoning', junk: Array(140_000).fill(0) },
      { role: 'user', content: 'x' },
    ],
    'values',
  ],
] as const)(
  'too many %s',
  async (_name, count, input, word) => {
    const gateway = start(megatokens)
    const id = await chain(gateway, count, input as string)
    reads = 0
    const before = upstream.seen.length
    const answer = await gateway.post(path, small(id))
    expect([answer.status, await errorOf(answer)]).toMatchObject([
      413,
      { code: 'body_too_large', param: 'previous_response_id', message: expect.stringContaining(word) },
    ])
    expect([reads, upstream.seen.length]).toEqual([0, before])
  },
  120_000,
)
