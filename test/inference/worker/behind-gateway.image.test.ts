// The built-in worker behind its gateway: llama-server out of our own image, in its sandbox, with our own model. One
// worker for all tests. It reveals nothing of another organization's prompts, and the ledger has its own count.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import {
  type Exchange,
  realWorkerModel as model,
  openRealWorker,
  realWorkerSlots as parallel,
  type RealWorker,
} from '../../rigs/gateway/real-worker.ts'

const missing =
  skipUnless(process.getuid?.() === 0, 'needs root to become another user') ||
  skipUnless(Bun.which('bwrap') !== null, 'needs bubblewrap')

let bench: RealWorker
beforeAll(async () => {
  if (!missing) bench = await openRealWorker()
}, 300_000)
afterAll(() => bench?.[Symbol.asyncDispose]())

/** Long enough that an engine would gain by keeping it. */
const secret = Array.from({ length: 60 }, (_, at) => `the code of door ${at} is ${at * 7919}`).join('; ')
const ask = { model, max_tokens: 2, temperature: 0 }
/** Fields by which a client may try to have its prompt compared with cached ones, in each slot. */
const tricks = [
  {},
  { cache_prompt: true },
  ...Array.from({ length: parallel }, (_, slot) => ({ cache_prompt: true, id_slot: slot })),
  { cache_prompt: true, n_cache_reuse: 1, timings_per_token: true, return_progress: true },
]

/** llama-server's account of one prompt: tokens that it computed, and tokens that it had kept. */
type Timings = { readonly prompt_n: number; readonly cache_n: number }

function timingsOf(answered: string): Timings {
  const events = answered.startsWith('data: ')
    ? answered.split('\n\n').filter(event => event.startsWith('data: {'))
    : []
  const texts = events.length === 0 ? [answered] : events.map(event => event.slice('data: '.length))
  const found = texts.map(text => (JSON.parse(text) as { timings?: Timings }).timings).findLast(Boolean)
  if (found === undefined) throw new Error(`no timings in ${answered.slice(0, 500)}`)
  return found
}

const completions = (exchanges: readonly Exchange[]) => exchanges.filter(({ path }) => path.endsWith('completions'))

/** Every combination of the kinds of requests, and some that fail. */
const requestCount = runsAll ? 240 : 60
const streamCount = runsAll ? 1_500 : 300
const WORDS = ['hello', 'the', 'world', 'Grüße', '👋', 'a longer word: antidisestablishmentarianism', '{"x":1}']

type Usage = { readonly prompt_tokens: number; readonly completion_tokens: number }
type SentRequest = { readonly path: string; readonly body: Record<string, unknown>; readonly isGood: boolean }

/** Chat and text, streamed and not, with and without usage, short and long; no sampling, so that answers repeat. */
function requestOf(index: number): SentRequest {
  const prompt = Array.from({ length: 1 + (index % 9) }, (_, word) => WORDS[(index + word) % WORDS.length]).join(' ')
  const isChat = index % 2 === 0
  const stream = index % 3 > 0
  const isGood = index % 20 !== 19
  return {
    path: isChat ? '/chat/completions' : '/completions',
    isGood,
    body: {
      model: isGood ? model : 'another',
      ...(isChat ? { messages: [{ role: 'user', content: prompt }] } : { prompt }),
      max_tokens: 1 + (index % 13),
      temperature: 0,
      seed: 7,
      ...(index % 5 === 0 ? { stop: ['e'] } : {}),
      ...(stream ? { stream: true } : {}),
      ...(stream && index % 4 < 2 ? { stream_options: { include_usage: true } } : {}),
    },
  }
}

/** Usage in a response or in a stream's chunk; null if it was not asked for. */
function usageIn(text: string): Usage | null {
  const events = text.startsWith('data: ')
    ? text
        .split('\n\n')
        .filter(event => event.startsWith('data: {'))
        .map(event => event.slice(6))
    : [text]
  return events.map(event => (JSON.parse(event) as { usage?: Usage | null }).usage ?? null).findLast(Boolean) ?? null
}

function sum(usages: readonly Usage[]): { prompt: number; completion: number } {
  const of = (field: keyof Usage) => usages.reduce((total, usage) => total + usage[field], 0)
  return { prompt: of('prompt_tokens'), completion: of('completion_tokens') }
}

async function inParallel<T>(count: number, runners: number, item: (index: number) => Promise<T>): Promise<T[]> {
  const results: T[] = []
  let next = 0
  const run = async () => {
    for (let index = next++; index < count; index = next++) results[index] = await item(index)
  }
  await Promise.all(Array.from({ length: runners }, run))
  return results
}

test.skipIf(missing)(
  'the engine alone would tell',
  async () => {
    // Goal: without the gateway the same numbers show what is kept, so that the next test can fail. It comes
    // first, while the engine has kept nothing.
    const { baseUrl, unix } = bench.worker.upstream
    const timings = []
    for (let at = 0; at < 2; at += 1) {
      const body = JSON.stringify({ ...ask, prompt: secret, cache_prompt: true, id_slot: 0 })
      const answer = await fetch(`${baseUrl}/completions`, { unix, keepalive: false, method: 'POST', body })
      timings.push(timingsOf(await answer.text()))
    }
    const [first, second] = timings
    expect(first?.cache_n).toBe(0)
    expect(second?.cache_n).toBeGreaterThan(200)
    expect(second?.prompt_n).toBeLessThan(first?.prompt_n ?? 0)
  },
  300_000,
)

