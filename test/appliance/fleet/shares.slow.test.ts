// Two hosts' gateways, composed as the daemon does, with one key over HTTP: together they admit what one would.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createClockGuard } from '../../../scripts/rigs/clock-guard.ts'
import { startUpstream, type TestUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { newFleet, targetOf } from '../../../scripts/rigs/postgres/fleet.ts'
import { type DatabaseProxy, startProxy } from '../../../scripts/rigs/postgres/proxy.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { nobodyLogs } from '../../../scripts/rigs/transparency.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { composeShares } from '../../../src/appliance/fleet/shares.ts'
import { composeInference } from '../../../src/appliance/inference.ts'
import { ownStarter } from '../../../src/appliance/starter/client.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { parseConfig } from '../../../src/config/parse.ts'
import { hostById, joinHost } from '../../../src/fleet/hosts/hosts.query.ts'
import { openPostgres } from '../../../src/fleet/postgres.ts'
import { mintGatewayKey } from '../../../src/inference/keys/authenticate.ts'
import { Metering } from '../../../src/inference/metering/ledger.ts'
import { openStore } from '../../../src/store/db.ts'
import { insertGatewayKey } from '../../../src/store/directory/gateway-key.query.ts'
import { insertOrganization, listOrganizations } from '../../../src/store/directory/organization.query.ts'
import { openGate } from '../../../src/upgrade/gate.ts'

describe.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))(
  'gateways of two hosts',
  () => {
    let server: PostgresServer
    let upstream: TestUpstream
    beforeAll(async () => {
      server = await startPostgres()
      upstream = await startUpstream()
    })
    afterAll(async () => {
      await upstream.stop()
      await server[Symbol.asyncDispose]()
    })

    const dirs: string[] = []
    const newDir = () => {
      const dir = mkdtempSync(join(tmpdir(), 'strongroom-shares-'))
      dirs.push(dir)
      return dir
    }
    afterAll(() => {
      for (const dir of dirs) rmSync(dir, { recursive: true })
    })

    const requestsPerMinute = 30
    const minted = mintGatewayKey(systemRandom)

    /** A gateway over HTTP with the key; `database` null: in no fleet. */
    async function gateway(name: string, database: string | null, stateDir = newDir(), on = server) {
      await using undo = new AsyncDisposableStack()
      const store = openStore(join(stateDir, 'strongroom.db'))
      undo.defer(() => store.close())
      if (listOrganizations(store.directory.db).length === 0) {
        insertOrganization(store.directory.db, { id: 'o1', slug: 'acme', nowMs: 1 })
        insertGatewayKey(store.directory.db, {
          ...{ organizationId: 'o1', instanceId: null, requestsPerMinute, tokensPerMinute: null, concurrencyMax: null },
          ...{ expiresAtMs: null, nowMs: 1, prefix: minted.prefix, secretSha256: minted.secretSha256 },
        })
      }
      const verdict = parseConfig(
        ['[[inference.upstreams]]', 'name = "far"', `url = "${upstream.url}"`, 'models = ["m"]'].join('\n'),
        'test.toml',
      )
      if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
      const { config } = verdict
      const parts = { config, store, clock: systemClock, random: systemRandom, log: silentLogger }
      const postgres = database === null ? null : await openPostgres({ ...parts, target: targetOf(on, database) })
      if (postgres !== null) {
        undo.defer(() => postgres.close())
        if ((await hostById(postgres, store.hostId)) === null) {
          await postgres.transact(tx => joinHost(tx, { id: store.hostId, name, role: 'owner', nowMs: 1 }))
        }
      }
      const fleet = postgres === null || database === null ? null : { postgres, target: targetOf(on, database), name }
      const metering = new Metering({ ...parts, store: store.directory, cost: () => 0n })
      undo.defer(() => metering.stop())
      const shares = composeShares({ ...parts, fleet: { database: fleet }, link: { isMember: () => true } })
      const inference = await composeInference({
        ...nobodyLogs,
        ...parts,
        gate: openGate,
        starter: ownStarter,
        stateDir,
        tls: {
          current: () => ({ cert: '', key: '', notBeforeMs: 0, notAfterMs: 0, fingerprint: '', names: '' }),
          guestCertificate: () => '',
          onChange: () => {},
        },
        platform: 'snp',
        simulatedPlatform: () => Promise.reject(new Error('nobody asks here')),
        capacity: { memoryMib: 0, vcpus: 0, addresses: 0, asids: null, bootingMax: 0 },
        metering,
        clockGuard: createClockGuard(systemClock),
        shares,
        ...(postgres === null ? {} : { link: { isReached: () => postgres.view().isReachable } }),
      })
      inference.start()
      const listener = Bun.serve({
        hostname: '127.0.0.1',
        port: 0,
        development: false,
        fetch: request => inference.fetch(request, () => '127.0.0.1'),
      })
      // Before the database and the records are closed.
      undo.defer(() => inference.stop())
      undo.defer(() => listener.stop(true))
      const running = undo.move()
      const ask = (key = minted.key) =>
        fetch(`http://127.0.0.1:${listener.port}/v1/chat/completions`, {
          method: 'POST',
          headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
          body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Hello' }] }),
        })
      const metrics = () => inference.collectors.map(({ render }) => render()).join('') + (shares?.render() ?? '')
      return {
        ask,
        metrics,
        postgres,
        stop: () => running.disposeAsync(),
        [Symbol.asyncDispose]: () => running.disposeAsync(),
      }
    }

    // Goal: a client that spreads over two hosts gets its limit once, not twice; both hosts serve it, and each refusal
    // says when to come again.
    test('one key on two hosts', async () => {
      const database = await newFleet(server)
      const dir = newDir()
      await using a = await gateway('a', database, dir)
      await using b = await gateway('b', database)
      const before = upstream.seen.length
      let [admitted, refused, byB] = [0, 0, 0]
      for (let at = 0; at < 2 * requestsPerMinute; at += 1) {
        const host = at % 2 === 0 ? a : b
        const response = await host.ask()
        await response.text()
        if (response.status === 200) admitted += 1
        else {
          refused += 1
          expect(response.status).toBe(429)
          expect(Number(response.headers.get('retry-after'))).toBeWithin(1, 70)
          expect(response.headers.get('x-ratelimit-limit-requests')).toBe(String(requestsPerMinute))
        }
        if (response.status === 200 && host === b) byB += 1
      }
      expect(admitted).toBeWithin(Math.floor(0.6 * requestsPerMinute), requestsPerMinute + 1)
      expect([refused + admitted, byB > 0]).toEqual([2 * requestsPerMinute, true])
      expect(upstream.seen.length - before).toBe(admitted)
      const lines = [...a.metrics().split('\n'), ...b.metrics().split('\n')]
      const sumOf = (sample: string) =>
        lines.filter(line => line.startsWith(`${sample} `)).reduce((sum, line) => sum + Number(line.split(' ')[1]), 0)
      expect(sumOf('strongroom_gateway_shared_requests_total{outcome="admitted"}')).toBe(admitted)
      expect(sumOf('strongroom_gateway_shared_requests_total{outcome="refused"}')).toBeWithin(1, refused + 1)
      expect(sumOf('strongroom_gateway_shared_keys')).toBe(2)
      expect(sumOf('strongroom_gateway_shares_good_seconds')).toBeWithin(580, 601)
      expect(sumOf('strongroom_fleet_share_leases_total{outcome="answered"}')).toBeGreaterThan(1)
      // Another start of a host finds what its former self took still taken.
      await a.stop()
      await using again = await gateway('a', database, dir)
      const answers = await Promise.all(Array.from({ length: requestsPerMinute }, () => again.ask()))
      const statuses = answers.map(({ status }) => status)
      expect(admitted + statuses.filter(status => status === 200).length).toBeLessThanOrEqual(requestsPerMinute)
    }, 60_000)

    // Goal: without the database the share that is here goes on, and a host that has none refuses with Retry-After.
    test('the database away', async () => {
      const database = await newFleet(server)
      await using proxy: DatabaseProxy = await startProxy(targetOf(server, database).port)
      const through = database.replace(`:${targetOf(server, database).port}/`, `:${proxy.port}/`)
      await using a = await gateway('a', through)
      await using b = await gateway('b', through)
      expect((await a.ask()).status).toBe(200)
      proxy.set('hole')
      await until('the database does not answer', 60_000, () =>
        b.postgres?.query('SELECT 1').then(
          () => false,
          () => true,
        ),
      )
      expect((await a.ask()).status).toBe(200)
      const refused = await b.ask()
      expect([refused.status, refused.headers.has('retry-after')]).toEqual([429, true])
      await until('that is counted', 60_000, () =>
        /^strongroom_fleet_share_leases_total\{outcome="failed"\} [1-9]/m.test(b.metrics()),
      )
      expect(b.metrics()).toContain('strongroom_gateway_shares_good_seconds 0\n')
    }, 60_000)

    // Goal: a key that is not here is called wrong only while the directory can be read: another host may have made it.
    // Keys that are here, and keys that no host made, get the same answers as before.
    test('an unknown key while PostgreSQL is stopped', async () => {
      await using own = await startPostgres()
      await using host = await gateway('a', await newFleet(own), newDir(), own)
      await using alone = await gateway('alone', null)
      const unknown = mintGatewayKey(systemRandom).key
      const wrong = `gw_${minted.prefix}_${unknown.slice(-32)}`
      const answer = async (key: string, { ask } = host) => {
        const response = await ask(key)
        const { error } = (await response.json()) as { error?: { type: string; message: string } }
        return [response.status, response.headers.get('retry-after'), error?.message.includes('another host may')]
      }
      const [refused, unsure, served] = [
        [401, null, false],
        [503, '5', true],
        [200, null, undefined],
      ]
      expect(await answer(unknown)).toEqual(refused)
      expect(await answer(minted.key)).toEqual(served)
      await own.stop('kill')
      const isReached = () =>
        host.postgres?.query('SELECT 1').then(
          () => true,
          () => false,
        )
      await until('the host finds out', 60_000, async () => (await isReached()) === false)
      expect(await answer(unknown)).toEqual(unsure)
      expect(await answer(wrong)).toEqual(refused)
      expect(await answer('gw_short')).toEqual(refused)
      expect(await answer(minted.key)).toEqual(served)
      expect(await answer(unknown, alone)).toEqual(refused)
      await own.start()
      await until('the database is back', 60_000, isReached)
      expect(await answer(unknown)).toEqual(refused)
    }, 180_000)

    // Goal: a gateway in no fleet has all of the key's limits.
    test('a host by itself', async () => {
      await using alone = await gateway('alone', null)
      const answers = await Promise.all(Array.from({ length: requestsPerMinute + 1 }, () => alone.ask()))
      expect(answers.filter(({ status }) => status === 200)).toHaveLength(requestsPerMinute)
      expect(alone.metrics()).not.toContain('share')
    }, 60_000)
  },
)
