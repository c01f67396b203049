// Counts of an organization's records, which triggers keep.

import { expect, test } from 'bun:test'
import { openStore } from '../../../src/store/db.ts'
import {
  deleteExpired,
  insertInstance,
  listInstances,
  moveInstance,
} from '../../../src/store/directory/instance.query.ts'
import { insertOrganization, organizationById } from '../../../src/store/directory/organization.query.ts'

// Goal: an organization's counts are those of its records, whatever becomes of them.
test('counts', () => {
  const store = openStore(':memory:')
  const { db } = store.directory
  for (const id of ['o1', 'o2']) insertOrganization(db, { id, slug: id, nowMs: 1 })
  const add = (id: string, organizationId = 'o1') =>
    insertInstance(db, {
      ...{ id, organizationId, name: id, hostname: `${id}.${organizationId}.agents.example`, hostId: 'h', vmId: null },
      ...{ agent: 'opencode', publicKey: 'k', inferenceMode: 'default_gateway', inferenceModel: 'tiny', nowMs: 1 },
    })
  const move = (from: 'provisioning' | 'ready' | 'terminating', to: 'ready' | 'terminating' | 'terminated') =>
    moveInstance(db, { id: 'a', from, to, nowMs: 2, ...(to === 'terminated' ? { terminatedAtMs: 2 } : {}) })
  const counts = () =>
    ['o1', 'o2'].flatMap(id => organizationById(db, id) ?? []).map(o => [o.recordCount, o.livingCount])
  const counted = () =>
    ['o1', 'o2'].map(id => {
      const records = listInstances(db, id)
      return [records.length, records.filter(({ status }) => status !== 'terminated').length]
    })
  // The counts after each step: all records and living ones of the first organization, then of the second.
  const steps: [string, () => unknown, [number, number], [number, number]][] = [
    ['add', () => add('a'), [1, 1], [0, 0]],
    ['add another', () => add('b'), [2, 2], [0, 0]],
    ['a name that is taken', () => add('b'), [2, 2], [0, 0]],
    ['of another organization', () => add('d', 'o2'), [2, 2], [1, 1]],
    ['ready', () => move('provisioning', 'ready'), [2, 2], [1, 1]],
    ['terminating', () => move('ready', 'terminating'), [2, 2], [1, 1]],
    ['terminated', () => move('terminating', 'terminated'), [2, 1], [1, 1]],
    ['expired', () => deleteExpired(db, { terminatedBeforeMs: 9, limit: 9 }), [1, 1], [1, 1]],
    ['removed', () => db.run("DELETE FROM instances WHERE id = 'd'"), [1, 1], [0, 0]],
    ['copied as terminated', () => db.run("UPDATE instances SET status = 'terminated'"), [1, 0], [0, 0]],
    ['given again', () => db.run("UPDATE instances SET status = 'ready'"), [1, 1], [0, 0]],
  ]
  for (const [name, step, first, second] of steps) {
    step()
    expect([name, counts(), counted()]).toEqual([name, [first, second], [first, second]])
  }
  store.close()
})
