// Attestation nonces: what is one, and that each is used once.

import { afterAll, describe, expect, test } from 'bun:test'
import { join } from 'node:path'
import { Fault } from '../../../src/base/fault.ts'
import { readNonce } from '../../../src/inference/attestation/nonce-request.ts'
import { createNonceLedger } from '../../../src/inference/attestation/nonces.ts'
import { createNonceQuota } from '../../../src/inference/limits/nonce-quota.ts'
import { openStore } from '../../../src/store/db.ts'
import { countNonces } from '../../../src/store/ledger/nonce.query.ts'
import { createManualClock } from '../../rigs/clock.ts'
import { clearRig, noQuota, rigDir } from '../../rigs/gateway-attestation.ts'

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

describe('the ledger', () => {
  const nonceOf = (seed: number) => new Uint8Array(32).fill(seed)
  const address = '192.0.2.1'

  test('goal: one client cannot fill it: over its quota it gets 429, others are served, and used nonces stay used', () => {
    const store = openStore(':memory:')
    const clock = createManualClock()
    const [retentionMs, countMax] = [24 * 3_600_000, 1000]
    const quota = createNonceQuota({ clock, retentionMs, countMax })
    const ledger = createNonceLedger({ store: store.ledger, clock, quota, retentionMs, countMax })
    const bytes = (index: number) => Uint8Array.from({ length: 32 }, (_, at) => (at < 2 ? index >> (8 * at) : 0))
    const codes = Array.from({ length: 2 * countMax }, (_, at) => codeOf(() => ledger.use(bytes(at), address)))
    expect([codes.filter(one => one === 'done').length, new Set(codes)]).toEqual([
      15,
      new Set(['done', 'rate_limited']),
    ])
    expect(codeOf(() => ledger.use(bytes(0), address))).toBe('conflict')
    expect(codeOf(() => ledger.use(nonceOf(1), '198.51.100.1'))).toBe('done')
    // A refused nonce is not used up, and a used one takes nothing of anybody's quota.
    for (let tries = 0; tries < 20; tries += 1)
      expect(codeOf(() => ledger.use(nonceOf(1), '203.0.113.1'))).toBe('conflict')
    expect(codeOf(() => ledger.use(bytes(500), '203.0.113.1'))).toBe('done')
    expect(countNonces(store.ledger.db)).toBe(17)
    store.close()
  })

  test('a nonce is used once, across restarts', () => {
    // Goal: what was used stays used when the process ends and the next one opens the same database.
    const file = join(rigDir(), 'restart.db')
    const clock = createManualClock()
    const answers: string[] = []
    for (let run = 0; run < 2; run += 1) {
      const store = openStore(file)
      const ledger = createNonceLedger({ store: store.ledger, clock, quota: noQuota, retentionMs: 1000, countMax: 10 })
      for (const seed of [1, 1, 2 + run]) answers.push(codeOf(() => ledger.use(nonceOf(seed), address)))
      store.close()
    }
    expect(answers).toEqual(['done', 'conflict', 'done', 'conflict', 'conflict', 'done'])
  })

  test('it is forgotten after the retention and not a millisecond earlier', () => {
    // Goal: the window is kept exactly, so that no nonce comes back while a verifier may still take its evidence for fresh.
    const store = openStore(':memory:')
    const clock = createManualClock()
    const ledger = createNonceLedger({ store: store.ledger, clock, quota: noQuota, retentionMs: 1000, countMax: 10 })
    const use = () => codeOf(() => ledger.use(nonceOf(1), address))
    expect(use()).toBe('done')
    clock.advance(999)
    expect(use()).toBe('conflict')
    clock.advance(1)
    expect(use()).toBe('done')
    expect(use()).toBe('conflict')
    store.close()
  })

  test('a full ledger takes no more and forgets nothing', () => {
    // Goal: at the limit new nonces get 503, used ones still 409, also after a restart; room comes back with time alone.
    const file = join(rigDir(), 'full.db')
    const clock = createManualClock()
    const first = openStore(file)
    const ledger = createNonceLedger({ store: first.ledger, clock, quota: noQuota, retentionMs: 1000, countMax: 2 })
    const seeds = (one: typeof ledger, ...list: number[]) =>
      list.map(seed => codeOf(() => one.use(nonceOf(seed), address)))
    expect(seeds(ledger, 1, 2, 3, 1)).toEqual(['done', 'done', 'attestation_unavailable', 'conflict'])
    first.close()
    const store = openStore(file)
    const next = createNonceLedger({ store: store.ledger, clock, quota: noQuota, retentionMs: 1000, countMax: 2 })
    expect(seeds(next, 3, 2)).toEqual(['attestation_unavailable', 'conflict'])
    clock.advance(1000)
    expect(seeds(next, 3, 1, 2, 3)).toEqual(['done', 'done', 'attestation_unavailable', 'conflict'])
    expect(countNonces(store.ledger.db)).toBe(2)
    store.close()
  })

  test('many that have expired go bit by bit', () => {
    // Goal: one request does a bounded amount of forgetting, and the count stays true all along.
    const store = openStore(':memory:')
    const clock = createManualClock()
    const countMax = 200
    const ledger = createNonceLedger({ store: store.ledger, clock, quota: noQuota, retentionMs: 1000, countMax })
    const bytes = (index: number) => Uint8Array.from({ length: 32 }, (_, at) => (at === 0 ? index : at === 1 ? 7 : 0))
    for (let index = 0; index < countMax; index += 1) ledger.use(bytes(index), address)
    expect(codeOf(() => ledger.use(nonceOf(255), address))).toBe('attestation_unavailable')
    clock.advance(1000)
    ledger.use(nonceOf(255), address)
    expect(countNonces(store.ledger.db)).toBe(countMax - 64 + 1)
    for (let index = 0; index < countMax - 2; index += 1) ledger.use(bytes(index), address)
    expect(countNonces(store.ledger.db)).toBe(countMax - 1)
    store.close()
  })
})
