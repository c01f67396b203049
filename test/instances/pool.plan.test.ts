// The pool's decisions as tables.

import { expect, test } from 'bun:test'
import {
  INSTANCE_STARTS,
  lookOf,
  orphanVerdict,
  type PoolStage,
  startOf,
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

test('an instance starts warm, on a VM that boots, or on one of its own', () => {
  // Goal: metrics have a sample for each start.
  expect([...INSTANCE_STARTS] as string[]).toEqual(['warm', 'booting', 'cold'])
})

test('the furthest along is taken first, and only a VM that waits makes a warm start', () => {
  // Goal: one order of the stages.
  const order: PoolStage[] = ['warm', 'greeting', 'booting', 'launching', 'waiting']
  const ranks = order.map(takeRank)
  expect(ranks).toEqual([0, 1, 2, 3, 4])
  expect(ranks.map(rank => startOf(rank ?? -1))).toEqual(['warm', 'booting', 'booting', 'booting', 'booting'])
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
