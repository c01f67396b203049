// Metering: exact integer sums over a real ledger, whatever happens on the way.

import { describe, expect, test } from 'bun:test'
import { flushIntervalMs, Metering, retryIntervalMs } from '../../../src/inference/metering/ledger.ts'
import { createCost, microUsd } from '../../../src/inference/metering/price.ts'
import type { UsageRecord } from '../../../src/inference/metering/types.ts'
import { findUsage, sumUsage } from '../../../src/store/directory/usage/usage.query.ts'
import { callerOf, openLedger } from '../../rigs/gateway/keys.ts'

const PRICES = [
  { model: 'tiny', prompt_usd_per_million: '0.10', completion_usd_per_million: '0.4' },
  { model: 'large', prompt_usd_per_million: '3', completion_usd_per_million: '15.123456' },
]
const always = { startMs: 0, endMs: Number.MAX_SAFE_INTEGER }

function bench(prices = PRICES) {
  const ledger = openLedger()
  const { store, clock, log } = ledger
  const deps = { store: { db: store.db, transact: store.transact }, clock, log, cost: createCost(prices) }
  return { ledger, deps, metering: new Metering(deps), [Symbol.dispose]: ledger[Symbol.dispose] }
}

function recordOf(id: string, changes: Partial<UsageRecord> = {}): UsageRecord {
  return {
    id,
    atMs: 1_000,
    caller: callerOf(),
    model: 'tiny',
    upstream: 'local',
    tokens: { prompt: 10, completion: 20 },
    tokensSource: 'reported',
    outcome: 'completed',
    ...changes,
  }
}

describe('cost', () => {
  // Goal: worked out by hand: nano-dollars, rounded up once a request, never a float.
  test.each([
    ['tiny', 0, 0, 0n],
    ['tiny', 1, 0, 100n],
    ['tiny', 1_000_000, 1_000_000, 500_000_000n],
    ['large', 0, 1, 15_124n],
    ['large', 1, 1, 18_124n],
    ['large', 0, 1_000_000, 15_123_456_000n],
    ['large', 3, 7, 114_865n],
    ['large', 0, Number.MAX_SAFE_INTEGER, 136_219_981_612_308_168_785n],
    ['free', 1_000, 1_000, 0n],
  ])('%s %d + %d', (model, prompt, completion, nanoUsd) => {
    expect(createCost(PRICES)(model, { prompt, completion })).toBe(nanoUsd)
  })

  test('the smallest price is never nothing', () => {
    // Goal: one token at a millionth of a dollar per million is charged the ledger's smallest unit, and shown as the
    // smallest amount.
    const cost = createCost([{ model: 'm', prompt_usd_per_million: '0.000001', completion_usd_per_million: '0' }])
    expect(cost('m', { prompt: 1, completion: 0 })).toBe(1n)
    expect(cost('m', { prompt: 1_000, completion: 0 })).toBe(1n)
    expect(cost('m', { prompt: 1_001, completion: 0 })).toBe(2n)
    expect([0n, 1n, 1_000n, 1_001n].map(microUsd)).toEqual([0n, 1n, 1n, 2n])
  })

  test('two prices for a model', () => {
    // Goal: it is not guessed which one was meant.
    expect(() => createCost([...PRICES, ...PRICES.slice(0, 1)])).toThrow('inference.prices names tiny twice')
  })
})

