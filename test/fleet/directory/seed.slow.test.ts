// A single host's records become a fleet's directory, beside changes that go on, and the way back. Real PostgreSQL.

import { expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startFleetHost } from '../../../scripts/rigs/fleet/fleet-host.ts'
import { connect, newFleet } from '../../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { leaveDirectory, seedDirectory } from '../../../src/fleet/directory/seed.ts'
import { directoryAway } from '../../../src/fleet/failures.ts'
import { REPLICA_TABLES } from '../../../src/fleet/replica/tables.ts'
import { mintKey } from '../../../src/instances/http/auth.ts'
import { openStore, type Store } from '../../../src/store/db.ts'
import { storeAttestation } from '../../../src/store/directory/attestation.query.ts'
import { insertGatewayKey } from '../../../src/store/directory/gateway-key.query.ts'
import { insertIdempotency } from '../../../src/store/directory/idempotency.query.ts'
import { insertInstance, listInstances, moveInstance } from '../../../src/store/directory/instance.query.ts'
import { insertKey } from '../../../src/store/directory/key.query.ts'
import { insertOrganization, setOrganizationStatus } from '../../../src/store/directory/organization.query.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')
const nowMs = Date.parse('2026-11-26T12:00:00.000Z')
const noBound = { requestsPerMinute: null, tokensPerMinute: null, concurrencyMax: null, expiresAtMs: null }

let server: PostgresServer

startForTests(started => {
  server = started
})

function addInstance({ directory, hostId }: Store, name: string): void {
  directory.transact(tx => {
    insertInstance(tx, {
      ...{ id: name, hostId, organizationId: 'o', name, hostname: `${name}.acme.agents.example`, agent: 'a' },
      ...{ publicKey: 'k', inferenceMode: 'default_gateway', inferenceModel: 'tiny', vmId: `vm-${name}`, nowMs },
    })
    moveInstance(tx, { id: name, from: 'provisioning', to: 'ready', nowMs: nowMs + 1, readyAtMs: nowMs + 1 })
  })
}

function fill(store: Store): void {
  const { db } = store.directory
  insertOrganization(db, { id: 'o', slug: 'acme', nowMs })
  const { prefix, secretSha256 } = mintKey(systemRandom)
  insertKey(db, { prefix, organizationId: 'o', secretSha256, scope: 'write', nowMs })
  for (let index = 0; index < 30; index += 1) addInstance(store, `inst${String(index).padStart(4, '0')}`)
  storeAttestation(db, {
    instanceId: 'inst0000',
    nonce: 'n'.repeat(43),
    sshHostKey: 's',
    attestedAtMs: 1,
    document: '{}',
  })
  insertGatewayKey(db, {
    ...noBound,
    prefix: 'gwgwgwgw',
    organizationId: 'o',
    instanceId: 'inst0001',
    secretSha256,
    nowMs,
  })
  const stored = { responseStatus: 202, responseData: '{"name":"“inst0000”"}', nowMs }
  insertIdempotency(db, { organizationId: 'o', key: 'once', bodySha256: secretSha256, ...stored })
}

async function singleHost() {
  const directory = mkdtempSync(join(tmpdir(), 'srt-seed-'))
  mkdirSync(join(directory, 'vms'))
  const database = await newFleet(server)
  const store = openStore(join(directory, 'strongroom.db'))
  fill(store)
  const postgres = await connect(server, database)
  const deps = { directory: store.directory, hostId: store.hostId, postgres }
  const close = async () => {
    await postgres.close()
    rmSync(directory, { recursive: true, force: true })
  }
  return { directory, database, store, postgres, deps, [Symbol.asyncDispose]: close }
}

