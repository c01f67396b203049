// Costs of requests: exact whatever their size, and rounded up once.

import { expect, test } from 'bun:test'
import { createCost } from '../../../src/inference/metering/price.ts'

const cost = createCost([
  {
    model: 'm',
    prompt_usd_per_million: '1234.567891',
    completion_usd_per_million: '0.000001',
    cached_prompt_usd_per_million: '0.1',
  },
])
/** Pico-dollars of a token. */
const PRICES = { prompt: 1_234_567_891n, cached: 100_000n, completion: 1n }

test('goal: a cost is the exact sum, rounded up to whole nano-dollars, below and above the integers of a number', () => {
  for (const prompt of [0, 1, 7, 999, 4_096, 131_072, 7_295_000, 7_295_858, 7_295_859, 7_296_000, 2 ** 40]) {
    for (const cached of [0, 1, 999, prompt, 2 * prompt]) {
      for (const completion of [0, 1, 998, 999, 1_000, 1_001, 2 ** 52, Number.MAX_SAFE_INTEGER]) {
        const ofCache = BigInt(Math.min(cached, prompt))
        const exact =
          (BigInt(prompt) - ofCache) * PRICES.prompt + ofCache * PRICES.cached + BigInt(completion) * PRICES.completion
        const [whole, rest] = [exact / 1_000n, exact % 1_000n]
        expect(cost('m', { prompt, cached, completion })).toBe(rest === 0n ? whole : whole + 1n)
      }
    }
  }
})