test('200 mixed requests sum exactly', () => {
  // Goal: sums per organization and period equal an independent count in pico-dollars, with repeated records and edges
  // of the period.
  using bed = bench()
  const { metering } = bed
  const PICO = { tiny: [100_000n, 400_000n], large: [3_000_000n, 15_123_456n], free: [0n, 0n] } as const
  const expected = {
    o1: { requests: 0, prompt: 0n, completion: 0n, nano: 0n },
    o2: { requests: 0, prompt: 0n, completion: 0n, nano: 0n },
  }
  for (let i = 0; i < 200; i += 1) {
    const model = (['tiny', 'large', 'free'] as const)[i % 3] ?? 'tiny'
    const organizationId = i % 7 < 4 ? 'o1' : 'o2'
    const tokens = { prompt: (i * 7919) % 4_001, completion: (i * 104_729) % 3_001 }
    const atMs = 1_000 + ((i * 31) % 200)
    const outcome = (['completed', 'aborted', 'failed'] as const)[i % 3] ?? 'completed'
    const record = recordOf(`r${i}`, { model, tokens, atMs, outcome, caller: callerOf({ organizationId }) })
    metering.record(record)
    if (i % 5 === 0) metering.record(record)
    if (i % 50 === 0) metering.flush()
    // Written again after it is in the ledger, with other amounts: the first stays.
    if (i % 50 === 0) metering.record({ ...record, tokens: { prompt: 1, completion: 1 } })
    if (atMs < 1_010 || atMs >= 1_190) continue
    const of = expected[organizationId]
    const pico = BigInt(tokens.prompt) * PICO[model][0] + BigInt(tokens.completion) * PICO[model][1]
    of.requests += 1
    of.prompt += BigInt(tokens.prompt)
    of.completion += BigInt(tokens.completion)
    of.nano += pico / 1_000n + (pico % 1_000n === 0n ? 0n : 1n)
  }
  const period = { startMs: 1_010, endMs: 1_190 }
  for (const id of ['o1', 'o2'] as const) {
    const { requests, prompt, completion, nano } = expected[id]
    expect(metering.usage(id, period)).toEqual({
      requests,
      promptTokens: prompt,
      completionTokens: completion,
      costNanoUsd: nano,
    })
    expect(metering.inferenceCostMicroUsd(id, period)).toBe((nano + 999n) / 1_000n)
    expect(nano > 0n).toBe(true)
  }
  expect(metering.usage('o1', always).requests + metering.usage('o2', always).requests).toBe(200)
  expect(metering.counts()).toEqual({ written: 200, lost: 0, waiting: 0 })
  expect(metering.usage('nobody', always)).toEqual({
    requests: 0,
    promptTokens: 0n,
    completionTokens: 0n,
    costNanoUsd: 0n,
  })
})

test('sums beyond what a double holds', () => {
  // Goal: no digit is lost in adding up.
  using bed = bench()
  const most = Number.MAX_SAFE_INTEGER
  for (let i = 0; i < 4; i += 1)
    bed.metering.record(recordOf(`r${i}`, { model: 'free', tokens: { prompt: most, completion: i } }))
  expect(bed.metering.usage('o1', always)).toMatchObject({ promptTokens: BigInt(most) * 4n, completionTokens: 6n })
})

