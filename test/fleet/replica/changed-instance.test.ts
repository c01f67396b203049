// Goal: what a change of the directory means for an instance of this host is decided as written here.

import { expect, test } from 'bun:test'
import {
  type ChangedInstance,
  type InstanceBefore,
  instanceOf,
  isOtherAttempt,
  mayHaveVm,
  mergeChanges,
} from '../../../src/fleet/replica/changed-instance.ts'

const before: InstanceBefore = { host_id: 'h1', desired: 'running', status: 'ready', vm_id: null, attempt: 2 }
const touched: ChangedInstance = {
  id: 'i1',
  isOwn: true,
  isNew: false,
  isLeft: false,
  isDismissed: false,
  isFailed: false,
}

test('goal: another number of the attempt, higher or lower, or another host is another attempt', () => {
  const other = (changes: Partial<InstanceBefore>) => isOtherAttempt(before, { ...before, ...changes })
  expect([{}, { attempt: 3 }, { attempt: 1 }, { host_id: 'h2' }, { status: 'failed' }].map(other)).toEqual([
    false,
    true,
    true,
    true,
    false,
  ])
})

test('goal: any instance but a terminated one may have a VM', () => {
  expect(mayHaveVm(null)).toBe(false)
  const statuses = ['provisioning', 'ready', 'failed', 'terminating', 'terminated']
  expect(statuses.map(status => mayHaveVm({ ...before, status }))).toEqual([true, true, true, true, false])
})

test('goal: two changes together have whatever either has, and are as own as the later one', () => {
  expect(mergeChanges(undefined, touched)).toBe(touched)
  for (const flag of ['isNew', 'isLeft', 'isDismissed', 'isFailed'] as const) {
    const flagged = { ...touched, [flag]: true }
    expect([flag, mergeChanges(flagged, touched), mergeChanges(touched, flagged)]).toEqual([flag, flagged, flagged])
  }
  expect(mergeChanges(touched, touched)).toEqual(touched)
  expect(mergeChanges({ ...touched, isOwn: false }, touched).isOwn).toBe(true)
  expect(mergeChanges(touched, { ...touched, isOwn: false }).isOwn).toBe(false)
})

test('goal: rows of three tables are about an instance', () => {
  const row = { id: 'i1', instance_id: 'i2' }
  const tables = ['instances', 'instance_addresses', 'instance_attestations', 'instance_changes', 'keys']
  expect(tables.map(table => instanceOf(table, row))).toEqual(['i1', 'i2', 'i2', null, null])
  expect(instanceOf('instances', { id: null })).toBeNull()
})
