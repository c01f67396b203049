// Hosts of a fleet among each other, as the daemon composes them: real PostgreSQL and TLS; what status, `fleet show`,
// doctor and metrics say of it.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect, newFleet } from '../../../scripts/rigs/postgres/fleet.ts'
import { report } from '../../../scripts/rigs/postgres/hosts.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { SINGLE_HOST_LINK } from '../../../src/appliance/fleet/directory.ts'
import { openFleet } from '../../../src/appliance/fleet/hosts.ts'
import { composePeers } from '../../../src/appliance/fleet/peers.ts'
import { present } from '../../../src/base/assert.ts'
import { systemClock } from '../../../src/base/clock.ts'
import type { Fault } from '../../../src/base/fault.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { collectFleetFacts } from '../../../src/cli/doctor/fleet/fleet.driver.ts'
import { fleetChecks } from '../../../src/cli/doctor/fleet/fleet.plan.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import type { Config } from '../../../src/config/schema.ts'
import type { ServiceAddresses } from '../../../src/contract/admin/fleet.ts'
import { createFleetAdmin } from '../../../src/fleet/hosts/fleet-admin.ts'
import { joinHost } from '../../../src/fleet/hosts/hosts.query.ts'
import { renewLease } from '../../../src/fleet/hosts/lease.query.ts'
import { openStore } from '../../../src/store/db.ts'

