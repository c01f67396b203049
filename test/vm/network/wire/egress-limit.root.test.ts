// The egress cap as the kernel enforces it and the daemon reports it: packets through the daemon's own tap and ruleset,
// bytes on the uplink, SQLite, in a namespace of their own. Needs root.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../../scripts/rigs/clock.ts'
import { hostPart, plan } from '../../../../scripts/rigs/guest/two-guests.ts'
import { inOwnNetns } from '../../../../scripts/rigs/netns.ts'
import { openTapWire, sizeOf, udpPacket, worldAddress } from '../../../../scripts/rigs/network/tap-wire.ts'
import { silentLogger } from '../../../../src/base/log.ts'
import { createNft } from '../../../../src/host/network/nft.ts'
import { openStore } from '../../../../src/store/db.ts'
import { egressOf, raiseEgressLimit } from '../../../../src/store/ledger/egress.query.ts'
import { listEvents } from '../../../../src/store/ledger/event.query.ts'
import { recordResource } from '../../../../src/store/ledger/resource.query.ts'
import { insertVm, moveVm, openVm } from '../../../../src/store/ledger/vm.query.ts'
import { macAddress } from '../../../../src/vm/launch.plan.ts'
import { VmNetwork } from '../../../../src/vm/network/network.driver.ts'

const limitBytes = 1_048_576
const dayMs = 86_400_000
const vmId = '00000001-0000-4000-8000-000000000000'
const guest = { tap: 'tap1', mac: macAddress(vmId), address: '10.88.0.1' }