// Goal: every row arrives as it is; changes of a daemon that goes on arrive once it starts in the fleet; nothing ends.
test.skipIf(missing)('records become the directory', async () => {
  await using host = await singleHost()
  expect(await seedDirectory(host.deps)).toBe(95)
  insertOrganization(host.store.directory.db, { id: 'late', slug: 'late', nowMs })
  addInstance(host.store, 'late0000')
  expect(await seedDirectory(host.deps)).toBeGreaterThan(95)
  host.store.close()
  await using started = await startFleetHost({ directory: host.directory, database: host.database, name: 'first' })
  const slugs = async () =>
    (await host.postgres.query<{ slug: string }>('SELECT slug FROM organizations ORDER BY 1')).map(({ slug }) => slug)
  await until('all of it is there', 60_000, async () => String(await slugs()) === 'acme,late')
  await until('nothing is left to report', 60_000, () => started.fleet.view().unreportedRows === 0)
  const rows = listInstances(started.store.directory.db, 'o')
  expect(rows).toHaveLength(31)
  expect(rows.find(({ id }) => id === 'late0000')?.vmId).toBe('vm-late0000')
  const [copied] = await host.postgres.query<{ count: number }>('SELECT count(*) AS count FROM instances')
  expect(copied?.count).toBe(31)
})

// Goal: samples of egress that no report is due for, taken beside the copy, are no difference: neither on the way in
// nor on the way back.
test.skipIf(missing)('a sample within the minute is no difference', async () => {
  await using host = await singleHost()
  const sample = (atMs: number) => host.store.directory.db.run(`UPDATE instances SET egress_observed_at_ms = ${atMs}`)
  const minuteMs = Math.floor(nowMs / 60_000) * 60_000
  sample(minuteMs)
  let [parts, sampledMs] = [0, minuteMs]
  const onProgress = () => {
    parts += 1
    sampledMs = minuteMs + parts * 1_000
    sample(sampledMs)
  }
  expect(await seedDirectory({ ...host.deps, onProgress })).toBe(95)
  expect(parts).toBeGreaterThan(5)
  const there = await host.postgres.query<{ at: string }>('SELECT DISTINCT egress_observed_at_ms AS at FROM instances')
  expect(there.map(({ at }) => Number(at))).not.toEqual([sampledMs])
  expect(await leaveDirectory(host.deps)).toBe(95)
})

// Goal: a host leaves while its VMs run: a sample that the stopped daemon had not reported is reported, and one that
// the directory does not have is no difference. Later samples of the directory come back.
test.skipIf(missing)('leaves with running VMs', async () => {
  await using host = await singleHost()
  const { db } = host.store.directory
  await seedDirectory(host.deps)
  db.run('UPDATE replica SET is_seeding = 0')
  await host.postgres.transact(tx =>
    tx.query("INSERT INTO hosts (id, name, database_role, joined_ms) VALUES ($1, 'only', current_user, 0)", [
      host.store.hostId,
    ]),
  )
  const silently = (sql: string) => {
    db.run('UPDATE replica SET is_applying = 1')
    db.run(sql)
    db.run('UPDATE replica SET is_applying = 0')
  }
  silently(`UPDATE instances SET egress_observed_at_ms = ${nowMs + 180_000} WHERE id = 'inst0002'`)
  silently("UPDATE instances SET egress_bytes = 5 WHERE id = 'inst0003'")
  db.run(`UPDATE instances SET egress_bytes = 7, egress_observed_at_ms = ${nowMs} WHERE id = 'inst0004'`)
  await host.postgres.query("INSERT INTO instance_egress SELECT id, host_id, 9, 9 FROM instances WHERE id = 'inst0005'")
  expect(await leaveDirectory(host.deps)).toBe(95)
  const reported = "SELECT bytes FROM instance_egress WHERE instance_id = 'inst0004'"
  expect((await host.postgres.query<{ bytes: number }>(reported)).map(({ bytes }) => Number(bytes))).toEqual([7])
  expect(
    db
      .all<{ bytes: number }>('SELECT egress_bytes AS bytes FROM instances WHERE egress_bytes > 0 ORDER BY id')
      .map(({ bytes }) => bytes),
  ).toEqual([5, 7, 9])
  expect(db.all('SELECT * FROM replica')).toEqual([])
  host.store.close()
})

/** The parts of a copy that is cut after some transactions. */
function counted({ deps, postgres }: Awaited<ReturnType<typeof singleHost>>, countMax: number) {
  const made = { count: 0 }
  const transact: typeof postgres.transact = (work, options) => {
    made.count += 1
    if (made.count > countMax) throw directoryAway(new Error('cut'))
    return postgres.transact(work, options)
  }
  return { made, deps: { ...deps, postgres: { ...postgres, transact } } }
}

