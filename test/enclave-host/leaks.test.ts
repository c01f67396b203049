// Goal: a gateway VM that nobody names and a row whose VM is gone are both found, and nothing else is taken for one.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { findGatewayVmLeaks, unnamedGatewayVms } from '../../src/enclave-host/leaks.ts'
import { openStore, type Store } from '../../src/store/db.ts'
import { insertGatewayVm, moveGatewayVm } from '../../src/store/ledger/gateway-vm.query.ts'
import { dismissVm, insertVm } from '../../src/store/ledger/vm.query.ts'

let dir: string
let store: Store
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'srt-leaks-'))
  store = openStore(join(dir, 'strongroom.db'))
})
afterEach(() => {
  store.close()
  rmSync(dir, { recursive: true, force: true })
})

const addVm = (id: string, image = 'inference', hostId = store.hostId) =>
  insertVm(store.ledger.db, { id, hostId, image, vcpus: 1, memoryMib: 1024, nowMs: 1 })
const addRow = (vmId: string) => insertGatewayVm(store.ledger.db, { vmId, hostId: store.hostId, shape: 's', nowMs: 1 })
const end = (vmId: string) =>
  moveGatewayVm(store.ledger.db, { vmId, from: ['starting'], to: 'gone', reason: 'r', nowMs: 2 })
const leaks = () => findGatewayVmLeaks(store.ledger.db, store.hostId).map(({ name, detail }) => `${name} ${detail}`)

test('goal: rows and VMs that belong together are no leak', () => {
  addRow('v1')
  addVm('v1')
  addVm('instance', 'instance')
  addVm('of another host', 'inference', 'h2')
  expect(leaks()).toEqual([])
})

test('goal: whoever is killed between a row and its VM leaves one of the two, and it is told which', () => {
  addRow('without VM')
  addVm('without row')
  addRow('ended')
  addVm('ended')
  end('ended')
  expect(leaks().toSorted()).toEqual(['ended unknown', 'without VM missing', 'without row unknown'])
  expect(unnamedGatewayVms(store.ledger.db, store.hostId).map(vm => vm.id)).toEqual(['without row', 'ended'])
})

test('goal: a VM that is on its way out is no leak; its row is, if it still counts on it', () => {
  addRow('v1')
  addVm('v1')
  dismissVm(store.ledger.db, 'v1')
  expect(leaks()).toEqual(['v1 missing'])
  end('v1')
  expect(leaks()).toEqual([])
})
