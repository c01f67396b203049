// Goal: whatever is flushed on this host, a VM reaches nothing that it may not reach, and each byte that it sends is
// counted. A guest's tap in the namespace of VMs, frame by frame; a second LAN beyond the uplink; real nftables. Needs
// root.

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'bun:test'
import { guest, hostPlan, link, nextHop, plan } from '../../../../scripts/rigs/guest/two-guests.ts'
import { inOwnNetns } from '../../../../scripts/rigs/netns.ts'
import {
  addressBytes,
  hostAddress,
  openTapWire,
  sizeOf,
  type TapWire,
  tapMtuBytes,
  udpPacket,
  worldAddress,
} from '../../../../scripts/rigs/network/tap-wire.ts'
import { until } from '../../../../scripts/rigs/until.ts'
import { systemClock } from '../../../../src/base/clock.ts'
import { silentLogger } from '../../../../src/base/log.ts'
import { openVmRouting } from '../../../../src/cli/vm-routing.ts'
import { defaultConfig } from '../../../../src/config/load.ts'
import { hereNetns } from '../../../../src/host/network/netns.ts'
import { createNft, type Nft } from '../../../../src/host/network/nft.ts'
import { NftWatch } from '../../../../src/host/network/nft-watch.ts'
import { configureTap, openTap } from '../../../../src/host/network/tap.ts'
import { insideRuleCommands, parseRules } from '../../../../src/host/network/vm-link.ts'
import { createVmNamespace, openRouting, removeVmNamespace } from '../../../../src/host/network/vm-namespace.ts'
import { run } from '../../../../src/linux/command.ts'
import { openStore, type Store } from '../../../../src/store/db.ts'
import { recordResource } from '../../../../src/store/ledger/resource.query.ts'
import { insertVm, moveVm, openVm } from '../../../../src/store/ledger/vm.query.ts'
import { macAddress } from '../../../../src/vm/launch.plan.ts'
import { VmNetwork } from '../../../../src/vm/network/network.driver.ts'

const timeoutMs = 360_000
const vmId = '00000001-0000-4000-8000-000000000000'
const [tap, address] = ['sr0000000001', guest(1).address]

/** In a private network, which is denied by default. */
const lanAddress = '10.1.2.3'
const packetBytes = 1_000
const table = 'strongroom'
const limitBytes = 1_000_000_000
/** Left of the cap in the last test. */
const leftBytes = 500_000
/** Debian's own file begins so. */
const debianText = `flush ruleset
table inet filter { chain forward { type filter hook forward priority filter; }; }
`