describe('writing', () => {
  test('happens by itself, soon', async () => {
    // Goal: a record is in the ledger after the interval, without anybody asking, and whole.
    using bed = bench()
    const { ledger, metering } = bed
    metering.record(recordOf('r1'))
    expect(findUsage(ledger.store.db, 'r1')).toBe(null)
    await ledger.clock.elapse(flushIntervalMs)
    expect(findUsage(ledger.store.db, 'r1')).toEqual({
      id: 'r1',
      atMs: 1_000,
      organizationId: 'o1',
      keyPrefix: 'aaaaaaaa',
      instanceId: null,
      model: 'tiny',
      upstream: 'local',
      promptTokens: 10,
      completionTokens: 20,
      costNanoUsd: 9_000,
      outcome: 'completed',
      cachedTokens: 0,
      tokensSource: 'reported',
      endUser: null,
      tags: null,
    })
  })

  test('a stop loses nothing, and neither does what comes after', () => {
    // Goal: requests that end during shutdown are still recorded.
    using bed = bench()
    bed.metering.record(recordOf('r1'))
    bed.metering.stop()
    bed.metering.record(recordOf('r2'))
    expect(sumUsage(bed.ledger.store.db, { organizationId: 'o1', ...always }).requests).toBe(2)
  })

  test('no amount loses a row', () => {
    // Goal: whatever numbers a record has, it is written, with the nearest that its columns hold.
    using bed = bench([{ model: 'gold', prompt_usd_per_million: '999999999999', completion_usd_per_million: '0' }])
    const { ledger, metering } = bed
    const most = Number.MAX_SAFE_INTEGER
    const rows = { nan: Number.NaN, negative: -1, half: 0.5, endless: Number.POSITIVE_INFINITY, huge: most }
    for (const [id, prompt] of Object.entries(rows)) {
      metering.record(recordOf(id, { tokens: { prompt, completion: 0 }, model: 'gold' }))
    }
    metering.flush()
    expect(metering.counts()).toEqual({ written: 5, lost: 0, waiting: 0 })
    const written = Object.keys(rows).map(id => findUsage(ledger.store.db, id))
    expect(written.map(row => row?.promptTokens)).toEqual([0, 0, 0, most, most])
    expect(written.map(row => row?.costNanoUsd)).toEqual([0, 0, 0, most, most])
  })

  test('a bad record costs only itself, and never the request', () => {
    // Goal: record never throws; what the ledger refuses is counted and logged, its neighbours are written.
    using bed = bench()
    const { ledger, metering } = bed
    const bad = recordOf('nobody', { caller: callerOf({ organizationId: 'nobody' }) })
    metering.record(recordOf('before'))
    expect(() => metering.record(bad)).not.toThrow()
    metering.record(recordOf('after'))
    metering.flush()
    expect(metering.counts()).toEqual({ written: 2, lost: 1, waiting: 0 })
    expect(ledger.logged.filter(line => line.includes('"nobody"'))).toHaveLength(1)
  })

  test('bad records in batches of many', () => {
    // Goal: wherever in a batch they are, and repeated records among them, every other record is written once.
    using bed = bench()
    const { ledger, metering } = bed
    const badAt = [0, 24, 25, 130, 249, 250, 599]
    for (let i = 0; i < 600; i += 1) {
      const record = recordOf(`r${i}`, badAt.includes(i) ? { caller: callerOf({ organizationId: 'nobody' }) } : {})
      metering.record(record)
      if (i % 10 === 1) metering.record({ ...record, tokens: { prompt: 1, completion: 1 } })
    }
    metering.flush()
    expect(metering.counts()).toEqual({ written: 600 - badAt.length, lost: badAt.length, waiting: 0 })
    expect(metering.usage('o1', always)).toMatchObject({
      requests: 600 - badAt.length,
      promptTokens: BigInt(10 * (600 - badAt.length)),
    })
    for (const i of badAt) expect(ledger.logged.filter(line => line.includes(`"r${i}"`))).toHaveLength(1)
  })

  test('a disk that fails in the middle', () => {
    // Goal: what was written before it counts once, in its order, and the rest waits for it.
    using bed = bench()
    const { ledger, deps } = bed
    let writes = 0
    const metering = new Metering({
      ...deps,
      store: {
        db: ledger.store.db,
        transact: work => {
          writes += 1
          if (writes === 2) throw Object.assign(new Error('disk I/O error'), { code: 'SQLITE_IOERR' })
          return ledger.store.transact(work)
        },
      },
    })
    for (let i = 0; i < 600; i += 1) metering.record(recordOf(`r${i}`))
    metering.flush()
    expect(metering.counts()).toEqual({ written: 250, lost: 0, waiting: 350 })
    expect([findUsage(ledger.store.db, 'r249')?.id, findUsage(ledger.store.db, 'r250')]).toEqual(['r249', null])
    metering.record(recordOf('r600'))
    metering.flush()
    expect(metering.counts()).toEqual({ written: 601, lost: 0, waiting: 0 })
    expect(metering.usage('o1', always).requests).toBe(601)
    metering.stop()
  })

  test('a disk that fails for a while', async () => {
    // Goal: records wait and are written once, when the store works again; meanwhile nothing throws.
    using bed = bench()
    const { ledger, deps } = bed
    let isBroken = true
    const metering = new Metering({
      ...deps,
      store: {
        db: ledger.store.db,
        transact: work => {
          if (isBroken) throw Object.assign(new Error('disk I/O error'), { code: 'SQLITE_IOERR' })
          return ledger.store.transact(work)
        },
      },
    })
    for (let i = 0; i < 1_200; i += 1) metering.record(recordOf(`r${i}`))
    await ledger.clock.elapse(flushIntervalMs)
    expect(metering.counts()).toEqual({ written: 0, lost: 0, waiting: 1_200 })
    isBroken = false
    await ledger.clock.elapse(retryIntervalMs + 100)
    expect(metering.counts()).toEqual({ written: 1_200, lost: 0, waiting: 0 })
    expect(metering.usage('o1', always).requests).toBe(1_200)
    expect(ledger.clock.pending()).toEqual([])
  })

  test('what waits is bounded', async () => {
    // Goal: a store that never works again costs records, counted, and no memory without end.
    using bed = bench()
    const metering = new Metering({
      ...bed.deps,
      store: {
        db: bed.ledger.store.db,
        transact: () => {
          throw Object.assign(new Error('disk I/O error'), { code: 'SQLITE_IOERR' })
        },
      },
    })
    for (let i = 0; i < 20_010; i += 1) metering.record(recordOf(`r${i}`))
    expect(metering.counts()).toEqual({ written: 0, lost: 10, waiting: 20_000 })
    metering.stop()
  })
})

