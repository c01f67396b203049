// Foreign changes of our tables while the daemon runs: real nftables and netlink, in a namespace of its own. Alone,
// because they are undone within a second.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { hostPart, planV6 } from '../../../scripts/rigs/guest/two-guests.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { watchWithheld } from '../../../scripts/rigs/withheld.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { hereNetns } from '../../../src/host/network/netns.ts'
import { createNft } from '../../../src/host/network/nft.ts'
import { NftWatch } from '../../../src/host/network/nft-watch.ts'
import { ownAddresses, ownNetworks } from '../../../src/host/network/own-networks.ts'
import { run } from '../../../src/linux/command.ts'
import { openStore } from '../../../src/store/db.ts'
import { recordEgress } from '../../../src/store/ledger/egress.query.ts'
import { listEvents } from '../../../src/store/ledger/event.query.ts'
import { recordResource } from '../../../src/store/ledger/resource.query.ts'
import { insertVm, moveVm, openVm } from '../../../src/store/ledger/vm.query.ts'
import { VmNetwork } from '../../../src/vm/network/network.driver.ts'

const timeoutMs = 10_000

inOwnNetns(
  import.meta.path,
  () => {
    const command = async (...argv: string[]) => (await run(argv, { timeoutMs, outputBytesMax: 1_000_000 })).stdout
    const nft = (...argv: string[]) => command('nft', ...argv)
    const stopping = new AbortController()
    const store = openStore(':memory:')
    let applied = 0
    let network: VmNetwork
    let watching: Promise<unknown>

    beforeAll(async () => {
      const watch = new NftWatch({
        table: 'strongroom',
        netns: hereNetns,
        clock: systemClock,
        log: silentLogger,
      })
      const hostTable = 'strongroom_host'
      const hostWatch = new NftWatch({ table: hostTable, netns: hereNetns, clock: systemClock, log: silentLogger })
      const real = createNft({ table: 'strongroom', log: silentLogger, watch })
      network = new VmNetwork({
        ledger: store.ledger,
        nft: {
          ...real,
          applyRuleset: async (...args) => {
            await real.applyRuleset(...args)
            applied += 1
          },
        },
        clock: systemClock,
        log: silentLogger,
        ruleset: planV6(),
        host: hostPart(createNft({ table: hostTable, log: silentLogger, watch: hostWatch })),
        ownNetworks: () => ownNetworks({ withV6: true }),
        ownAddresses: () => ownAddresses({ withV6: true }),
        names: null,
        egressLimitBytes: 1_000_000,
        rescueLimitBytes: 1_000,
      })
      const id = '00000001-0000-4000-8000-000000000000'
      const { db } = store.ledger
      insertVm(db, { id, hostId: store.hostId, image: 'instance', vcpus: 1, memoryMib: 512, nowMs: 1 })
      moveVm(db, { id, from: 'waiting', to: 'launching', nowMs: 1, address: '10.88.0.1' })
      recordResource(db, { vmId: id, kind: 'nft', name: 'sr0000000140', nowMs: 1 })
      openVm(db, { id, nowMs: 1 })
      recordEgress(db, [{ vmId: id, usedBytes: 4321, rescueBytes: 7, observedAtMs: 1, blockedAtMs: null }])
      await network.sync()
      const { signal } = stopping
      watching = Promise.all([
        network.watch(watch, signal),
        network.watchHost(hostWatch, { signal, onAddresses: async () => {} }),
      ])
      await until('it listens', 20_000, () => applied === 2)
    })
    afterAll(async () => {
      stopping.abort()
      await watching
    })

    /** Our tables without what only counts. */
    const tables = async () =>
      (await nft('--stateless', 'list', 'table', 'inet', 'strongroom')) +
      (await nft('--stateless', 'list', 'table', 'arp', 'strongroom'))
    /** A change after another within a second is answered later and later. */
    const calmMs = 1_300
    const transactions = async (count: number) => {
      for (let turn = 0; turn < count; turn += 1) await nft('add', 'counter', 'inet', 'other', `c${turn}`)
    }

    test('every change of somebody else is undone within a second, and what was counted stays', async () => {
      // Goal: no foreign change, of table, rule, set, chain, quota or ARP, leaves a hole until the next sample.
      const sound = await tables()
      expect(sound).toContain('sr0000000140')
      const changes: Record<string, string[]> = {
        'flush of all': ['flush', 'ruleset'],
        'delete of the table': ['delete', 'table', 'inet', 'strongroom'],
        'flush of the rules': ['flush', 'table', 'inet', 'strongroom'],
        'flush of a chain': ['flush', 'chain', 'inet', 'strongroom', 'forward'],
        'delete of a rule': ['delete', 'rule', 'inet', 'strongroom', 'forward', 'handle', ''],
        'rule that accepts': ['insert', 'rule', 'inet', 'strongroom', 'forward', 'accept'],
        'element less': ['delete', 'element', 'inet', 'strongroom', 'taps', '{ "sr0000000140" }'],
        'element more': ['add', 'element', 'inet', 'strongroom', 'egress_allowed', '{ 10.0.0.0/8 }'],
        'higher quota': ['add', 'quota', 'inet', 'strongroom', 'sr0000000140', '{ over 9 mbytes }'],
        'table of ARP': ['delete', 'table', 'arp', 'strongroom'],
      }
      for (const [what, argv] of Object.entries(changes)) {
        if (what === 'delete of a rule') {
          const list = await nft('--handle', 'list', 'chain', 'inet', 'strongroom', 'forward')
          argv[argv.length - 1] = /drop # handle (\d+)/.exec(list)?.[1] ?? ''
        }
        const before = applied
        using withheld = watchWithheld()
        const startedMs = performance.now()
        await nft(...argv)
        await until(`${what} is undone`, 30_000, () => applied > before)
        // Bound for a machine that is busy with other tests.
        expect([what, performance.now() - startedMs - withheld.ms() < 1_000]).toEqual([what, true])
        expect([what, await tables()]).toEqual([what, sound])
        expect(await nft('list', 'quota', 'inet', 'strongroom', 'sr0000000140')).toContain(
          'over 1000000 bytes used 4321 bytes',
        )
        await Bun.sleep(calmMs)
      }
      expect(listEvents(store.ledger.db, { limit: 100 }).filter(event => event.kind === 'nft.restored').length).toBe(1)
    })

    test('what others do in tables of their own, what packets do, and what we do ourselves, is no change', async () => {
      // Goal: no busy neighbour, no guest and no transaction of ours makes the daemon write the ruleset again.
      await Bun.sleep(calmMs)
      const before = applied
      await nft('add', 'table', 'inet', 'other')
      await nft('add', 'table', 'ip', 'strongroom')
      await transactions(20)
      // As a spent cap does: the kernel tells of it by itself.
      await nft('add', 'quota', 'inet', 'other', 'spent', '{ over 10 bytes }')
      await nft('add', 'chain', 'inet', 'other', 'out', '{ type filter hook output priority 0; }')
      await nft('add', 'rule', 'inet', 'other', 'out', 'quota', 'name', 'spent', 'accept')
      await command('ip', 'link', 'set', 'lo', 'up')
      const socket = await Bun.udpSocket({ hostname: '127.0.0.1' })
      // To itself, so that somebody is there.
      for (let count = 0; count < 50; count += 1) socket.send(new Uint8Array(100), socket.port, '127.0.0.1')
      socket.close()
      expect(await nft('list', 'quota', 'inet', 'other', 'spent')).toContain('used 10 bytes')
      await Bun.sleep(500)
      expect(applied).toBe(before)
      for (let turn = 0; turn < 3; turn += 1) await network.sync()
      await Bun.sleep(500)
      expect(applied).toBe(before + 3)
    })

    test('a change beside a transaction of ours is noticed, too', async () => {
      // Goal: nobody slips in between.
      for (let turn = 0; turn < 3; turn += 1) {
        await Promise.all([network.sync(), nft('insert', 'rule', 'inet', 'strongroom', 'forward', 'accept')])
        await until('it is undone', 30_000, async () => !/chain forward \{[^}]*\n\t\taccept\n/.test(await tables()))
      }
    })

    test('an address of this host closes its network to VMs within a second', async () => {
      // Goal: the operator’s own networks are known when they are there, not five seconds later.
      const denied = async (set = 'egress_denied') => await nft('list', 'set', 'inet', 'strongroom', set)
      await command('ip', 'link', 'add', 'lan', 'type', 'veth', 'peer', 'name', 'lanpeer')
      await command('ip', 'link', 'set', 'lanpeer', 'up')
      await command('ip', 'link', 'set', 'lan', 'up')
      expect(await denied()).not.toContain('203.0.113.64')
      using withheld = watchWithheld()
      const startedMs = performance.now()
      await command('ip', 'address', 'add', '203.0.113.65/26', 'dev', 'lan')
      await until('it is denied', 30_000, async () => (await denied()).includes('203.0.113.64/26'))
      expect(performance.now() - startedMs - withheld.ms()).toBeLessThan(1_500)
      await command('ip', 'address', 'add', '2a0f:7::1/64', 'dev', 'lan', 'nodad')
      await until('it is denied, too', 30_000, async () => (await denied('egress_denied_v6')).includes('2a0f:7::/64'))
      await command('ip', 'link', 'delete', 'lan')
      await until('it is open again', 30_000, async () => !(await denied()).includes('203.0.113.64/26'))
      expect(await denied('egress_denied_v6')).not.toContain('2a0f:7::')
    })

    test('one that fights for the table takes a bounded share of our time', async () => {
      // Goal: two daemons that each put back their own neither burn a processor nor fill the event log.
      await Bun.sleep(calmMs)
      const before = applied
      const endMs = performance.now() + 3_000
      while (performance.now() < endMs) {
        await nft('add', 'counter', 'inet', 'strongroom', 'foreign').catch(() => {})
        await Bun.sleep(50)
      }
      expect(applied - before).toBeGreaterThan(0)
      expect(applied - before).toBeLessThanOrEqual(6)
      expect(listEvents(store.ledger.db, { limit: 100 }).filter(event => event.kind === 'nft.restored').length).toBe(1)
    })
  },
  { timeoutMs: 120_000 },
)