describe.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))(
  'hosts among each other',
  () => {
    let server: PostgresServer
    let root: string
    beforeAll(async () => {
      server = await startPostgres()
      root = mkdtempSync(join(tmpdir(), 'srt-peers-'))
    })
    afterAll(async () => {
      await server[Symbol.asyncDispose]()
      rmSync(root, { recursive: true, force: true })
    })

    async function compose(database: string, name: string, listen = '127.0.0.1:0') {
      const stack = new AsyncDisposableStack()
      const stateDir = join(root, name)
      mkdirSync(stateDir, { recursive: true })
      const fleetConfig = { ...defaultConfig().fleet, database, name, peer_listen: listen }
      const config: Config = { ...defaultConfig(), fleet: fleetConfig }
      const runtime = { clock: systemClock, random: systemRandom, log: silentLogger }
      const fleet = stack.use(await openFleet({ config, ...runtime }))
      const store = openStore(join(stateDir, 'strongroom.db'))
      stack.defer(() => store.close())
      const owner = await connect(server, database)
      await owner
        .transact(tx => joinHost(tx, { id: store.hostId, name, role: 'owner', nowMs: Date.now() }))
        .catch(() => {})
      await owner.close()
      const peers = present(
        await composePeers({ fleet, link: SINGLE_HOST_LINK, config, stateDir, store, ...runtime }),
        'it is in a fleet',
      )
      stack.use(peers)
      let serving: readonly ServiceAddresses[] = []
      return {
        serving: () => serving,
        ...{ config, stateDir, peers, fleet, hostId: store.hostId },
        start: async () => {
          await peers.listen({ instances: async () => new Response(name), builds: null, handover: null })
          peers.start(hosts => {
            serving = hosts
          })
        },
        stop: () => stack.disposeAsync(),
        [Symbol.asyncDispose]: () => stack.disposeAsync(),
      }
    }

    // Goal: an appliance that is in no fleet has no part of this.
    test('none without a fleet', async () => {
      const config = defaultConfig()
      const fleet = { database: null }
      const stateDir = join(root, 'alone')
      mkdirSync(stateDir)
      const runtime = { clock: systemClock, random: systemRandom, log: silentLogger }
      const peers = await composePeers({
        fleet,
        link: SINGLE_HOST_LINK,
        config,
        stateDir,
        store: { hostId: 'h' },
        ...runtime,
      })
      expect([peers.view(), peers.address(), peers.render()]).toEqual([[], null, ''])
      const refusal = (service: 'builds' | 'handover') =>
        peers
          .forward('h', new Request('https://h/'), { service, clientAddress: '', principal: null })
          .catch((error: Fault) => error.code)
      expect([await refusal('builds'), await refusal('handover')]).toEqual(['not_found', 'fleet.unavailable'])
    })

    // Goal: operators see which hosts are reached, from each host, by daemon and doctor alike, and why one is not.
    test('from the first start to the end of a host', async () => {
      const database = await newFleet(server)
      await using east = await compose(database, 'east')
      const west = await compose(database, 'west')
      await using lone = await compose(database, 'lone', '')
      for (const host of [east, west, lone]) await host.start()
      for (const host of [east, lone]) {
        await until('it reaches those that answer', 60_000, () => host.peers.view().some(({ isReached }) => isReached))
      }
      await until('east reaches west', 60_000, () => east.peers.view().some(({ name }) => name === 'west'))
      // A host that answers nobody still asks.
      expect(lone.peers.address()).toBeNull()
      await until(
        'lone reaches both',
        60_000,
        () => lone.peers.view().filter(({ isReached }) => isReached).length === 2,
      )
      const asked = await lone.peers.forward(west.hostId, new Request('http://x/'), {
        service: 'instances',
        clientAddress: '10.0.0.1',
        principal: null,
      })
      expect(await asked.text()).toBe('west')
      expect(east.peers.render()).toContain('strongroom_fleet_peer_up{host="west"} 1\n')
      expect(lone.peers.render()).toContain('strongroom_fleet_forwarded_total{outcome="answered"} 1\n')
      expect(west.peers.render()).toContain('strongroom_fleet_peer_calls_total{service="instances"} 1\n')

      const postgres = present(east.fleet.database, 'it is in a fleet').postgres
      const at = { v4: '192.0.2.7', v6: null }
      const addresses = { ns: at, instances: at, inference: null, builds: null }
      const renewal = { lostAfterMs: 60_000, platform: 'tcg', places: 1, report: { ...report, addresses } }
      expect(east.serving()).toEqual([])
      await renewLease(postgres, { hostId: west.hostId, process: 'p', ...renewal })
      await until('DNS of the others names west', 60_000, () => Bun.deepEquals(lone.serving(), [addresses]))
      await postgres.query('UPDATE clock SET served_ms = served_ms + 7000')
      await until('it does not any more', 60_000, () => lone.serving().length === 0)
      const admin = createFleetAdmin({
        postgres,
        hostId: east.hostId,
        clock: systemClock,
        reached: () => east.peers.view(),
      })
      expect(await admin.show('west')).toMatchObject({
        peer_address: west.peers.address(),
        peer_key: expect.stringMatching(/^[0-9a-f]{64}$/),
        is_reached: true,
        peer_problem: null,
      })
      expect(await admin.show('lone')).toMatchObject({ peer_address: null, is_reached: null })
      const doctor = async () => {
        const facts = present(await collectFleetFacts(east.config, east.stateDir), 'it is in a fleet')
        if (facts.kind !== 'read') throw new Error(facts.reason)
        const hosts = facts.hosts.map(host => ({ ...host, state: 'serving' as const }))
        return fleetChecks({ ...facts, hosts }).find(({ name }) => name === 'fleet peers')
      }
      expect(await doctor()).toMatchObject({ result: 'WARN', detail: expect.stringContaining('lone: what they alone') })
      await west.stop()
      // The last call may have met its end instead.
      const problems = () => east.peers.view().map(({ problem }) => problem)
      await until('east no longer reaches west', 60_000, () => problems().includes('ECONNREFUSED'))
      expect(await admin.show('west')).toMatchObject({ is_reached: false, peer_problem: 'ECONNREFUSED' })
      expect(await doctor()).toMatchObject({
        result: 'WARN',
        detail: 'not reached from here: west (ECONNREFUSED)',
        remedy: expect.stringContaining('fleet.peer_listen'),
      })
      expect(east.peers.render()).toContain('strongroom_fleet_peer_up{host="west"} 0\n')

      // It comes back, on another port, by the same key.
      await using again = await compose(database, 'west')
      await again.start()
      await until('east reaches it again', 60_000, () => east.peers.view().every(({ isReached }) => isReached))
      expect((await admin.show('west')).peer_address).toBe(again.peers.address())
    }, 120_000)

    // Goal: an address that is taken stops the start, and names the field.
    test('a taken port', async () => {
      const database = await newFleet(server)
      const taken = Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: () => new Response() })
      await using host = await compose(database, 'south', `127.0.0.1:${taken.port}`)
      const failure = await host.start().catch(error => error)
      expect(failure).toMatchObject({ code: 'host.listen_failed', param: 'fleet.peer_listen' })
      await taken.stop(true)
    })
  },
)
