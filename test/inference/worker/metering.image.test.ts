// The ledger against the worker's own count: llama-server out of our own image, in its sandbox, with our own model.

import { expect, test } from 'bun:test'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import {
  realWorkerModel as model,
  openRealWorker,
  realWorkerSlots as parallel,
} from '../../rigs/gateway/real-worker.ts'

const missing =
  skipUnless(process.getuid?.() === 0, 'needs root to become another user') ||
  skipUnless(Bun.which('bwrap') !== null, 'needs bubblewrap')

const requestCount = 200
const WORDS = ['hello', 'the', 'world', 'Grüße', '👋', 'a longer word: antidisestablishmentarianism', '{"x":1}']

type Usage = { readonly prompt_tokens: number; readonly completion_tokens: number }
type Asked = { readonly path: string; readonly body: Record<string, unknown>; readonly isGood: boolean }

/** Chat and text, streamed and not, with and without usage, short and long; no sampling, so that answers repeat. */
function requestOf(index: number): Asked {
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
  'metered tokens are the tokens that the worker counts',
  async () => {
    // Goal: over 200 mixed requests the ledger's sums are exactly the worker's for the same requests without a gateway.
    await using bench = await openRealWorker()
    const { gateway, key } = bench
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
    expect(shown.length).toBeGreaterThan(100)
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
  120_000,
)

test.skipIf(missing)(
  'streams one after the other',
  async () => {
    // Goal: no request is sent on a connection that the worker has closed: it does so after a stream despite
    // keep-alive.
    await using bench = await openRealWorker()
    const body = { model, prompt: 'hello', max_tokens: 2, temperature: 0, stream: true }
    const statuses = await inParallel(1_500, 2, async () => {
      const answer = await bench.gateway.post('/v1/completions', body, { key: bench.key })
      const text = await answer.text()
      return text.endsWith('data: [DONE]\n\n') ? answer.status : 0
    })
    expect(statuses.filter(status => status !== 200)).toEqual([])
  },
  120_000,
)
