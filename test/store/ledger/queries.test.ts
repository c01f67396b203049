// The queries of VMs, egress samples, nonces and events, over a real database.

import { describe, expect, test } from 'bun:test'
import fc from 'fast-check'
import { casesOf } from '../../../scripts/rigs/all.ts'
import { assert } from '../../../src/base/assert.ts'
import { workloadBytesMax } from '../../../src/contract/vm/workload.ts'
import { openStore, type Store } from '../../../src/store/db.ts'
import { egressOf, listEgress, raiseEgressLimit, recordEgress } from '../../../src/store/ledger/egress.query.ts'
import { appendEvent, eventCountMax, listEvents, noteEvent } from '../../../src/store/ledger/event.query.ts'
import { countNonces, deleteExpiredNonces, insertNonce } from '../../../src/store/ledger/nonce.query.ts'
import {
  countVms,
  dismissVm,
  insertVm,
  listVms,
  moveVm,
  purgeGoneVms,
  vmById,
} from '../../../src/store/ledger/vm.query.ts'
import type { EgressRow } from '../../../src/store/ledger/vm.table.ts'

function open(): Store & Disposable {
  const store = openStore(':memory:')
  return { ...store, [Symbol.dispose]: store.close }
}

const vm = { hostId: 'here', image: 'instance', vcpus: 1, memoryMib: 512 } as const

describe('VMs', () => {
  // Goal: a VM is made once per id; a second attempt changes nothing, for any request and in any state of the VM.
  test('inserting is idempotent', () => {
    using store = open()
    const { db } = store.ledger
    expect(insertVm(db, { ...vm, id: 'v1', nowMs: 1 })).toBe(true)
    moveVm(db, { id: 'v1', from: 'waiting', to: 'launching', nowMs: 2 })
    dismissVm(db, 'v1')
    expect(insertVm(db, { ...vm, id: 'v1', vcpus: 8, nowMs: 3 })).toBe(false)
    expect(vmById(db, 'v1')).toMatchObject({
      state: 'launching',
      desired: 'gone',
      vcpus: 1,
      createdAtMs: 1,
      changedAtMs: 2,
    })
    expect(listVms(db, 'here')).toHaveLength(1)
    expect(listVms(db, 'elsewhere')).toEqual([])
  })

  // Goal: no caller fills the ledger with a document that no gateway would take.
  test('a workload has a bound', () => {
    using store = open()
    const insert = (id: string, bytes: number) =>
      insertVm(store.ledger.db, { ...vm, id, workload: 'é'.repeat(bytes / 2), nowMs: 1 })
    expect(insert('v1', workloadBytesMax)).toBe(true)
    expect(() => insert('v2', workloadBytesMax + 2)).toThrow('1 MiB')
    expect(vmById(store.ledger.db, 'v2')).toBeNull()
  })

  // Goal: only rows of VMs that have been gone for long enough go, at most `limit` at once, with their samples.
  test('purging', () => {
    using store = open()
    const { db } = store.ledger
    for (const [id, goneAtMs] of [
      ['a', 5],
      ['b', 5],
      ['c', 6],
      ['d', null],
    ] as const) {
      insertVm(db, { ...vm, id, nowMs: 1 })
      recordEgress(db, [{ vmId: id, usedBytes: 1, rescueBytes: 0, observedAtMs: 1, blockedAtMs: null }])
      if (goneAtMs !== null) moveVm(db, { id, from: 'waiting', to: 'gone', nowMs: goneAtMs })
    }
    expect(purgeGoneVms(db, { changedBeforeMs: 5, limit: 10 })).toBe(0)
    expect(purgeGoneVms(db, { changedBeforeMs: 6, limit: 1 })).toBe(1)
    expect(purgeGoneVms(db, { changedBeforeMs: 6, limit: 10 })).toBe(1)
    expect(listEgress(db).map(sample => sample.vmId)).toEqual(['c', 'd'])
    expect(countVms(db)).toEqual({ gone: 1, waiting: 1 })
  })
})