// Goal: a daemon that starts in the fleet after an interrupted copy removes no record that the directory lacks, and
// says what to do.
test.skipIf(missing)('a start after an interruption removes nothing', async () => {
  await using host = await singleHost()
  expect(await failure(seedDirectory(counted(host, 4).deps))).toMatchObject({ code: 'fleet.unavailable' })
  host.store.close()
  const lines: string[] = []
  const log = (line: string) => void lines.push(line)
  await using started = await startFleetHost({ directory: host.directory, database: host.database, name: 'first', log })
  const advice = () => lines.filter(line => line.includes('fleet init was interrupted: run it again')).length
  await until('it says so again', 60_000, () => advice() > 2)
  expect(listInstances(started.store.directory.db, 'o')).toHaveLength(30)
})

// Goal: an interrupted copy goes on where it was, and what changed meanwhile, in parts that were sent already too, is
// there once the daemon has started in the fleet.
test.skipIf(missing)('goes on after an interruption', async () => {
  await using host = await singleHost()
  const { postgres, store } = host
  // Long past its time, so that a host may remove it.
  store.directory.db.run("UPDATE instances SET status = 'terminated', terminated_at_ms = 1 WHERE id = 'inst0005'")
  const first = counted(host, 4)
  expect(await failure(seedDirectory(first.deps))).toMatchObject({ code: 'fleet.unavailable' })
  setOrganizationStatus(store.directory.db, { slug: 'acme', status: 'suspended' })
  addInstance(store, 'late0000')
  store.directory.db.run("DELETE FROM instances WHERE id = 'inst0005'")
  const second = counted(host, 100)
  expect(await seedDirectory(second.deps)).toBeGreaterThan(95)
  // The last table that was written is looked at once more.
  expect(second.made.count).toBe(REPLICA_TABLES.length - 3)
  store.close()
  await using started = await startFleetHost({ directory: host.directory, database: host.database, name: 'first' })
  await until('nothing is left to report', 60_000, () => started.fleet.view().unreportedRows === 0)
  expect(await postgres.query('SELECT status FROM organizations')).toEqual([{ status: 'suspended' }])
  const names = await postgres.query<{ name: string }>('SELECT name FROM instances ORDER BY 1')
  expect(names.map(({ name }) => name)).toEqual(
    listInstances(started.store.directory.db, 'o')
      .map(({ name }) => name)
      .toSorted(),
  )
  expect(names).toHaveLength(30)
  const changes = await postgres.query('SELECT instance_id, status, at_ms FROM instance_changes ORDER BY 1, 2')
  expect(changes).toEqual(
    started.store.directory.db.all('SELECT instance_id, status, at_ms FROM instance_changes ORDER BY 1, 2'),
  )
})

// Goal: a directory that has something takes nothing, and the host stays what it was.
test.skipIf(missing)('a directory of others', async () => {
  await using host = await singleHost()
  await host.postgres.transact(tx =>
    tx.query("INSERT INTO organizations (id, slug, status, created_at_ms) VALUES ('x', 'x', 'active', 1)"),
  )
  expect(await failure(seedDirectory(host.deps))).toMatchObject({ code: 'conflict' })
  expect(host.store.directory.db.all('SELECT * FROM replica')).toEqual([])
  insertOrganization(host.store.directory.db, { id: 'p', slug: 'p', nowMs })
  expect(host.store.directory.db.all('SELECT * FROM outbox')).toEqual([])
  expect(await failure(leaveDirectory(host.deps))).toMatchObject({ code: 'conflict' })
  host.store.close()
})

// Goal: the last host has its records back, the same row by row; a row that differs keeps it in the fleet.
test.skipIf(missing)('the way back', async () => {
  await using host = await singleHost()
  await seedDirectory(host.deps)
  await host.postgres.transact(tx => tx.query("UPDATE organizations SET budget_tokens = 7 WHERE id = 'o'"))
  expect(await failure(leaveDirectory(host.deps))).toMatchObject({
    code: 'conflict',
    message: expect.stringMatching(/organizations .* differs/),
  })
  await host.postgres.transact(tx => tx.query("UPDATE organizations SET budget_tokens = NULL WHERE id = 'o'"))
  expect(await leaveDirectory(host.deps)).toBe(95)
  insertOrganization(host.store.directory.db, { id: 'own', slug: 'own', nowMs })
  expect(host.store.directory.db.all('SELECT * FROM outbox')).toEqual([])
  host.store.close()
})
