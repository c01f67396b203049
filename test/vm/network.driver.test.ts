// The one writer of the firewall, with an nft that takes its time and keeps what it is told: what is removed stays removed.

import { expect, test } from 'bun:test'
import { silentLogger } from '../../src/base/log.ts'
import type { Counters, Nft } from '../../src/host/network/nft.ts'
import { openStore } from '../../src/store/db.ts'
import { recordResource, strikeResource } from '../../src/store/ledger/resource.query.ts'
import { closeVm, insertVm, moveVm, openVm } from '../../src/store/ledger/vm.query.ts'
import type { VmNetworkKind } from '../../src/store/ledger/vm.table.ts'
import { VmNetwork } from '../../src/vm/network.driver.ts'
import { createManualClock } from '../rigs/clock.ts'
import { plan } from '../rigs/two-guests.ts'

function bench() {
  const store = openStore(':memory:')
  const clock = createManualClock()
  const kernel = new Set<string>()
  const applied: string[] = []
  const counters = (): Counters => ({
    counters: new Map(),
    quotas: new Map([...kernel].map(name => [name, { usedBytes: 0, limitBytes: 1 }])),
  })
  const nft: Nft = {
    applyRuleset: async text => {
      applied.push(text)
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
  const addVm = (n: number, kind: VmNetworkKind = 'world') => {
    const id = `0000000${n}-0000-4000-8000-000000000000`
    const nowMs = clock.nowMs()
    insertVm(store.ledger.db, {
      ...{ id, hostId: store.hostId, image: 'instance', vcpus: 1, memoryMib: 512, network: kind, nowMs },
    })
    moveVm(store.ledger.db, { id, from: 'waiting', to: 'launching', nowMs, address: `10.88.0.${n}` })
    recordResource(store.ledger.db, { vmId: id, kind: 'nft', name: `tap${n}`, nowMs })
    return id
  }
  return { store, network, kernel, applied, addVm }
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

test('each VM is opened to the network of its kind, and one that was closed to none', async () => {
  // Goal: the ledger's word on a build's network is the firewall's; no build VM is ever among those that reach the world.
  const b = bench()
  const { db } = b.store.ledger
  const opened = async () => {
    await b.network.sync()
    return [...(b.applied.at(-1) ?? '').matchAll(/^add element \S+ \S+ (opened|fetching) \{ "(\S+)" \}$/gm)].map(
      ([, set, tap]) => `${tap} ${set}`,
    )
  }
  const [instance, build] = [b.addVm(1), b.addVm(2, 'fetch')]
  expect(await opened()).toEqual([])
  for (const id of [instance, build]) openVm(db, { id, nowMs: 5 })
  expect(await opened()).toEqual(['tap1 opened', 'tap2 fetching'])
  closeVm(db, { id: build, nowMs: 6 })
  openVm(db, { id: build, nowMs: 7 })
  expect(await opened()).toEqual(['tap1 opened'])
})
