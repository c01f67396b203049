// The built-in worker reveals nothing of another organization's prompts: the real llama-server, its own responses
// beside the gateway's.

import { expect, test } from 'bun:test'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { type Exchange, openRealWorker, realWorkerModel, realWorkerSlots } from '../../rigs/gateway/real-worker.ts'

const missing =
  skipUnless(process.getuid?.() === 0, 'needs root to become another user') ||
  skipUnless(Bun.which('bwrap') !== null, 'needs bubblewrap')

/** Long enough that an engine would gain by keeping it. */
const secret = Array.from({ length: 60 }, (_, at) => `the code of door ${at} is ${at * 7919}`).join('; ')
const ask = { model: realWorkerModel, max_tokens: 2, temperature: 0 }
/** Fields by which a client may try to have its prompt compared with cached ones, in each slot. */
const tricks = [
  {},
  { cache_prompt: true },
  ...Array.from({ length: realWorkerSlots }, (_, slot) => ({ cache_prompt: true, id_slot: slot })),
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

test.skipIf(missing)(
  'a prompt of another organization is computed anew, whoever asks how, and nothing in the answer tells',
  async () => {
    // Goal: neither counts nor the engine's work reveal another organization's prompt, whatever fields a client sends.
    await using bench = await openRealWorker({ listens: true })
    const { gateway, exchanges } = bench
    const keys = { acme: bench.key, beta: await gateway.addKey({ organizationId: 'o2' }) }
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
  120_000,
)

test.skipIf(missing)(
  'the engine alone would tell',
  async () => {
    // Goal: without the gateway the same numbers show what is kept, so that the test above can fail.
    await using bench = await openRealWorker()
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
  60_000,
)