test('goal: what a key and its organization have used is known before it is written, and counts once', async () => {
  using the = bench()
  const { metering, ledger } = the
  const atMs = Date.parse('2026-11-22T12:00Z')
  const requests = (keyPrefix: string) => {
    const { key, organization } = metering.spent(callerOf({ keyPrefix }), '2026-11')
    return [key.requests, organization.requests]
  }
  metering.record({ ...recordOf('s1'), atMs, caller: callerOf({ keyPrefix: 'k1' }) })
  metering.record({ ...recordOf('s2'), atMs, caller: callerOf({ keyPrefix: 'k2' }) })
  metering.record({ ...recordOf('s3'), atMs: Date.parse('2026-12-01T00:00Z'), caller: callerOf({ keyPrefix: 'k1' }) })
  expect([requests('k1'), requests('k2'), requests('k3')]).toEqual([
    [1, 2],
    [1, 2],
    [0, 2],
  ])
  metering.flush()
  expect([requests('k1'), requests('k2'), requests('k3')]).toEqual([
    [1, 2],
    [1, 2],
    [0, 2],
  ])
  metering.record({ ...recordOf('s4'), atMs, caller: callerOf({ keyPrefix: 'k1' }) })
  expect(requests('k1')).toEqual([2, 3])
  // Another daemon after this one.
  metering.flush()
  const next = new Metering({ ...the.deps, store: ledger.store })
  expect(next.spent(callerOf({ keyPrefix: 'k1' }), '2026-11').organization.requests).toBe(3)
})

test('goal: sums that are first asked for while records wait have those records, beside what is written', () => {
  using the = bench()
  const { metering } = the
  const atMs = Date.parse('2026-11-22T12:00Z')
  const caller = callerOf({ keyPrefix: 'k1' })
  metering.record({ ...recordOf('s1'), atMs, caller })
  metering.flush()
  metering.record({ ...recordOf('s2'), atMs, caller })
  metering.record({ ...recordOf('s3'), atMs, caller })
  expect(metering.spent(caller, '2026-11').key.requests).toBe(3)
  metering.flush()
  expect(metering.spent(caller, '2026-11').key.requests).toBe(3)
})