// Goal: a count never falls; a block keeps its first time until a sample shows none; the stored rows are returned.
test('egress samples only grow', () => {
  using store = open()
  const { db } = store.ledger
  insertVm(db, { ...vm, id: 'v1', nowMs: 1 })
  const sample = (
    usedBytes: number,
    observedAtMs: number,
    blockedAtMs: number | null,
    tapBytes: number | null = null,
  ) => {
    const [row] = recordEgress(db, [{ vmId: 'v1', usedBytes, rescueBytes: 0, observedAtMs, blockedAtMs, tapBytes }])
    assert(row !== undefined, 'a sample is stored')
    const { vmId: _, rescueBytes: __, ...stored } = row
    return stored
  }
  expect(sample(10, 1, null)).toEqual({ usedBytes: 10, observedAtMs: 1, blockedAtMs: null, tapBytes: null })
  expect(sample(30, 2, 2, 90)).toEqual({ usedBytes: 30, observedAtMs: 2, blockedAtMs: 2, tapBytes: 90 })
  expect(sample(20, 3, 3, 99)).toEqual({ usedBytes: 30, observedAtMs: 3, blockedAtMs: 2, tapBytes: 99 })
  expect(sample(40, 4, null, 5)).toEqual({ usedBytes: 40, observedAtMs: 4, blockedAtMs: null, tapBytes: 5 })
  const last = { usedBytes: 40, observedAtMs: 1, blockedAtMs: 1, tapBytes: null }
  expect(sample(40, 1, 1)).toEqual(last)
  expect(egressOf(db, 'v1')).toEqual({ vmId: 'v1', rescueBytes: 0, ...last })
})

// Goal: in any batches and orders, each VM's row is the one that its own samples in turn would have made.
test('samples in batches are as if each came by itself', () => {
  const vmIds = ['v1', 'v2', 'v3', 'v4']
  const count = fc.oneof(fc.nat({ max: 9 }), fc.nat({ max: Number.MAX_SAFE_INTEGER }))
  const sample = fc.record(
    {
      vmId: fc.constantFrom(...vmIds),
      usedBytes: count,
      rescueBytes: count,
      observedAtMs: fc.integer({ min: -9, max: 9 }),
      blockedAtMs: fc.option(fc.integer({ min: -9, max: 9 })),
      tapBytes: fc.option(count),
    },
    { requiredKeys: ['vmId', 'usedBytes', 'rescueBytes', 'observedAtMs', 'blockedAtMs'] },
  )
  const batches = fc.array(fc.uniqueArray(sample, { selector: ({ vmId }) => vmId, maxLength: 4 }), { maxLength: 8 })
  fc.assert(
    fc.property(batches, given => {
      using store = open()
      const { db, transact } = store.ledger
      for (const id of vmIds) insertVm(db, { ...vm, id, nowMs: 1 })
      const model = new Map<string, EgressRow>()
      for (const batch of given) {
        for (const { tapBytes = null, ...next } of batch) {
          const before = model.get(next.vmId)
          model.set(next.vmId, {
            ...next,
            tapBytes,
            usedBytes: Math.max(before?.usedBytes ?? 0, next.usedBytes),
            rescueBytes: Math.max(before?.rescueBytes ?? 0, next.rescueBytes),
            blockedAtMs: next.blockedAtMs === null ? null : (before?.blockedAtMs ?? next.blockedAtMs),
          })
        }
        expect(transact(tx => recordEgress(tx, batch))).toEqual(batch.flatMap(({ vmId }) => model.get(vmId) ?? []))
      }
      expect(new Map(listEgress(db).map(row => [row.vmId, row]))).toEqual(model)
    }),
    { numRuns: casesOf(100) },
  )
})

// Goal: a batch that cannot be stored whole is not stored at all.
test('a batch of samples is all or none', () => {
  using store = open()
  const { db } = store.ledger
  insertVm(db, { ...vm, id: 'v1', nowMs: 1 })
  const sample = (vmId: string, usedBytes: number) => ({
    vmId,
    usedBytes,
    rescueBytes: 0,
    observedAtMs: 1,
    blockedAtMs: null,
  })
  expect(() => recordEgress(db, [sample('v1', 1), sample('v2', 1)])).toThrow('FOREIGN KEY')
  expect(() => recordEgress(db, [sample('v1', 1), sample('v1', 2)])).toThrow('of each VM one sample')
  for (const usedBytes of [-1, 0.5, Number.NaN, 2 ** 53]) {
    expect(() => recordEgress(db, [sample('v1', usedBytes)])).toThrow('count of bytes')
  }
  expect(listEgress(db)).toEqual([])
  expect(recordEgress(db, [])).toEqual([])
})

// Goal: whoever comes late with a lower limit changes nothing.
test('egress limits only grow', () => {
  using store = open()
  const { db } = store.ledger
  insertVm(db, { ...vm, id: 'v1', nowMs: 1 })
  const raise = (limitBytes: number) => [
    raiseEgressLimit(db, { vmId: 'v1', limitBytes }),
    vmById(db, 'v1')?.egressLimitBytes,
  ]
  expect([raise(20), raise(20), raise(19), raise(21)]).toEqual([
    [true, 20],
    [false, 20],
    [false, 20],
    [true, 21],
  ])
  expect(raiseEgressLimit(db, { vmId: 'v2', limitBytes: 5 })).toBe(false)
})

