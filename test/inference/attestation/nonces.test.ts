// Attestation nonces: what is one, and that each is used once.

import { afterAll, describe, expect, test } from 'bun:test'
import { join } from 'node:path'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { clearRig, rigDir } from '../../../scripts/rigs/gateway/attestation.ts'
import { Fault } from '../../../src/base/fault.ts'
import { InferenceConfig } from '../../../src/config/inference.ts'
import { readNonce } from '../../../src/inference/attestation/nonce-request.ts'
import { createNonceLedger, type NonceLedger, nonceGapMs } from '../../../src/inference/attestation/nonces.ts'
import { openStore } from '../../../src/store/db.ts'
import { countNonces, nonceStore } from '../../../src/store/ledger/nonce.query.ts'
import { createNonceMemory } from '../../../src/store/ledger/nonce-memory.ts'
import { freshAgeMsMax } from '../../../src/verifier/gateway.ts'

afterAll(clearRig)

const good = 'AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8'
const goodBytes = Uint8Array.from({ length: 32 }, (_, at) => at)

function codeOf(work: () => unknown): string {
  try {
    work()
    return 'done'
  } catch (error) {
    return error instanceof Fault ? error.code : String(error)
  }
}

describe('readNonce', () => {
  const read = (query: string, headers: [string, string][] = []) =>
    readNonce({ url: `https://gateway.example/attestation${query}`, headers: new Headers(headers) })

  // Goal: either place will do, other parameters are nobody's business, and the bytes are those that were sent.
  test.each([
    [`?nonce=${good}`, []],
    [`?other=1&nonce=${good}`, []],
    [`?nonce=%41${good.slice(1)}`, []],
    ['', [['X-Attestation-Nonce', good]]],
    ['?other=1', [['x-attestation-nonce', ` ${good} `]]],
  ] as [string, [string, string][]][])('%j %j is a nonce', (query, headers) => {
    expect(read(query, headers)).toEqual(goodBytes)
    expect(readNonce({ url: `/attestation${query}`, headers: new Headers(headers) })).toEqual(goodBytes)
  })

  // Goal: whatever is not exactly one nonce of exactly 32 bytes in exactly its one spelling is refused.
  test.each([
    ['', []],
    ['?nonce=', []],
    ['', [['X-Attestation-Nonce', '']]],
    [`?nonce=${good}`, [['X-Attestation-Nonce', good]]],
    [`?nonce=${good}`, [['X-Attestation-Nonce', '']]],
    [`?nonce=${good}&nonce=${good}`, []],
    [
      '',
      [
        ['X-Attestation-Nonce', good],
        ['X-Attestation-Nonce', good],
      ],
    ],
    [`?nonce=${good}=`, []],
    [`?nonce=${good}%3D`, []],
    [`?nonce=${good.slice(1)}`, []],
    [`?nonce=${good}A`, []],
    // 31 and 33 bytes.
    [`?nonce=${good.slice(0, 42)}`, []],
    [`?nonce=${'A'.repeat(44)}`, []],
    // The last character carries two bits that must be zero.
    [`?nonce=${good.slice(0, 42)}9`, []],
    [`?nonce=%2B${good.slice(1)}`, []],
    [`?nonce=+${good.slice(1)}`, []],
    [`?nonce=%2F${good.slice(1)}`, []],
    [`?nonce=${'0'.repeat(64)}`, []],
    [`?Nonce=${good}`, []],
  ] as [string, [string, string][]][])('%j %j is none', (query, headers) => {
    expect(codeOf(() => read(query, headers))).toBe('invalid_request')
  })
})

const nonceOf = (seed: number) => new Uint8Array(32).fill(seed)

function inDatabase() {
  const store = openStore(':memory:')
  return { nonces: nonceStore(store.ledger), close: store.close }
}

const inMemory = () => ({ nonces: createNonceMemory(), close: () => {} })

