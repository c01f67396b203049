// The pool's decisions as tables.

import { expect, test } from 'bun:test'
import {
  backOffMaxMs,
  backOffMs,
  lookOf,
  orphanVerdict,
  type PoolStage,
  startOf,
  surplus,
  takeRank,
} from '../../src/instances/pool.plan.ts'
import { VM_STATES } from '../../src/store/ledger/vm.table.ts'

const guest = { boxKey: 'k', sshHostKey: 's', claimId: null }
const row = { boxKey: 'k' }
const view = { failureCode: null, guest: null } as const

test('only a VM that can still become an instance is taken', () => {
  // Goal: over every state of a VM, failed, stopping and gone ones are lost, and lost ones have no rank.
  const stages = VM_STATES.map(state => lookOf(row, { ...view, state }).stage)
  expect(Object.fromEntries(VM_STATES.map((state, i) => [state, stages[i]]))).toEqual({
    waiting: 'waiting',
    launching: 'launching',
    booting: 'booting',
    running: 'greeting',
    stopping: 'lost',
    failed: 'lost',
    gone: 'lost',
  })
  expect((['lost', 'claimed', 'absent'] as const).map(takeRank)).toEqual([null, null, null])
})

test('a running VM is warm only with the one agent that it began with, and unclaimed', () => {
  // Goal: another key or a claim of somebody makes it worthless.
  const running = { ...view, state: 'running' } as const
  expect(lookOf({ boxKey: null }, { ...running, guest }).stage).toBe('warm')
  expect(lookOf(row, { ...running, guest }).stage).toBe('warm')
  expect(lookOf(row, { ...running, guest: { ...guest, boxKey: 'other' } })).toEqual({
    stage: 'lost',
    reason: 'its agent restarted',
  })
  expect(lookOf(row, { ...running, guest: { ...guest, claimId: 'i' } })).toEqual({
    stage: 'claimed',
    reason: null,
  })
  expect(lookOf(row, { ...view, state: 'failed', failureCode: 'boot_timeout' }).reason).toBe('it failed: boot_timeout')
  expect(lookOf(row, null).stage).toBe('absent')
})

test('the furthest along is taken first and dropped last', () => {
  // Goal: one order for both; among equals the oldest stays.
  const order: PoolStage[] = ['warm', 'greeting', 'booting', 'launching', 'waiting']
  expect(order.map(takeRank)).toEqual([0, 1, 2, 3, 4])
  expect(order.map(startOf)).toEqual(['warm', 'booting', 'booting', 'booting', 'booting'])
  const pool = [
    { id: 'old', stage: 'warm' },
    { id: 'boots', stage: 'booting' },
    { id: 'waits', stage: 'waiting' },
    { id: 'new', stage: 'warm' },
  ] as const
  const dropped = (wanted: number) => surplus(pool, wanted).map(surplu => surplu.id)
  expect([4, 3, 2, 1, 0].map(dropped)).toEqual([
    [],
    ['waits'],
    ['waits', 'boots'],
    ['waits', 'boots', 'new'],
    ['waits', 'boots', 'new', 'old'],
  ])
  expect(dropped(9)).toEqual([])
})

test('back-off doubles and ends at five minutes', () => {
  // Goal: bounded, however long it goes wrong.
  expect([0, 1, 2, 3, 8, 9, 10, 1000].map(backOffMs)).toEqual([0, 1000, 2000, 4000, 128_000, 256_000, 300_000, 300_000])
  expect(backOffMaxMs).toBe(300_000)
})

test('of VMs that nobody names only claimed ones are left alone', () => {
  // Goal: what may hold a customer's work is never ended by us; what has not been asked yet is asked first.
  expect(orphanVerdict({ state: 'running', guest: { ...guest, claimId: 'i' } })).toBe('keep')
  expect(orphanVerdict({ state: 'running', guest: null })).toBe('ask_later')
  expect(orphanVerdict({ state: 'running', guest })).toBe('dismiss')
  for (const state of VM_STATES.filter(state => state !== 'running')) {
    expect(orphanVerdict({ state, guest: null })).toBe('dismiss')
  }
})
