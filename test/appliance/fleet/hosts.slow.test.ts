// A host in a fleet as the daemon composes it, on a real PostgreSQL: what status, metrics and the other hosts see of
// it, and what it costs the database.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { connect, newFleet } from '../../../scripts/rigs/postgres/fleet.ts'
import { type DatabaseProxy, startProxy } from '../../../scripts/rigs/postgres/proxy.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { SINGLE_HOST_LINK } from '../../../src/appliance/fleet/directory.ts'
import { composeFleetHost, type FleetHostParts, openFleet } from '../../../src/appliance/fleet/hosts.ts'
import { NO_FLEET_PEERS } from '../../../src/appliance/fleet/peers.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import type { Config } from '../../../src/config/schema.ts'
import { joinHost } from '../../../src/fleet/hosts/hosts.query.ts'
import { openStore } from '../../../src/store/db.ts'

describe.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))('a host of a fleet', () => {
  let server: PostgresServer
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server[Symbol.asyncDispose]())

  async function compose(database: string, changes: Partial<FleetHostParts> = {}) {
    const config: Config = { ...defaultConfig(), fleet: { ...defaultConfig().fleet, database, name: 'rack-1' } }
    const fleet = await openFleet({ config, clock: systemClock, log: silentLogger })
    const store = openStore(':memory:')
    const host = composeFleetHost({
      fleet,
      link: SINGLE_HOST_LINK,
      peers: NO_FLEET_PEERS,
      config,
      store,
      stateDir: '/nonexistent',
      operatorKey: { digest: new Uint8Array(48).fill(0xef) },
      engine: {
        platform: 'tcg',
        capacity: { memoryMib: 9_000, vcpus: 100, addresses: 100, asids: null, bootingMax: 2 },
        diskGibMax: () => 1_000,
      },
      pool: {
        status: () => ({ wanted: 2, warm: 1, booting: 1, lacking: null, lastFailure: null, nextAttemptAtMs: null }),
      },
      clockGuard: { certainMs: () => Date.now() },
      clock: systemClock,
      log: silentLogger,
      onEvent: () => {},
      ...changes,
    })
    const stop = async () => {
      await host[Symbol.asyncDispose]()
      await fleet[Symbol.asyncDispose]()
      store.close()
    }
    return { host, store, fleet, stop, [Symbol.asyncDispose]: stop }
  }

  // Goal: an appliance without a fleet is as it was: no status, metrics, problems, connection.
  test('none without fleet.database', async () => {
    await using alone = await compose('')
    expect(alone.fleet.database).toBeNull()
    expect([alone.host.hasLease(), alone.host.status()]).toEqual([false, null])
    await expect(alone.host.admin.list()).rejects.toThrow('this host is in no fleet')
    expect(await alone.host.admin.actions({ sinceMs: null, limit: 1 })).toEqual({})
    expect((await alone.host.admin.held({ month: '2026-11', organizationId: null }))('o')).toBeUndefined()
    expect([alone.host.problems(), alone.host.render()]).toEqual([[], ''])
  })

  // Goal: the others see what a host has room for, and its operator whether it takes part, from before it joined until
  // after the database went away.
  test('from its join to the end of the database', async () => {
    const url = await newFleet(server)
    const owner = await connect(server, url)
    await using proxy = await startProxy(server.port)
    await using member = await compose(through(proxy, url))
    const { host, store } = member
    expect(host.status()).toMatchObject({ name: 'rack-1', has_lease: false, problem: 'no renewal has succeeded yet' })
    host.start()
    await until('it says that it is no member', 60_000, () => host.problems()[0]?.detail.includes('is no member'))
    expect(host.render()).toContain('strongroom_fleet_lease 0\n')
    await owner.transact(tx => joinHost(tx, { id: store.hostId, name: 'rack-1', role: 'owner', nowMs: Date.now() }))
    await until('it has its lease', 60_000, () => host.hasLease())
    expect(host.problems()).toEqual([])
    expect(host.render()).toMatch(/^strongroom_fleet_lease 1$/m)
    expect(host.render()).toMatch(/^strongroom_fleet_database_up 1$/m)
    // Room by memory: 4 VMs of 2 GiB, and two that are warm or about to be.
    expect(await host.admin.list()).toMatchObject([
      {
        ...{ name: 'rack-1', state: 'serving', is_this_host: true, places_free: 6, platform: 'tcg', lacking: null },
        ...{ warm: 1, operator_key: 'ef'.repeat(48) },
      },
    ])
    await host.admin.drain('rack-1')
    await until('it drains', 60_000, () => host.status()?.is_draining)
    proxy.set('hole')
    await until('it has no lease', 60_000, () => host.hasLease() === false)
    await until('a renewal was given up', 60_000, () => host.status()?.is_reachable === false)
    expect(host.status()).toMatchObject({ is_reachable: false, has_lease: false, problem: expect.any(String) })
    expect(host.problems()).toMatchObject([{ name: 'fleet', detail: expect.stringContaining('no lease') }])
    proxy.set('open')
    await until('it has its lease again', 60_000, () => host.hasLease())
    await owner.close()
  })

  // Goal: an idle host costs the database few statements: half a one a second for its lease.
  test('an idle host asks little', async () => {
    const url = await newFleet(server)
    const owner = await connect(server, url)
    // Time as the loop sees it: 60 s in a moment.
    let nowMs = 0
    const clock = {
      nowMs: Date.now,
      monotonicMs: () => nowMs,
      sleep: async (ms: number) => {
        nowMs += ms
        await Bun.sleep(0)
      },
    }
    await using member = await compose(url, { clock })
    await owner.transact(tx => joinHost(tx, { id: member.store.hostId, name: 'rack-1', role: 'owner', nowMs: 0 }))
    member.host.start()
    await until('a minute has passed', 60_000, () => nowMs >= 60_000)
    const [, statements] = /^strongroom_fleet_statements_total (\d+)$/m.exec(member.host.render()) ?? []
    expect(Number(statements)).toBeGreaterThan(0)
    expect(Number(statements) / (nowMs / 1_000)).toBeLessThan(0.6)
    await owner.close()
  })
})

function through(proxy: DatabaseProxy, url: string): string {
  return url.replace(/:\d+\//, `:${proxy.port}/`)
}