test.skipIf(missing)(
  'a prompt of another organization is computed anew, whoever asks how, and nothing in the answer tells',
  async () => {
    // Goal: neither counts nor the engine's work reveal another organization's prompt, whatever fields a client sends.
    await using listening = await bench.openGateway({ listens: true })
    const { gateway, exchanges, key } = listening
    const keys = { acme: key, beta: await gateway.addKey({ organizationId: 'o2' }) }
    const bodies = [
      ['/v1/completions', { prompt: secret }],
      ['/v1/chat/completions', { messages: [{ role: 'user', content: secret }] }],
    ] as const
    for (const [path, body] of bodies) {
      const before = completions(exchanges).length
      const first = await gateway.post(path, { ...ask, ...body }, { key: keys.acme })
      expect([path, first.status]).toEqual([path, 200])
      await first.text()
      for (const stream of [false, true]) {
        const how = stream ? { stream: true, stream_options: { include_usage: true } } : {}
        for (const trick of tricks) {
          const answer = await gateway.post(path, { ...ask, ...body, ...how, ...trick }, { key: keys.beta })
          const text = await answer.text()
          expect([trick, answer.status]).toEqual([trick, 200])
          expect(text).toContain('prompt_tokens')
          expect(text).not.toMatch(/cached_tokens|timings|cache_n|prompt_progress|id_slot/)
        }
      }
      const seen = completions(exchanges).slice(before)
      expect(seen.length).toBe(1 + 2 * tricks.length)
      const timings = seen.map(({ answered }) => timingsOf(answered))
      const whole = timings[0]?.prompt_n ?? 0
      expect(whole).toBeGreaterThan(200)
      expect(timings.map(({ prompt_n, cache_n }) => [prompt_n, cache_n])).toEqual(timings.map(() => [whole, 0]))
      for (const { asked } of seen) {
        const { cache_prompt, id_slot, n_cache_reuse } = JSON.parse(asked) as Record<string, unknown>
        expect([cache_prompt, id_slot, n_cache_reuse]).toEqual([false, undefined, undefined])
      }
    }
  },
  300_000,
)

test.skipIf(missing)(
  'metered tokens are the tokens that the worker counts',
  async () => {
    // Goal: over mixed requests of every kind the ledger's sums are exactly the worker's for the same
    // requests without a gateway.
    await using metered = await bench.openGateway()
    const { gateway, key } = metered
    const { baseUrl, unix } = bench.worker.upstream
    const told = await inParallel(requestCount, parallel, async index => {
      const { path, body, isGood } = requestOf(index)
      const answer = await gateway.post(`/v1${path}`, body, { key })
      const text = await answer.text()
      expect([index, answer.status]).toEqual([index, isGood ? 200 : 404])
      return isGood ? usageIn(text) : null
    })
    const counted = await inParallel(requestCount, parallel, async index => {
      const { path, body, isGood } = requestOf(index)
      if (!isGood) return null
      const more = body.stream === true ? { stream_options: { include_usage: true } } : {}
      const answer = await fetch(baseUrl + path, {
        unix,
        // After a stream it closes a connection that it has said it would keep.
        keepalive: false,
        method: 'POST',
        body: JSON.stringify({ ...body, ...more }),
      })
      const usage = usageIn(await answer.text())
      expect(usage).not.toBeNull()
      return usage
    })

    const good = counted.filter(usage => usage !== null)
    const shown = told.filter(usage => usage !== null)
    expect(good.length).toBe(requestCount * 0.95)
    expect(shown.length).toBeGreaterThan(requestCount / 2)
    const numbers = (usage: Usage | null | undefined) => usage && [usage.prompt_tokens, usage.completion_tokens]
    for (const [index, usage] of told.entries()) {
      if (usage !== null) expect([index, numbers(usage)]).toEqual([index, numbers(counted[index])])
    }
    // Not all alike: some were short by themselves.
    expect(new Set(good.map(usage => usage.completion_tokens)).size).toBeGreaterThan(5)
    const { requests, promptTokens, completionTokens } = await gateway.usage()
    expect(requests).toBe(good.length)
    expect({ prompt: Number(promptTokens), completion: Number(completionTokens) }).toEqual(sum(good))
    process.stderr.write(`${requests} requests, ${promptTokens} + ${completionTokens} tokens\n`)
  },
  300_000,
)

test.skipIf(missing)(
  'streams one after the other',
  async () => {
    // Goal: no request is sent on a connection that the worker has closed: it does so after a stream despite
    // keep-alive.
    await using streaming = await bench.openGateway()
    const { gateway, key } = streaming
    const body = { model, prompt: 'hello', max_tokens: 2, temperature: 0, stream: true }
    const statuses = await inParallel(streamCount, 2, async () => {
      const answer = await gateway.post('/v1/completions', body, { key })
      const text = await answer.text()
      return text.endsWith('data: [DONE]\n\n') ? answer.status : 0
    })
    expect(statuses.filter(status => status !== 200)).toEqual([])
  },
  300_000,
)
