// Goal: what hosts sample of instances and keys makes no change of the directory, and is in every host's answer all the
// same: once for each instance, whatever is lost, late or restored. Real PostgreSQL and HTTP; VMs are files.

import { expect, test } from 'bun:test'
import { asOwner } from '../../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { present } from '../../../src/base/assert.ts'
import { dayMs } from '../../../src/base/time.ts'
import { giveUpInstancesOf } from '../../../src/fleet/hosts/give-up.ts'
import { forgetHost } from '../../../src/fleet/hosts/hosts.query.ts'
import { insertGatewayKey, touchGatewayKey } from '../../../src/store/directory/gateway-key.query.ts'
import { instanceById, setInstanceEgress } from '../../../src/store/directory/instance.query.ts'
import { findKey, touchKey } from '../../../src/store/directory/key.query.ts'
import { type Fleet, type Host, openFleet } from '../../rigs/fleet/fleet.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')
const often = { sumsEveryMs: 50 }
const beganMs = Date.now() - dayMs

let server: PostgresServer

startForTests(started => {
  server = started
})

type Usage = Record<'egress_bytes' | 'egress_observed_at' | 'egress_blocked', unknown>

async function usageOf(host: Host): Promise<Usage> {
  const { status, body } = await host.send('GET', '/v1/usage')
  if (status !== 200) throw new Error(`${status}: ${JSON.stringify(body)}`)
  return (body.data as unknown as { usage: Usage }).usage
}

const bytesOf = async (host: Host) => (await usageOf(host)).egress_bytes

/** As the sampler of a host. */
function sample(host: Host, id: string, bytes: number, blockedAtMs: number | null = null): void {
  host.inside.store.directory.transact(tx =>
    setInstanceEgress(tx, [
      { id, egressBytes: bytes, egressObservedAtMs: beganMs + bytes, egressBlockAppliedAtMs: blockedAtMs },
    ]),
  )
}

/** Two hosts, the second of which has an instance that is ready. */
async function withInstance(fleet: Fleet, more = {}) {
  const asked = await fleet.host('asked', { ...often, places: 0, isDirect: true })
  const owner = await fleet.host('owner', { ...often, lostAfterMs: 10 ** 12, ...more })
  const { name } = await asked.created()
  await until('ready', 60_000, async () => (await asked.shown(name)).status === 'ready')
  const [row] = owner.inside.store.directory.db.all<{ id: string; organization: string }>(
    'SELECT id, organization_id AS organization FROM instances',
  )
  await reported(asked, owner)
  return { asked, owner, name, ...present(row, 'the instance is here') }
}

const reported = (...hosts: readonly Host[]) =>
  until('all is reported', 60_000, () =>
    hosts.every(({ inside: { fleet, store } }) => {
      const [held] = store.directory.db.all<{ n: number }>('SELECT count(*) AS n FROM outbox_held')
      return fleet.view().unreportedRows === 0 && held?.n === 0
    }),
  )

const directoryOf = (fleet: Fleet) =>
  fleet.sql('SELECT f.version, (SELECT count(*) FROM strongroom.changes) FROM strongroom.fleet f')

// Goal: samples write no row of `changes` and take no version; the last one is in the answer of a host that was asked.
test.skipIf(missing)('samples of egress and of last use', async () => {
  await using fleet = await openFleet(server)
  const { asked, owner, id, organization } = await withInstance(fleet)
  const { db } = asked.inside.store.directory
  const unbound = { requestsPerMinute: null, tokensPerMinute: null, concurrencyMax: null, expiresAtMs: null }
  await owner.inside.store.directory.change(tx =>
    insertGatewayKey(tx, {
      ...{ ...unbound, prefix: 'gw000001', organizationId: organization, instanceId: null },
      ...{ secretSha256: new Uint8Array(32), nowMs: 1 },
    }),
  )
  const [{ prefix } = { prefix: '' }] = db.all<{ prefix: string }>('SELECT prefix FROM keys')
  const usedMs = Date.now() + 30_000
  await reported(asked, owner)
  const before = await directoryOf(fleet)
  for (let n = 1; n <= 40; n += 1) {
    sample(owner, id, n * 1_000_000)
    if (n % 10 !== 0) continue
    owner.inside.store.directory.transact(tx => {
      touchKey(tx, { prefix, nowMs: usedMs + n * 6_000 })
      touchGatewayKey(tx, { prefix: 'gw000001', nowMs: usedMs + n * 6_000 })
    })
    await reported(owner)
  }
  expect(await directoryOf(fleet)).toBe(before)
  expect(await usageOf(asked)).toMatchObject({
    egress_bytes: 40_000_000,
    egress_observed_at: new Date(beganMs + 40_000_000).toISOString(),
  })
  const lastUse = () => [
    findKey(db, prefix)?.lastUsedAtMs,
    db.all<{ at: number }>('SELECT last_used_at_ms AS at FROM gateway_keys')[0]?.at,
  ]
  expect(lastUse()).not.toContain(usedMs + 40 * 6_000)
  await asked.inside.store.directory.refreshSamples('key_uses', organization)
  await asked.inside.store.directory.refreshSamples('gateway_key_uses', organization)
  expect(lastUse()).toEqual([usedMs + 40 * 6_000, usedMs + 40 * 6_000])
  // Neither what was read nor another status makes a host's copy forget it.
  expect((await asked.send('DELETE', `/v1/instances/${(await asked.listed())[0]?.name}`)).status).toBe(202)
  expect(instanceById(db, id)?.egressBytes).toBe(40_000_000)
})

