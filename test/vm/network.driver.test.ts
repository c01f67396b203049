// The one writer of the firewall, with an nft that takes its time and keeps what it is told: what is removed stays removed.

import { expect, test } from 'bun:test'
import { silentLogger } from '../../src/base/log.ts'
import type { Counters, Nft } from '../../src/host/network/nft.ts'
import { openStore } from '../../src/store/db.ts'
import { recordResource, strikeResource } from '../../src/store/ledger/resource.query.ts'
import { insertVm, moveVm } from '../../src/store/ledger/vm.query.ts'
import { VmNetwork } from '../../src/vm/network.driver.ts'
import { createManualClock } from '../rigs/clock.ts'
import { plan } from '../rigs/two-guests.ts'

function bench() {
  const store = openStore(':memory:')
  const clock = createManualClock()
  const kernel = new Set<string>()
  const counters = (): Counters => ({
    counters: new Map(),
    quotas: new Map([...kernel].map(name => [name, { usedBytes: 0, limitBytes: 1 }])),
  })
  const nft: Nft = {
    applyRuleset: async text => {
      await Bun.sleep(1)
      for (const [, verb, name] of text.matchAll(/^(add|delete) quota \S+ \S+ (\S+)/gm)) {
        if (verb === 'add') kernel.add(name ?? '')
        else kernel.delete(name ?? '')
      }
    },
    readCounters: async () => counters(),
    tableExists: async () => true,
    deleteTable: async () => {},
  }
  const limits = { egressLimitBytes: 1, rescueLimitBytes: 1 }
  const network = new VmNetwork({ ledger: store.ledger, nft, clock, log: silentLogger, ruleset: plan(), ...limits })
  const addVm = (n: number) => {
    const id = `0000000${n}-0000-4000-8000-000000000000`
    const nowMs = clock.nowMs()
    insertVm(store.ledger.db, { id, hostId: store.hostId, image: 'instance', vcpus: 1, memoryMib: 512, nowMs })
    moveVm(store.ledger.db, { id, from: 'waiting', to: 'launching', nowMs, address: `10.88.0.${n}` })
    recordResource(store.ledger.db, { vmId: id, kind: 'nft', name: `tap${n}`, nowMs })
    return id
  }
  return { store, network, kernel, addVm }
}

test('what is removed does not come back by a run for another VM before its row is struck', async () => {
  // Goal: the end of a VM beside the opening of others, as at a start that drains the warm pool, leaves nothing in the kernel.
  const b = bench()
  const gone = b.addVm(1)
  b.addVm(2)
  await b.network.sync()
  expect([...b.kernel]).toEqual(['tap1', 'tap1_rescue', 'tap2', 'tap2_rescue'])
  // The run of `remove`, and the run of another VM that was asked for meanwhile; only then the row goes.
  const removed = b.network.remove('tap1')
  await Bun.sleep(0)
  await Promise.all([removed, b.network.sync()])
  strikeResource(b.store.ledger.db, { vmId: gone, kind: 'nft' })
  expect([...b.kernel]).toEqual(['tap2', 'tap2_rescue'])
  await b.network.sync()
  expect([...b.kernel]).toEqual(['tap2', 'tap2_rescue'])
})