inOwnNetns(
  import.meta.path,
  () => {
    const createNamespace = () => createVmNamespace({ ...link, name: 'srt-flush', loopbackClients: false })
    const namespace = createNamespace()
    let store: Store
    let wire: TapWire
    let nft: Nft
    let network: VmNetwork
    let isOnTrial = false
    let create: (egressLimitBytes: number) => VmNetwork
    let watches: readonly [NftWatch, NftWatch]
    const command = async (argv: readonly string[], stdin = '') =>
      (await run(argv, { stdin, timeoutMs: 60_000, outputBytesMax: 1_000_000 })).stdout
    const flush = () => command(['nft', 'flush', 'ruleset'])

    beforeAll(async () => {
      await namespace.open()
      const mac = macAddress(vmId)
      wire = await openTapWire({ tap, address, mac }, { namespace })
      await command(['ip', 'route', 'add', lanAddress, 'via', worldAddress])
      store = openStore(':memory:')
      const { db } = store.ledger
      const nowMs = 1
      insertVm(db, { id: vmId, hostId: store.hostId, image: 'instance', vcpus: 1, memoryMib: 512, nowMs })
      moveVm(db, { id: vmId, from: 'waiting', to: 'launching', nowMs, address })
      recordResource(db, { vmId, kind: 'nft', name: tap, nowMs })
      openVm(db, { id: vmId, nowMs })
      const inside = { table, log: silentLogger, netns: namespace.netns }
      const here = { table, log: silentLogger, netns: hereNetns }
      watches = [new NftWatch({ ...inside, clock: systemClock }), new NftWatch({ ...here, clock: systemClock })]
      nft = createNft({ ...inside, watch: watches[0] })
      create = egressLimitBytes =>
        new VmNetwork({
          ledger: store.ledger,
          nft,
          netns: namespace.netns,
          host: { nft: createNft({ ...here, watch: watches[1] }), ruleset: hostPlan() },
          clock: systemClock,
          log: silentLogger,
          ruleset: plan(),
          ownNetworks: () => [],
          ownAddresses: () => [hostAddress],
          names: null,
          closeRouting: async () => {
            if (isOnTrial) return
            await namespace.closeRouting()
          },
          egressLimitBytes,
          rescueLimitBytes: 0,
        })
      network = create(limitBytes)
      await network.sync()
    })
    beforeEach(() => network.resync().then(() => void wire.left()))
    afterAll(async () => {
      wire?.[Symbol.dispose]()
      await removeVmNamespace({ name: namespace.name, tapPrefix: 'sr' })
      store?.close()
    })

    /** Datagrams of the guest to each address in turn, while `work` goes on. Bytes that left, by destination. */
    const sendWhile = async (work: () => Promise<unknown>, to: readonly string[] = [lanAddress, worldAddress]) => {
      let isOver = false
      const left: Record<string, number> = Object.fromEntries(to.map(destination => [destination, 0]))
      const packets = to.map(destination => udpPacket({ source: address, destination }, packetBytes))
      const collect = () => {
        for (const packet of wire.left()) {
          const name = to.find(destination => Buffer.from(addressBytes(destination)).equals(packet.subarray(16, 20)))
          if (name !== undefined) left[name] = (left[name] ?? 0) + packet.length
        }
      }
      const sending = (async () => {
        while (!isOver) {
          wire.send(packets)
          collect()
          await Bun.sleep(1)
        }
      })()
      await work().finally(() => {
        isOver = true
      })
      await sending
      collect()
      return { left, collect }
    }
    const used = async () => (await nft.readCounters(60_000))?.quotas.get(tap)?.usedBytes ?? -1
    /** While the work goes on, nothing comes to the other LAN, and all that comes to the world is counted. */
    const holds = async (work: () => Promise<unknown>) => {
      const before = await used()
      const { left, collect } = await sendWhile(work)
      const counted = (await used()) - before
      await until('all that was counted has come', 60_000, () => {
        collect()
        return left[worldAddress] === counted
      })
      expect(left[lanAddress]).toBe(0)
      expect(counted).toBeGreaterThan(0)
    }
    const watching = async (work: () => Promise<unknown>) => {
      const stopping = new AbortController()
      const { signal } = stopping
      const done = Promise.all([
        network.watch(watches[0], signal),
        network.watchHost(watches[1], { signal, onAddresses: namespace.keep }),
      ])
      await work()
      stopping.abort()
      await done
    }
    /** Packets that the kernel has had for the guest of this tap. */
    const arrivedAt = (name: string): number => {
      const argv = ['ip', '-json', '-statistics', 'link', 'show', 'dev', name]
      const { stdout } = namespace.netns.run(() => Bun.spawnSync(argv))
      type Link = { stats64: { tx: { packets: number; dropped: number } } }
      const [found] = JSON.parse(stdout.toString()) as Link[]
      return (found?.stats64.tx.packets ?? Number.NaN) + (found?.stats64.tx.dropped ?? Number.NaN)
    }
    const readInside = async () => parseRules(await namespace.netns.run(() => command(['ip', '-json', 'rule', 'show'])))
    /** Another VM beside the first. */
    const secondGuest = async () => {
      const [name, other] = ['sr0000000002', guest(2).address]
      const opened = openTap(name, namespace.netns)
      const mac = macAddress('00000002-0000-4000-8000-000000000000')
      const plan = { name, nextHop, address: other, mac, mtuBytes: tapMtuBytes, timeoutMs: 60_000 }
      await configureTap(plan, namespace.netns)
      return {
        address: other,
        arrived: () => arrivedAt(name),
        [Symbol.asyncDispose]: async () => opened.close(),
      }
    }
    const hasTable = async () => (await command(['nft', 'list', 'tables'])).includes(`inet ${table}`)

    test('daemon up, four flushes: the other LAN gets nothing, and this host’s own table comes back', async () => {
      // Goal: a flush is nothing to VMs, and clients keep what the table of this host gives them.
      await watching(() =>
        holds(async () => {
          for (let turn = 0; turn < 4; turn += 1) {
            await flush()
            await until('the table of this host is back', 60_000, hasTable)
          }
        }),
      )
    })

    test('restart and reload of nftables: the other LAN gets nothing', async () => {
      // Goal: the way Debian reloads its rules needs no drop-in of ours.
      await watching(() =>
        holds(async () => {
          // Stop, start, reload (nftables.service).
          await flush()
          for (let turn = 0; turn < 2; turn += 1) await command(['nft', '--file', '-'], debianText)
          await until('the table of this host is back', 60_000, hasTable)
        }),
      )
    })

    test('daemon down and a flush by hand: the other LAN gets nothing for as long as that lasts', async () => {
      // Goal: rules of VMs hold without the daemon.
      await holds(async () => {
        await flush()
        await Bun.sleep(3_000)
      })
      expect(await hasTable()).toBe(false)
    })

    test('twenty flushes that nobody sees: the other LAN gets nothing', async () => {
      // Goal: no flush has a moment before somebody sees it.
      await holds(async () => {
        for (let turn = 0; turn < 20; turn += 1) await flush()
      })
    })

    test('an address that this host has just got is closed to VMs, with its table flushed and nobody there', async () => {
      // Goal: this host is closed to VMs by its routing, which no flush of nftables touches.
      await flush()
      let heard = 0
      const service = await Bun.udpSocket({
        hostname: '0.0.0.0',
        port: 9,
        socket: {
          data: () => {
            heard += 1
          },
        },
      })
      const fresh = '203.0.113.5'
      await sendWhile(async () => {
        await command(['ip', 'address', 'add', `${fresh}/24`, 'dev', 'uplink'])
        await Bun.sleep(300)
      }, [fresh, hostAddress, nextHop])
      expect(heard).toBe(0)
      // It does hear who is allowed to speak.
      wire.arrive(udpPacket({ source: worldAddress, destination: fresh }, 100))
      await until('the service hears the world', 60_000, () => heard === 1)
      service.close()
      await command(['ip', 'address', 'delete', `${fresh}/24`, 'dev', 'uplink'])
    })

    test('every table flushed, inside too, and nobody there: a VM reaches nobody until the daemon is back', async () => {
      // Goal: routing refuses what no table has seen: the other LAN, the world, this host, another VM.
      await using other = await secondGuest()
      await flush()
      await namespace.netns.run(() => flush())
      let heard = 0
      const service = await Bun.udpSocket({
        hostname: '0.0.0.0',
        port: 9,
        socket: {
          data: () => {
            heard += 1
          },
        },
      })
      const before = other.arrived()
      const to = [lanAddress, worldAddress, nextHop, hostAddress, other.address]
      const { left } = await sendWhile(() => Bun.sleep(3_000), to)
      expect({ left, heard, other: other.arrived() - before }).toEqual({
        left: Object.fromEntries(to.map(destination => [destination, 0])),
        heard: 0,
        other: 0,
      })
      // Nor does a stranger reach the VM.
      const reached = arrivedAt(tap)
      wire.arrive(udpPacket({ source: worldAddress, destination: address }, 100))
      await Bun.sleep(300)
      expect(arrivedAt(tap)).toBe(reached)
      service.close()
      await network.resync()
      const restored = await sendWhile(() => Bun.sleep(300))
      expect(restored.left[worldAddress]).toBeGreaterThan(0)
      expect(restored.left[lanAddress]).toBe(0)
    })

    test('the namespace is opened again: its rules stay as they are, or are put back whole', async () => {
      // Goal: an open namespace loses no packet to another start of the daemon, and a lost rule returns with it.
      const rules = async () => await namespace.netns.run(() => command(['ip', 'rule', 'show']))
      const before = await rules()
      expect(insideRuleCommands(await readInside(), { nextHop, link: 'sr-host' })).toEqual([])
      await namespace.open()
      expect(await rules()).toBe(before)
      for (const pref of ['0', '3']) {
        await namespace.netns.run(() => command(['ip', 'rule', 'delete', 'pref', pref]))
        await network.sample()
        expect(await rules()).toBe(before)
      }
    })

    describe('an earlier build, whose table marks nothing', () => {
      /** The commands of its start, as it chose them by the rules that it found. */
      const startEarlier = async () => {
        const text = await namespace.netns.run(() => command(['ip', '-json', 'rule', 'show']))
        const rules = JSON.parse(text) as { priority: number; table?: string; dst?: string }[]
        const ours = rules.filter(({ table: to }) => to === '29554')
        const isMoved = !rules.some(({ priority, table: to }) => priority === 0 && to === 'local')
        if (ours.length === 1 && ours[0]?.dst === nextHop && isMoved) return
        const commands = [
          ...(isMoved ? [] : ['rule add pref 1 lookup local', 'rule delete pref 0 lookup local']),
          ...ours.map(({ priority, dst }) => `rule delete pref ${priority} to ${dst} lookup 29554`),
          `rule add pref 0 to ${nextHop} lookup 29554`,
        ]
        await namespace.netns.run(() => command(['ip', '-batch', '-'], `${commands.join('\n')}\n`))
      }
      const earlierText =
        'flush ruleset\ntable inet strongroom { chain open { type filter hook forward priority 0; }; }\n'
      const serveEarlier = async () => {
        await startEarlier()
        await namespace.netns.run(() => command(['nft', '--file', '-'], earlierText))
      }
      const heardAt = async (to: string) => {
        let heard = 0
        const socket = {
          data: () => {
            heard += 1
          },
        }
        const service = await Bun.udpSocket({ hostname: nextHop, port: 9, socket })
        const { left } = await sendWhile(() => Bun.sleep(300), [worldAddress, to])
        service.close()
        return { world: (left[worldAddress] ?? 0) > 0, nextHop: heard > 0 }
      }
      const both = { world: true, nextHop: true }
      /** The namespace as it left it, with a VM that runs. */
      const leave = async () => {
        await openRouting(namespace.name)
        await serveEarlier()
        expect(await heardAt(nextHop)).toEqual(both)
      }
      afterEach(() => {
        isOnTrial = false
      })

      test('goal: a trial changes nothing that its return would miss: VMs go on through all of it', async () => {
        await leave()
        isOnTrial = true
        const trial = create(limitBytes)
        await namespace.open()
        expect(await heardAt(nextHop)).toEqual(both)
        await trial.sync()
        await trial.sample()
        expect(insideRuleCommands(await readInside(), { nextHop, link: 'sr-host' })).not.toEqual([])
        await serveEarlier()
        expect(await heardAt(nextHop)).toEqual(both)
      })

      test('goal: a trial after a boot, which creates the namespace, is as good', async () => {
        isOnTrial = true
        const other = { ...link, tapPrefix: 'sx', nextHop: '10.89.0.1', name: 'srt-fresh' }
        const fresh = createVmNamespace({ ...other, loopbackClients: false })
        await fresh.open()
        const rules = await fresh.netns.run(() => command(['ip', 'rule', 'show']))
        // The rules of this host stay, which the other namespace shares.
        await command(['ip', 'link', 'delete', 'dev', fresh.link])
        await command(['ip', 'netns', 'delete', fresh.name])
        expect(rules).toContain(`0:\tfrom all to ${other.nextHop} lookup 29554`)
        expect(rules).not.toContain('blackhole')
      })

      test('goal: an upgrade closes routing after its first table, and VMs go on until then', async () => {
        await leave()
        const started = createNamespace()
        await started.open()
        await started.keep()
        expect(await heardAt(nextHop)).toEqual(both)
        await create(limitBytes).sync()
        expect(insideRuleCommands(await readInside(), { nextHop, link: 'sr-host' })).toEqual([])
        expect((await heardAt(nextHop)).world).toBe(true)
      })

      test('goal: its return after acceptance has the network of VMs back with the routing that is opened for it', async () => {
        await namespace.closeRouting()
        await serveEarlier()
        expect(await heardAt(nextHop)).toEqual({ world: false, nextHop: true })
        const said: string[] = []
        const say = (text: string) => void said.push(text)
        await openVmRouting(() => Promise.reject(new Error('no such file')), say)
        expect(said).toMatchObject([expect.stringContaining('Go back after acceptance')])
        const network = { ...defaultConfig().network, table: namespace.name }
        await openVmRouting(() => ({ config: { ...defaultConfig(), network }, file: null, warnings: [] }), say)
        expect(said).toHaveLength(1)
        expect(await heardAt(nextHop)).toEqual(both)
        expect(await openRouting(namespace.name)).toEqual([])
      })
    })

    test('rules of routing that others remove are put back while the daemon is up', async () => {
      // Goal: the one part that is outside of the namespace is watched.
      await watching(async () => {
        await command(['ip', 'rule', 'delete', 'pref', '0'])
        const rules = async () => await command(['ip', 'rule', 'show'])
        await until('they are back', 60_000, async () =>
          /^0:.*lookup 29554\n0:.*lookup local\n0:.*goto 2\n0:.*blackhole/.test(await rules()),
        )
      })
    })

    test('the cap is exact across flushes', async () => {
      // Goal: never a byte over, and none less than a packet under.
      const before = await used()
      const capBytes = before + leftBytes
      await create(capBytes).sync()
      const { left, collect } = await sendWhile(async () => {
        await until('the cap is spent', 60_000, async () => {
          await flush()
          return (await used()) >= capBytes
        })
      })
      const exact = Math.floor(leftBytes / packetBytes) * packetBytes
      await until('the last has come', 60_000, () => {
        collect()
        return left[worldAddress] === exact
      })
      expect(left[lanAddress]).toBe(0)
      expect(sizeOf(wire.left())).toBe(0)
    })
  },
  { timeoutMs },
)