inOwnNetns(
  import.meta.path,
  () => {
    const nftCommand = async (...argv: string[]) => {
      const child = Bun.spawn(['nft', ...argv], { stdout: 'pipe', stderr: 'pipe' })
      expect([await child.exited, await child.stderr.text()]).toEqual([0, ''])
    }
    const bench = async (rescueLimitBytes = 70_000) => {
      await nftCommand('flush', 'ruleset')
      const wire = await openTapWire(guest)
      const store = openStore(':memory:')
      const clock = createManualClock()
      const nft = createNft({ table: 'strongroom', log: silentLogger })
      const { db } = store.ledger
      const nowMs = clock.nowMs()
      insertVm(db, { id: vmId, hostId: store.hostId, image: 'instance', vcpus: 1, memoryMib: 512, nowMs })
      moveVm(db, { id: vmId, from: 'waiting', to: 'launching', nowMs, address: guest.address })
      recordResource(db, { vmId, kind: 'nft', name: guest.tap, nowMs })
      openVm(db, { id: vmId, nowMs })
      const create = (change: { rescueLimitBytes?: number } = {}) =>
        new VmNetwork({
          ledger: store.ledger,
          nft,
          host: hostPart(nft),
          clock,
          log: silentLogger,
          ruleset: plan(),
          ownNetworks: () => [],
          ownAddresses: () => [],
          names: null,
          egressLimitBytes: limitBytes,
          rescueLimitBytes,
          ...change,
        })
      /** Bytes of the packets that have left, of as many as the guest has sent. */
      const blast = (count: number, sizeBytes = 1_000) => {
        const packet = udpPacket({ source: guest.address, destination: worldAddress }, sizeBytes)
        wire.send(Array.from({ length: count }, () => packet))
        return sizeOf(wire.left())
      }
      const used = async () => (await nft.readCounters(60_000))?.quotas.get(guest.tap)?.usedBytes
      const kinds = () => listEvents(db, { limit: 20 }).map(({ kind }) => kind)
      const network = create()
      await network.sync()
      return { wire, store, db, clock, create, blast, used, kinds, network }
    }

    test('a raised limit lifts the block at once, counts nothing of what was dropped, and holds to the packet', async () => {
      // Goal: however much was sent at the spent cap, a new limit adds exactly its difference, also after repeats,
      // restarts and flushes.
      const { wire, db, clock, create, blast, used, kinds, network } = await bench()
      using _ = wire
      const first = blast(2_000)
      expect([first <= limitBytes, first > limitBytes - 1_000]).toEqual([true, true])
      expect(await network.sample()).toMatchObject([{ usedBytes: limitBytes, blockedAtMs: clock.nowMs() }])
      // Less than what was dropped: with a limit changed in place all of it would be counted, and nothing would pass.
      const higher = limitBytes + 100_000
      raiseEgressLimit(db, { vmId, limitBytes: higher })
      await network.resync()
      expect(await used()).toBe(limitBytes)
      expect(await network.sample()).toMatchObject([{ usedBytes: limitBytes, blockedAtMs: null }])
      const second = blast(50)
      expect(second).toBe(50_000)
      await network.resync()
      await create().sync()
      await nftCommand('flush', 'ruleset')
      await network.sample()
      expect(await used()).toBe(limitBytes + second)
      expect(kinds()).toEqual(['nft.restored'])
      const third = blast(500)
      expect([third <= 100_000 - second, third > 99_000 - second]).toEqual([true, true])
      clock.advance(5_000)
      expect(await network.sample()).toMatchObject([{ usedBytes: higher, blockedAtMs: clock.nowMs() }])
      expect(blast(50)).toBe(0)
    })

    test('a daemon that was killed between the ledger and the firewall lifts the block when it starts again', async () => {
      // Goal: what is on record comes into force, whoever is left to do it; nothing but the start is needed.
      const { wire, db, create, blast, used, network } = await bench()
      using _ = wire
      blast(3_000)
      await network.sample()
      raiseEgressLimit(db, { vmId, limitBytes: 2 * limitBytes })
      expect(blast(10)).toBe(0)
      const next = create()
      await next.sync()
      expect(await used()).toBe(limitBytes)
      expect(blast(10)).toBe(10_000)
      expect(await next.sample()).toMatchObject([{ usedBytes: limitBytes + 10_000, blockedAtMs: null }])
    })

    test('a limit that is not spent is raised in place, with what was counted meanwhile', async () => {
      // Goal: no packet between the look at the kernel and the new limit goes uncounted.
      const { wire, db, blast, used, network } = await bench()
      using _ = wire
      expect(blast(100)).toBe(100_000)
      raiseEgressLimit(db, { vmId, limitBytes: 2 * limitBytes })
      const applied = network.resync()
      expect(blast(100)).toBe(100_000)
      await applied
      expect(await used()).toBe(200_000)
    })

    test('a count that somebody else sets back, and a limit that somebody else changes, are as the ledger says at the next sample', async () => {
      // Goal: neither a mistake nor a leftover of a saved ruleset gives a guest more than its cap.
      const { wire, blast, used, kinds, network } = await bench()
      using _ = wire
      blast(3_000)
      await network.sample()
      await nftCommand('reset', 'quotas')
      expect(await used()).toBe(0)
      expect(await network.sample()).toEqual([])
      expect(await network.sample()).toMatchObject([{ usedBytes: limitBytes }])
      expect([await used(), blast(10), kinds()]).toEqual([limitBytes, 0, ['nft.restored']])
      await nftCommand('add', 'quota', 'inet', 'strongroom', guest.tap, '{ over 9000000000 bytes; }')
      await network.sample()
      await network.sample()
      expect([blast(10), kinds()]).toEqual([0, ['nft.restored']])
      expect(await network.sample()).toMatchObject([{ usedBytes: expect.any(Number), blockedAtMs: expect.any(Number) }])
    })

    test('what was sent since the last sample counts, though the quota that counted it is gone or was set back', async () => {
      // Goal: not one flush a second, and no daemon that was dead for a day before one, gives a guest a byte more.
      const { wire, create, blast, used, network } = await bench()
      using _ = wire
      expect(blast(100)).toBe(100_000)
      await network.sample()
      expect(blast(200)).toBe(200_000)
      await nftCommand('flush', 'ruleset')
      const next = create()
      await next.sync()
      expect(await used()).toBe(300_000)
      expect(blast(50)).toBe(50_000)
      // Not known to be gone: another VM's change writes the table anew.
      await nftCommand('flush', 'ruleset')
      await next.sync()
      expect(await used()).toBe(350_000)
      await next.sample()
      expect(blast(50)).toBe(50_000)
      await nftCommand('reset', 'quotas')
      expect(blast(50)).toBe(50_000)
      await next.sample()
      expect(await used()).toBe(450_000)
      expect(await next.sample()).toMatchObject([{ usedBytes: 450_000 }])
      const rest = blast(1_000)
      expect([rest <= limitBytes - 450_000, rest > limitBytes - 451_000]).toEqual([true, true])
    })

    test('clocks that jump either way lower no count and leave the time of a block', async () => {
      // Goal: counts are the kernel's; a clock only says when they were read.
      const { wire, db, clock, blast, network } = await bench()
      using _ = wire
      blast(500)
      const startMs = clock.nowMs()
      const seen: unknown[] = []
      for (const days of [0, -40, 40, -40]) {
        clock.set(startMs + days * dayMs)
        await network.sample()
        const { usedBytes, observedAtMs, blockedAtMs } = egressOf(db, vmId) ?? {}
        seen.push([usedBytes, ((observedAtMs ?? 0) - startMs) / dayMs, blockedAtMs])
      }
      expect(seen).toEqual([0, -40, 40, -40].map(days => [500_000, days, null]))
      blast(1_000)
      for (const days of [40, -40, 0]) {
        clock.set(startMs + days * dayMs)
        await network.sample()
        expect(egressOf(db, vmId)).toMatchObject({ usedBytes: limitBytes, blockedAtMs: startMs + 40 * dayMs })
      }
    })

    test('after a reboot of the host the table is made again from the samples, whichever limits there are', async () => {
      // Goal: sent bytes stay counted; a smaller allowance in the configuration does not rewrite the table again and
      // again.
      const { wire, db, create, blast, used, kinds, network } = await bench()
      using _ = wire
      blast(800)
      raiseEgressLimit(db, { vmId, limitBytes: 2 * limitBytes })
      await network.resync()
      await network.sample()
      db.run('UPDATE egress SET rescue_bytes = 60000')
      await nftCommand('flush', 'ruleset')
      const next = create({ rescueLimitBytes: 50_000 })
      await next.sync()
      expect(await used()).toBe(800_000)
      for (let round = 0; round < 3; round += 1) await next.sample()
      expect([egressOf(db, vmId)?.rescueBytes, kinds()]).toEqual([60_000, []])
      const more = blast(2_000)
      expect([more <= 2 * limitBytes - 800_000, more > 2 * limitBytes - 801_000]).toEqual([true, true])
    })

    test('raises and samples at the same time end with the newest limit and no block', async () => {
      // Goal: a look at the kernel from before a raise never has the last word.
      const { wire, db, blast, used, network } = await bench()
      using _ = wire
      blast(3_000)
      await network.sample()
      const rounds = Array.from({ length: 8 }, async (_, n) => {
        raiseEgressLimit(db, { vmId, limitBytes: limitBytes * (n + 2) })
        const sampled = network.sample()
        await network.resync()
        await sampled
        return network.sample()
      })
      await Promise.all(rounds)
      expect(egressOf(db, vmId)).toMatchObject({ usedBytes: limitBytes, blockedAtMs: null })
      expect([await used(), blast(10)]).toEqual([limitBytes, 10_000])
    })
  },
  { timeoutMs: 180_000 },
)