// Goal: without the database a host answers with the last samples that it read; a block, which is a decision, is there.
test.skipIf(missing)('without the database', async () => {
  await using fleet = await openFleet(server, { isCut: true })
  const { owner, id } = await withInstance(fleet)
  sample(owner, id, 5_000)
  await reported(owner)
  const away = await fleet.host('away', often)
  await until('it is here, though nobody asked', 60_000, () => {
    return instanceById(away.inside.store.directory.db, id)?.egressBytes === 5_000
  })
  expect(await bytesOf(away)).toBe(5_000)
  sample(owner, id, 6_000, beganMs)
  await until('the block is copied', 60_000, () => {
    const { db } = away.inside.store.directory
    return instanceById(db, id)?.egressBlockAppliedAtMs === beganMs
  })
  fleet.cut()
  await until('cut off', 60_000, () => !away.inside.postgres.view().isReachable)
  expect(await usageOf(away)).toMatchObject({ egress_bytes: 6_000, egress_blocked: true })
  sample(owner, id, 7_000)
  expect([await bytesOf(owner), await bytesOf(away)]).toEqual([7_000, 6_000])
  fleet.restore()
  await until('reachable', 60_000, async () => (await bytesOf(away)) === 7_000)
})

// Goal: a host that is lost for ever counts with its last sample, once, also on a host that comes later; retention
// removes the sample with its instance.
test.skipIf(missing)('a lost host', async () => {
  await using fleet = await openFleet(server)
  const { asked, owner, name, id } = await withInstance(fleet)
  sample(owner, id, 80)
  await reported(owner)
  await owner.stop()
  await asOwner(asked.inside.database, async by => {
    await by.transactPlain(tx =>
      tx.query('UPDATE leases SET served_ms = served_ms - 60000 WHERE host_id <> $1', [asked.inside.hostId]),
    )
    await by.transact(tx => forgetHost(tx, 'owner', giveUpInstancesOf))
  })
  expect((await asked.shown(name)).status).toBe('failed')
  const late = await fleet.host('late', often)
  await until('copied', 60_000, () => late.inside.fleet.waitsFor() === null)
  for (const host of [asked, late, asked, late]) expect(await bytesOf(host)).toBe(80)
  expect((await asked.send('DELETE', `/v1/instances/${name}`)).status).toBe(202)
  expect(await bytesOf(late)).toBe(0)
  const later = await fleet.host('later', often)
  await until('the record has it for ever', 60_000, async () => {
    await later.inside.store.directory.refreshSamples('instance_egress', null)
    return instanceById(later.inside.store.directory.db, id)?.egressBytes === 80
  })
  await reported(asked, late)
  await asked.removeExpired(40)
  expect(await fleet.sql('SELECT count(*) FROM strongroom.instance_egress')).toBe('0')
})

// Goal: a host that is restored from an older copy lowers nothing; a directory that is restored without samples gets
// those of the host's instances again, though nothing is sampled.
test.skipIf(missing)('older copies', async () => {
  await using fleet = await openFleet(server)
  const { asked, owner, id } = await withInstance(fleet)
  sample(owner, id, 80)
  await reported(owner)
  sample(owner, id, 30)
  await reported(owner)
  expect([await bytesOf(asked), await bytesOf(owner)]).toEqual([80, 80])
  sample(owner, id, 120)
  await reported(owner)
  expect(await bytesOf(asked)).toBe(120)
  await owner.stop()
  await fleet.sql(`SET search_path = strongroom; BEGIN; DELETE FROM instance_egress; SELECT begin_change(true);
    INSERT INTO organizations (id, slug, status, created_at_ms) VALUES ('other', 'other', 'active', 0);
    DELETE FROM changes; UPDATE trimmed SET version = (SELECT version FROM fleet); COMMIT`)
  const again = await fleet.host('owner', { ...often, isJoined: true })
  await until('reported again', 60_000, async () => {
    return (await fleet.sql('SELECT sum(bytes) FROM strongroom.instance_egress')) === '120'
  })
  expect(await bytesOf(again)).toBe(120)
})

