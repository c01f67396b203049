// Times of an instance's changes.

import { expect, test } from 'bun:test'
import { openStore } from '../../../src/store/db.ts'
import { insertInstance, moveInstance } from '../../../src/store/directory/instance.query.ts'
import { insertOrganization } from '../../../src/store/directory/organization.query.ts'

// Goal: no change of an instance is before an earlier one, which a host with another clock may have made.
test('a clock that is behind', () => {
  using store = openedStore()
  const { db } = store.directory
  insertInstance(db, {
    ...{ id: 'a', name: 'a', hostname: 'a.example', organizationId: 'o1', hostId: 'h', vmId: null, nowMs: 10 },
    ...{ agent: 'opencode', publicKey: 'k', inferenceMode: 'default_gateway', inferenceModel: 'tiny' },
  })
  moveInstance(db, { id: 'a', from: 'provisioning', to: 'terminating', nowMs: 90 })
  moveInstance(db, { id: 'a', from: 'terminating', to: 'terminated', nowMs: 40, terminatedAtMs: 40 })
  const [row] = db.all('SELECT changed_at_ms, terminated_at_ms FROM instances')
  expect(row).toEqual({ changed_at_ms: 90, terminated_at_ms: 90 })
  const log = db.all<{ at_ms: number }>('SELECT at_ms FROM instance_changes ORDER BY id')
  expect(log.map(({ at_ms }) => at_ms)).toEqual([10, 90, 90])
})

function openedStore() {
  const store = openStore(':memory:')
  insertOrganization(store.directory.db, { id: 'o1', slug: 'acme', nowMs: 1 })
  return { ...store, [Symbol.dispose]: store.close }
}