describe.each([
  ["of a host's store", inDatabase],
  ["of a VM's memory", inMemory],
] as const)('the ledger %s', (_, open) => {
  test('it is forgotten after the retention and not a millisecond earlier', () => {
    // Goal: the window is exact: no nonce is usable again while a verifier may accept its evidence as fresh.
    const { nonces, close } = open()
    const clock = createManualClock()
    const ledger = createNonceLedger({
      store: nonces,
      clock,
      mayDelete: null,
      retentionMs: 1000,
      countMax: 10,
    })
    const use = () => codeOf(() => ledger.use(nonceOf(1)))
    expect(use()).toBe('done')
    clock.advance(999)
    expect(use()).toBe('conflict')
    clock.advance(1)
    expect(use()).toBe('done')
    expect(use()).toBe('conflict')
    close()
  })

  test('goal: what is forgotten can no longer be fresh beside its repetition, and no rate of requests fills the ledger', () => {
    const { properties } = InferenceConfig
    const { minimum: minutesMin = 0, maximum: minutesMax = 0 } = properties.nonce_retention_minutes
    expect(minutesMin * 60_000).toBeGreaterThan(2 * freshAgeMsMax)
    const { minimum: countMin = 0, default: countDefault } = properties.nonces_max
    for (const countMax of [countMin, countDefault, 100_000_000]) {
      for (const minutes of [minutesMin, minutesMax]) {
        const retentionMs = minutes * 60_000
        // Begins within any time that is as long: one at its begin, and one after each gap.
        expect(Math.floor(retentionMs / nonceGapMs({ retentionMs, countMax })) + 1).toBeLessThanOrEqual(countMax)
      }
    }
    const { nonces, close } = open()
    const clock = createManualClock()
    const kept = { retentionMs: 1000, countMax: 50 }
    const ledger = createNonceLedger({ store: nonces, clock, mayDelete: null, ...kept })
    for (let index = 0; index < 500; index += 1) {
      const nonce = Uint8Array.from({ length: 32 }, (_, at) => (at < 2 ? index >> (8 * at) : 0))
      expect(codeOf(() => ledger.use(nonce))).toBe('done')
      clock.advance(nonceGapMs(kept))
    }
    close()
  })

  test('goal: a start with a clock that is not believed forgets no nonce before it is old enough by the uptime', () => {
    const { nonces, close } = open()
    const clock = createManualClock()
    const start = (isBelieved: boolean) =>
      createNonceLedger({
        store: nonces,
        clock,
        retentionMs: 1000,
        countMax: 2,
        mayDelete: () => isBelieved,
      })
    const use = (ledger: NonceLedger, seed: number) => codeOf(() => ledger.use(nonceOf(seed)))
    expect(use(start(true), 1)).toBe('done')
    clock.set(clock.nowMs() + 400 * 86_400_000)
    const next = start(false)
    expect([use(next, 2), use(next, 1), use(next, 3)]).toEqual(['done', 'conflict', 'attestation_unavailable'])
    clock.advance(999)
    expect(use(next, 1)).toBe('conflict')
    clock.advance(1)
    expect([use(next, 1), use(next, 3)]).toEqual(['done', 'done'])
    close()
  })

  test('many that have expired go bit by bit', () => {
    // Goal: one request does a bounded amount of forgetting, and the count stays true all along.
    const { nonces, close } = open()
    const clock = createManualClock()
    const countMax = 200
    const ledger = createNonceLedger({
      store: nonces,
      clock,
      mayDelete: null,
      retentionMs: 1000,
      countMax,
    })
    const bytes = (index: number) => Uint8Array.from({ length: 32 }, (_, at) => (at === 0 ? index : at === 1 ? 7 : 0))
    for (let index = 0; index < countMax; index += 1) ledger.use(bytes(index))
    expect(codeOf(() => ledger.use(nonceOf(255)))).toBe('attestation_unavailable')
    clock.advance(1000)
    ledger.use(nonceOf(255))
    expect(nonces.count()).toBe(countMax - 64 + 1)
    for (let index = 0; index < countMax - 2; index += 1) ledger.use(bytes(index))
    expect(nonces.count()).toBe(countMax - 1)
    close()
  })
})

describe('the ledger across restarts', () => {
  test('a nonce is used once, across restarts', () => {
    // Goal: what was used stays used when the process ends and the next one opens the same database.
    const file = join(rigDir(), 'restart.db')
    const clock = createManualClock()
    const answers: string[] = []
    for (let run = 0; run < 2; run += 1) {
      const store = openStore(file)
      const ledger = createNonceLedger({
        store: nonceStore(store.ledger),
        clock,
        mayDelete: null,
        retentionMs: 1000,
        countMax: 10,
      })
      for (const seed of [1, 1, 2 + run]) answers.push(codeOf(() => ledger.use(nonceOf(seed))))
      store.close()
    }
    expect(answers).toEqual(['done', 'conflict', 'done', 'conflict', 'conflict', 'done'])
  })

  test('goal: a wall clock that is set forgets nothing early, keeps nothing for longer, and a restart on an earlier one neither', () => {
    const file = join(rigDir(), 'clocks.db')
    const clock = createManualClock()
    const store = openStore(file)
    const ledger = createNonceLedger({
      store: nonceStore(store.ledger),
      clock,
      mayDelete: null,
      retentionMs: 1000,
      countMax: 10,
    })
    const use = (item = ledger) => codeOf(() => item.use(nonceOf(1)))
    expect(use()).toBe('done')
    clock.set(clock.nowMs() + 86_400_000)
    expect(use()).toBe('conflict')
    clock.set(clock.nowMs() - 10 * 86_400_000)
    clock.advance(999)
    expect(use()).toBe('conflict')
    clock.advance(1)
    expect(use()).toBe('done')
    const next = createNonceLedger({
      store: nonceStore(store.ledger),
      clock,
      mayDelete: null,
      retentionMs: 1000,
      countMax: 10,
    })
    expect(use(next)).toBe('conflict')
    clock.advance(1_000)
    expect(use(next)).toBe('done')
    store.close()
  })

  test('a full ledger takes no more and forgets nothing', () => {
    // Goal: at the limit new nonces get 503 and used ones 409, also after a restart; only time makes room.
    const file = join(rigDir(), 'full.db')
    const clock = createManualClock()
    const first = openStore(file)
    const ledger = createNonceLedger({
      store: nonceStore(first.ledger),
      clock,
      mayDelete: null,
      retentionMs: 1000,
      countMax: 2,
    })
    const seeds = (item: typeof ledger, ...list: number[]) => list.map(seed => codeOf(() => item.use(nonceOf(seed))))
    expect(seeds(ledger, 1, 2, 3, 1)).toEqual(['done', 'done', 'attestation_unavailable', 'conflict'])
    first.close()
    const store = openStore(file)
    const next = createNonceLedger({
      store: nonceStore(store.ledger),
      clock,
      mayDelete: null,
      retentionMs: 1000,
      countMax: 2,
    })
    expect(seeds(next, 3, 2)).toEqual(['attestation_unavailable', 'conflict'])
    clock.advance(1000)
    expect(seeds(next, 3, 1, 2, 3)).toEqual(['done', 'done', 'attestation_unavailable', 'conflict'])
    expect(countNonces(store.ledger.db)).toBe(2)
    store.close()
  })
})