test('nonces', () => {
  // Goal: each is used once; expiry is by time and in batches, oldest first; exactly 32 bytes.
  using store = open()
  const nonce = (byte: number) => new Uint8Array(32).fill(byte)
  for (let i = 0; i < 5; i += 1) expect(insertNonce(store.ledger.db, { nonce: nonce(i), nowMs: 100 + i })).toBe(true)
  expect(insertNonce(store.ledger.db, { nonce: nonce(3), nowMs: 900 })).toBe(false)
  expect(() => insertNonce(store.ledger.db, { nonce: new Uint8Array(31), nowMs: 1 })).toThrow('invariant')
  expect(countNonces(store.ledger.db)).toBe(5)
  expect(deleteExpiredNonces(store.ledger.db, { usedAtOrBeforeMs: 102, limit: 2 })).toBe(2)
  expect(insertNonce(store.ledger.db, { nonce: nonce(2), nowMs: 900 })).toBe(false)
  expect(deleteExpiredNonces(store.ledger.db, { usedAtOrBeforeMs: 102, limit: 2 })).toBe(1)
  expect(deleteExpiredNonces(store.ledger.db, { usedAtOrBeforeMs: 102, limit: 2 })).toBe(0)
  expect(countNonces(store.ledger.db)).toBe(2)
  expect(insertNonce(store.ledger.db, { nonce: nonce(0), nowMs: 900 })).toBe(true)
})

describe('events', () => {
  // Goal: the newest come first, by subject or all, no more than asked for.
  test('append and list', () => {
    using store = open()
    const { db } = store.ledger
    for (let i = 1; i <= 5; i += 1)
      appendEvent(db, {
        nowMs: i,
        kind: 'vm.failed',
        subject: i % 2 === 0 ? 'even' : '',
        detail: { i, nested: { text: 'é' } },
      })
    expect(listEvents(db, { limit: 2 }).map(({ detail }) => detail.i)).toEqual([5, 4])
    expect(listEvents(db, { subject: 'even', limit: 10 }).map(({ atMs }) => atMs)).toEqual([4, 2])
    expect(listEvents(db, { subject: '', limit: 10 }).map(({ atMs }) => atMs)).toEqual([5, 3, 1])
    expect(listEvents(db, { subject: null, limit: 10 })).toHaveLength(5)
    expect(listEvents(db, { limit: 1 })[0]).toEqual({
      id: 5,
      atMs: 5,
      kind: 'vm.failed',
      subject: '',
      detail: { i: 5, nested: { text: 'é' } },
    })
  })

  // Goal: the journal is bounded: each entry beyond the most lets go of the oldest.
  test('bound', () => {
    using store = open()
    const { db } = store.ledger
    db.run(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${eventCountMax + 10})
      INSERT INTO events (at_ms, kind, subject, detail) SELECT i, 'k', 's', '{}' FROM n`)
    appendEvent(db, { nowMs: 0, kind: 'last', subject: '', detail: {} })
    expect(db.all('SELECT count(*) AS entries, min(id) AS first FROM events')).toEqual([
      { entries: eventCountMax, first: 12 },
    ])
    expect(listEvents(db, { limit: 1 })[0]?.kind).toBe('last')
  })

  // Goal: an event is never undone or reported as a failure because its entry cannot be written; the log then has the
  // entry.
  test('an entry that cannot be written', () => {
    using store = open()
    const { db } = store.ledger
    const told: unknown[] = []
    const log = { error: (message: string, fields?: object) => told.push([message, fields]) }
    const event = { nowMs: 1, kind: 'key.created', subject: 'o1', detail: { prefix: 'abc' } }
    noteEvent(db, log, event)
    expect([listEvents(db, { limit: 5 }).length, told.length]).toEqual([1, 0])
    db.run('PRAGMA query_only = ON')
    noteEvent(db, log, event)
    expect(told).toEqual([
      [
        'an entry of the journal could not be written',
        { kind: 'key.created', subject: 'o1', detail: { prefix: 'abc' }, error: expect.any(Error) },
      ],
    ])
    expect(listEvents(db, { limit: 5 })).toHaveLength(1)
  })

  // Goal: an instance's journal, and the bound, are read through an index.
  test('indexes', () => {
    using store = open()
    const PLANS = {
      "SELECT * FROM events WHERE subject = 'x' ORDER BY id DESC LIMIT 5": 'events_subject',
      'DELETE FROM events WHERE id <= 5': 'PRIMARY KEY',
    }
    for (const [sql, index] of Object.entries(PLANS)) {
      const plan = store.ledger.db.all<{ detail: string }>(`EXPLAIN QUERY PLAN ${sql}`).map(({ detail }) => detail)
      expect(`${sql}: ${plan.join('; ')}`).toContain(index)
    }
  })
})
