// Goal: which states of an instance count as living, and which of a VM hold the host's memory and processors: a state
// that is forgotten would let a host give away what it does not have.

import { expect, test } from 'bun:test'
import { openStore } from '../../src/store/db.ts'
import { insertInstance, listLiving, searchInstances } from '../../src/store/directory/instance.query.ts'
import type { InstanceStatus } from '../../src/store/directory/instance.table.ts'
import { insertOrganization } from '../../src/store/directory/organization.query.ts'
import { recordResource } from '../../src/store/ledger/resource.query.ts'
import { insertVm, reservedBy } from '../../src/store/ledger/vm.query.ts'
import type { VmState } from '../../src/store/ledger/vm.table.ts'

function open() {
  const store = openStore(':memory:')
  return { ...store, [Symbol.dispose]: () => store.close() }
}

test('goal: a failed instance holds what it has until it is terminated; in lists it is current and not living', () => {
  using store = open()
  const { db } = store.directory
  insertOrganization(db, { id: 'o', slug: 'acme', nowMs: 0 })
  const statuses: readonly InstanceStatus[] = ['provisioning', 'ready', 'failed', 'terminating', 'terminated']
  for (const [at, status] of statuses.entries()) {
    insertInstance(db, {
      ...{ id: status, hostId: store.hostId, organizationId: 'o', name: status, hostname: `${status}.example` },
      ...{ agent: 'opencode', publicKey: 'ssh-ed25519 AAAA', inferenceMode: 'default_gateway', inferenceModel: 'm' },
      ...{ vmId: null, nowMs: at },
    })
    db.run(`UPDATE instances SET status = '${status}' WHERE id = '${status}'`)
  }
  const living = ['provisioning', 'ready', 'failed', 'terminating']
  expect(listLiving(db, null).map(({ id }) => id)).toEqual(living)
  const search = { organizationId: 'o', nameBegins: null, createdFromMs: null, limit: 10 }
  const found = (status: InstanceStatus | 'current' | 'living' | null) =>
    searchInstances(db, { ...search, status }).map(({ id }) => id)
  expect(found('current').toSorted()).toEqual(['failed', 'provisioning', 'ready', 'terminating'])
  expect(found('living').toSorted()).toEqual(['provisioning', 'ready', 'terminating'])
  expect([found('failed'), found(null).length]).toEqual([['failed'], 5])
})

test('goal: a VM holds its memory and processors from its launch until it is gone; a failed one while its QEMU is there', () => {
  using store = open()
  const { db } = store.ledger
  const held = (state: VmState, hasQemu: boolean) => {
    const id = `${state}-${hasQemu}`
    insertVm(db, { id, hostId: id, image: 'instance', vcpus: 3, memoryMib: 512, nowMs: 1 })
    db.run(`UPDATE vms SET state = '${state}' WHERE id = '${id}'`)
    if (hasQemu) recordResource(db, { vmId: id, kind: 'qemu', name: id, nowMs: 1 })
    const { vms, vcpus, memoryMib } = reservedBy(db, id)
    return [vms, vcpus, memoryMib]
  }
  const all = [1, 3, 512]
  const none = [0, 0, 0]
  const EXPECTED: readonly (readonly [state: VmState, withoutQemu: number[], withQemu: number[]])[] = [
    ['waiting', none, none],
    ['launching', all, all],
    ['booting', all, all],
    ['running', all, all],
    ['stopping', all, all],
    ['failed', none, all],
    ['gone', none, none],
  ]
  for (const [state, withoutQemu, withQemu] of EXPECTED) {
    expect([state, held(state, false), held(state, true)]).toEqual([state, withoutQemu, withQemu])
  }
})
