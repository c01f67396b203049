// The one writer of the firewall and the egress sampler, with real nftables and SQLite, in a namespace of their own.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { hostPart, plan } from '../../../scripts/rigs/guest/two-guests.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { createNft } from '../../../src/host/network/nft.ts'
import { openStore } from '../../../src/store/db.ts'
import { egressOf, recordEgress } from '../../../src/store/ledger/egress.query.ts'
import { listEvents } from '../../../src/store/ledger/event.query.ts'
import { recordResource, strikeResource } from '../../../src/store/ledger/resource.query.ts'
import { insertVm, moveVm, type NewVm, openVm } from '../../../src/store/ledger/vm.query.ts'
import { egress } from '../../../src/store/ledger/vm.table.ts'
import { VmNetwork } from '../../../src/vm/network/network.driver.ts'

const timeoutMs = 60_000
const limitBytes = 1_000_000

inOwnNetns(
  import.meta.path,
  () => {
    const bench = () => {
      Bun.spawnSync(['nft', 'flush', 'ruleset'])
      const store = openStore(':memory:')
      const clock = createManualClock()
      const nft = createNft({ table: 'strongroom', log: silentLogger })
      const options = {
        host: hostPart(nft),
        ruleset: plan({ gatewayListen: { address: '0.0.0.0', port: 9442 } }),
        ownNetworks: () => [],
        ownAddresses: () => [],
        names: null,
        egressLimitBytes: limitBytes,
        rescueLimitBytes: 70_000,
      }
      const create = () => new VmNetwork({ ledger: store.ledger, nft, clock, log: silentLogger, ...options })
      const addVm = (n: number, kind: Partial<NewVm> = {}) => {
        const id = `0000000${n}-0000-4000-8000-000000000000`
        const nowMs = clock.nowMs()
        insertVm(store.ledger.db, {
          id,
          hostId: store.hostId,
          image: 'instance',
          vcpus: 1,
          memoryMib: 512,
          nowMs,
          ...kind,
        })
        moveVm(store.ledger.db, { id, from: 'waiting', to: 'launching', nowMs, address: `10.88.0.${n}` })
        recordResource(store.ledger.db, { vmId: id, kind: 'nft', name: `tap${n}`, nowMs })
        return id
      }
      const quotas = async () =>
        [...((await nft.readCounters(timeoutMs))?.quotas ?? [])].map(([name, { usedBytes }]) => [name, usedBytes])
      return { store, create, addVm, quotas, clock }
    }

    const objectsOfTap2 = [
      ['tap2', 0],
      ['tap2_rescue', 0],
    ]

    test('the table follows the ledger, and calls made meanwhile share a run', async () => {
      // Goal: the kernel holds the ledger's VMs and no removed ones, and a hundred calls share runs of nft.
      const { store, create, addVm, quotas } = bench()
      const network = create()
      const first = addVm(1)
      addVm(2)
      const runs = new Set(Array.from({ length: 100 }, () => network.sync()))
      await Promise.all(runs)
      expect(runs.size).toBeLessThanOrEqual(2)
      expect(await quotas()).toEqual([
        ['tap1', 0],
        ['tap1_rescue', 0],
        ['tap2', 0],
        ['tap2_rescue', 0],
      ])
      await network.remove('tap1')
      strikeResource(store.ledger.db, { vmId: first, kind: 'nft' })
      expect(await quotas()).toEqual(objectsOfTap2)
      await network.sync()
      expect(await quotas()).toEqual(objectsOfTap2)
    })

    test('a restarted daemon takes out what is in the kernel and in no ledger', async () => {
      // Goal: objects of a VM that went while nobody watched do not stay.
      const { store, create, addVm, quotas } = bench()
      const id = addVm(1)
      await create().sync()
      strikeResource(store.ledger.db, { vmId: id, kind: 'nft' })
      await create().sync()
      expect(await quotas()).toEqual([])
    })

    test('a flushed table comes back with what was counted, and the event is on record', async () => {
      // Goal: usage never counts back to zero, whoever flushes the ruleset; samples never shrink.
      const { store, create, addVm, quotas, clock } = bench()
      const id = addVm(1)
      recordEgress(store.ledger.db, [
        {
          vmId: id,
          usedBytes: 4321,
          rescueBytes: 765,
          observedAtMs: clock.nowMs(),
          blockedAtMs: null,
        },
      ])
      const network = create()
      await network.sync()
      const counted = [
        ['tap1', 4321],
        ['tap1_rescue', 765],
      ]
      expect(await quotas()).toEqual(counted)
      expect(await network.sample()).toMatchObject([{ vmId: id, usedBytes: 4321, rescueBytes: 765, blockedAtMs: null }])
      Bun.spawnSync(['nft', 'flush', 'ruleset'])
      await network.sample()
      expect(await quotas()).toEqual(counted)
      expect(egressOf(store.ledger.db, id)).toMatchObject({ usedBytes: 4321, rescueBytes: 765 })
      expect(listEvents(store.ledger.db, { limit: 10 }).map(event => event.kind)).toEqual(['nft.restored'])
    })

    test('a database that went back counts what the kernel has counted since', async () => {
      // Goal: an upgrade that fails puts the former database back, and nobody gets bytes a second time.
      const { store, create, addVm, quotas, clock } = bench()
      const id = addVm(1)
      const sample = { vmId: id, rescueBytes: 765, observedAtMs: clock.nowMs(), blockedAtMs: null }
      recordEgress(store.ledger.db, [{ ...sample, usedBytes: 4321 }])
      await create().sync()
      store.ledger.db.update(egress).set({ usedBytes: 1000, rescueBytes: 0 }).run()
      const network = create()
      await network.sync()
      const counted = [
        ['tap1', 4321],
        ['tap1_rescue', 765],
      ]
      expect(await quotas()).toEqual(counted)
      expect(await network.sample()).toMatchObject([{ vmId: id, usedBytes: 4321, rescueBytes: 765 }])
      expect(egressOf(store.ledger.db, id)).toMatchObject({ usedBytes: 4321, rescueBytes: 765 })
    })

    test('a spent quota is reported as blocked, with the time it was first seen', async () => {
      // Goal: the block's time is that of the first sample that shows it, and stays.
      const { store, create, addVm, clock } = bench()
      const id = addVm(1)
      recordEgress(store.ledger.db, [
        {
          vmId: id,
          usedBytes: limitBytes,
          rescueBytes: 0,
          observedAtMs: clock.nowMs(),
          blockedAtMs: null,
        },
      ])
      const network = create()
      await network.sync()
      clock.advance(1_000)
      const blockedAtMs = clock.nowMs()
      expect(await network.sample()).toMatchObject([{ blockedAtMs }])
      clock.advance(1_000)
      await network.sample()
      expect(egressOf(store.ledger.db, id)).toMatchObject({
        blockedAtMs,
        observedAtMs: clock.nowMs(),
        usedBytes: limitBytes,
      })
    })

    test('the gateway is mapped by the kernel as it was said, through flushes and switches, and is never blocked', async () => {
      // Goal: nftables takes the ruleset of a gateway's VM, and its samples are like any VM's but for the cap.
      const { store, create, addVm, clock } = bench()
      const ids = [1, 2].map(n => addVm(n, { network: 'gateway' }))
      const [first = '', second = ''] = ids
      for (const id of ids) openVm(store.ledger.db, { id, nowMs: clock.nowMs() })
      const usedBytes = 2 * limitBytes
      const before = { vmId: first, usedBytes, rescueBytes: 0, observedAtMs: clock.nowMs(), blockedAtMs: null }
      recordEgress(store.ledger.db, [before])
      const network = create()
      const mapped = () => {
        const { stdout } = Bun.spawnSync(['nft', 'list', 'chain', 'inet', 'strongroom', 'mapped'])
        return [...new Set([...stdout.toString().matchAll(/ dnat ip to (\S+)/g)].map(([, to]) => to))]
      }
      const upstreams = [{ address: '192.0.2.9', port: 443 }]
      for (const [serving, to] of [
        [first, ['10.88.0.1:8442']],
        [second, ['10.88.0.2:8442']],
        [null, []],
        [first, ['10.88.0.1:8442']],
      ] as const) {
        await network.setGatewayVm({ serving, port: 8442, upstreams })
        expect(mapped()).toEqual([...to])
      }
      expect(await network.sample()).toMatchObject([{ vmId: first, usedBytes, blockedAtMs: null }, { vmId: second }])
      Bun.spawnSync(['nft', 'flush', 'ruleset'])
      await network.sample()
      expect(mapped()).toEqual(['10.88.0.1:8442'])
      expect(egressOf(store.ledger.db, first)).toMatchObject({ usedBytes, blockedAtMs: null })
    })
  },
  { timeoutMs },
)
