// Tokens of a prompt that came out of a cache: their price, in the ledger and in the rows of a gateway VM.

import { expect, test } from 'bun:test'
import { atMost } from '../../../src/inference/metering/account.ts'
import { Metering } from '../../../src/inference/metering/ledger.ts'
import { createCost } from '../../../src/inference/metering/price.ts'
import { usageRowOf } from '../../../src/inference/metering/row.ts'
import type { UsageRecord } from '../../../src/inference/metering/types.ts'
import { usageRecordOf } from '../../../src/inference/metering/vm-usage-ledger.ts'
import { findUsage } from '../../../src/store/directory/usage/usage.query.ts'
import { callerOf, openLedger } from '../../rigs/gateway/keys.ts'

const price = { model: 'large', prompt_usd_per_million: '3', completion_usd_per_million: '15' }
const priced = { ...price, cached_prompt_usd_per_million: '0.3' }

// Goal: worked out by hand: only the cached part has the lower price; without one it costs as much as the rest.
test.each([
  [priced, 1_000, 10, undefined, 3_150_000n],
  [priced, 1_000, 10, 0, 3_150_000n],
  [priced, 1_000, 10, 900, 720_000n],
  [priced, 1_000, 0, 1_000, 300_000n],
  [{ ...price, cached_prompt_usd_per_million: '0' }, 1_000, 0, 1_000, 0n],
  [{ ...price, cached_prompt_usd_per_million: '' }, 1_000, 10, 900, 3_150_000n],
  [price, 1_000, 10, 900, 3_150_000n],
  // More than there are: an engine's word lowers the price of the prompt, and of nothing else.
  [priced, 10, 10, 1_000_000, 153_000n],
])('%o: %d + %d, %p cached', (of, prompt, completion, cached, nanoUsd) => {
  const tokens = cached === undefined ? { prompt, completion } : { prompt, completion, cached }
  expect(createCost([of])('large', tokens)).toBe(nanoUsd)
})

// Goal: a budget reserves for a prompt without a cache, so no cached token may cost more than that.
test('a cached token that costs more', () => {
  const dear = { ...price, cached_prompt_usd_per_million: '3.000001' }
  expect(() => createCost([dear])).toThrow('cached_prompt_usd_per_million of large is above')
})

const record: UsageRecord = {
  id: 'r1',
  atMs: 1_000,
  caller: callerOf(),
  model: 'large',
  upstream: 'u',
  tokens: { prompt: 1_000, completion: 10, cached: 900 },
  tokensSource: 'reported',
  outcome: 'completed',
}

// Goal: the count is in the ledger beside the cost that it explains, on a host and through a gateway VM alike.
test.each(['on the host', 'through a VM'])('the ledger, %s', where => {
  using ledger = openLedger()
  const { store, clock, log } = ledger
  const deps = { store: { db: store.db, transact: store.transact }, clock, log, cost: createCost([priced]) }
  const metering = new Metering(deps)
  if (where === 'on the host') metering.record(record)
  else metering.book([usageRecordOf(usageRowOf(record))])
  metering.flush()
  expect(findUsage(store.db, 'r1')).toMatchObject({ promptTokens: 1_000, cachedTokens: 900, costNanoUsd: 720_000 })
})

// Goal: a request without a cache has the row that hosts of earlier releases take.
test('rows without cached tokens', () => {
  const tokens = { prompt: 1, completion: 1 }
  expect(usageRowOf({ ...record, tokens })).not.toHaveProperty('cachedTokens')
  expect(usageRecordOf(usageRowOf({ ...record, tokens })).tokens).toEqual(tokens)
})

// Goal: a count that is cut to what was reserved has no more cached tokens than tokens.
test('cut counts', () => {
  expect(atMost({ prompt: 10, completion: 5, cached: 9 }, { prompt: 4, completion: 9 })).toEqual({
    prompt: 4,
    completion: 5,
    cached: 4,
  })
})