// Goal: a host of an earlier schema, which writes samples into the shared rows, counts on hosts of this one. Nonsense
// that any host writes there keeps no host from reporting its own.
test.skipIf(missing)('beside a host of an earlier schema', async () => {
  await using fleet = await openFleet(server)
  const { asked, owner, id } = await withInstance(fleet)
  await fleet.sql(`SET search_path = strongroom; BEGIN; SELECT begin_change(true);
    UPDATE instances SET egress_bytes = 500, egress_observed_at_ms = ${beganMs} WHERE id = '${id}'; COMMIT`)
  await until('500', 60_000, async () => (await bytesOf(asked)) === 500)
  const [{ prefix } = { prefix: '' }] = owner.inside.store.directory.db.all<{ prefix: string }>(
    'SELECT prefix FROM keys',
  )
  const { hostId, postgres } = owner.inside
  // No clock of a host is ten minutes ahead.
  const [far, used] = [Date.now() + 600_000, 123]
  const uses = JSON.stringify([
    { prefix, at_ms: far },
    { prefix: 'unknown', at_ms: used },
    { prefix, at_ms: -1 },
  ])
  const egress = JSON.stringify([
    { id, bytes: 600, at_ms: far },
    { id: 'unknown', bytes: 1, at_ms: 1 },
    { id, bytes: -1, at_ms: 1 },
  ])
  await postgres.query('SELECT report_samples($1, $2::jsonb, $3::jsonb, $3::jsonb)', [hostId, egress, uses])
  const rows =
    'SELECT (SELECT count(*) FROM strongroom.instance_egress), (SELECT count(*) FROM strongroom.key_uses WHERE at_ms < 0 OR at_ms > (SELECT strongroom.now_ms()) + 300000)'
  // Nor does a host write samples of an instance that another one has.
  const forged = JSON.stringify([{ id, bytes: 9_999, at_ms: 1 }])
  await asked.inside.postgres.query("SELECT report_samples($1, $2::jsonb, '[]', '[]')", [asked.inside.hostId, forged])
  expect(await fleet.sql(rows)).toBe('1|0')
  sample(owner, id, 700)
  await reported(owner)
  expect(await bytesOf(asked)).toBe(700)
})

// Goal: a sample counts though the database's clock is wrong by hours, either way, and no later one follows it.
test.skipIf(missing).each([-1, 1])('a clock of the database that is wrong by %d hours', async hours => {
  await using fleet = await openFleet(server)
  const { asked, owner, id } = await withInstance(fleet)
  await fleet.sql(`CREATE OR REPLACE FUNCTION strongroom.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint + ${hours * 3_600_000} $$`)
  owner.inside.store.directory.transact(tx =>
    setInstanceEgress(tx, [{ id, egressBytes: 4_321, egressObservedAtMs: Date.now(), egressBlockAppliedAtMs: null }]),
  )
  await reported(owner)
  expect(await bytesOf(asked)).toBe(4_321)
})

// Goal: on a directory of an earlier schema an upgraded host reports everything else, and its samples once the
// directory is upgraded.
test.skipIf(missing)('a directory of an earlier schema', async () => {
  await using fleet = await openFleet(server)
  const { asked, owner, name, id } = await withInstance(fleet)
  const rename = (from: string, to: string) => fleet.sql(`ALTER FUNCTION strongroom.${from} RENAME TO ${to}`)
  await rename('report_samples', 'later')
  sample(owner, id, 900)
  expect((await asked.send('DELETE', `/v1/instances/${name}`)).status).toBe(202)
  await until('terminated', 60_000, async () => (await asked.shown(name)).status === 'terminated')
  expect(owner.inside.store.directory.db.all('SELECT * FROM outbox_held')).toHaveLength(1)
  await rename('later', 'report_samples')
  await reported(owner)
  expect(await fleet.sql('SELECT bytes FROM strongroom.instance_egress')).toBe('900')
})
