// Addresses that rest; real SQLite.

import { expect, test } from 'bun:test'
import { openStore } from '../../../src/store/db.ts'
import { restAddress, restingAt, restsAt } from '../../../src/store/ledger/address.query.ts'

// Goal: operators see as many addresses rest as are kept from new VMs, and when the next is free; looking frees none.
test('addresses that rest', () => {
  const store = openStore(':memory:')
  const { db } = store.ledger
  const restMs = 600
  expect(restsAt(db, { nowMs: 0, restMs })).toEqual({ count: 0, nextFreeMs: null })
  for (const [address, nowMs] of [
    ['10.88.0.2', 1_000],
    ['10.88.0.3', 1_100],
    ['2001:db8::2', 1_200],
  ] as const)
    restAddress(db, { address, nowMs })
  for (const nowMs of [1_200, 1_599, 1_600, 1_699, 1_700, 1_800]) {
    const seen = restsAt(db, { nowMs, restMs })
    expect(seen).toEqual(restsAt(db, { nowMs, restMs }))
    const kept = restingAt(db, { nowMs, restMs })
    const v6 = kept.filter(address => address.includes(':')).length
    expect([nowMs, seen.count]).toEqual([nowMs, Math.max(v6, kept.length - v6)])
    expect(seen.nextFreeMs === null).toBe(kept.length === 0)
  }
  restAddress(db, { address: '10.88.0.2', nowMs: 2_000 })
  expect(restsAt(db, { nowMs: 2_100, restMs })).toEqual({ count: 1, nextFreeMs: 2_600 })
  // A rest that begins in the future, by a clock that was set back, begins now.
  expect(restsAt(db, { nowMs: 100, restMs })).toEqual({ count: 1, nextFreeMs: 700 })
  store.close()
})
