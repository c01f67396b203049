// A second attempt of an instance on another host of a fleet, and the end of what a lost host had. Real PostgreSQL and
// HTTP; VMs are files.

import { expect, test } from 'bun:test'
import { asOwner } from '../../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { giveUpInstancesOf } from '../../../src/fleet/hosts/give-up.ts'
import { giveUpSilent } from '../../../src/fleet/hosts/lease.query.ts'
import { setInstanceEgress } from '../../../src/store/directory/instance.query.ts'
import { type Fleet, type Host, openFleet } from '../../rigs/fleet/fleet.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')

let server: PostgresServer

startForTests(started => {
  server = started
})

const hostsOf = async (fleet: Fleet) =>
  await fleet.sql('SELECT host_id, attempt FROM strongroom.instances ORDER BY created_at_ms')

/** Longer than any test: no renewal gives another host up by itself, only `loses` does. */
const lostAfterMs = 10 ** 12

/** As if a host had been silent for a minute while others were served; another host gives it up. */
async function loses(by: Host, lost: Host): Promise<void> {
  const { postgres } = by.inside
  await until('given up', 60_000, async () => {
    const { hostId } = lost.inside
    await asOwner(by.inside.database, async owner => {
      await owner.transactPlain(async tx => {
        await tx.query('UPDATE clock SET served_ms = served_ms + 120000')
        await tx.query('UPDATE leases SET served_ms = served_ms + 120000 WHERE host_id <> $1', [hostId])
        // Its own setting holds as well.
        await tx.query('UPDATE leases SET lost_after_ms = 0 WHERE host_id = $1', [hostId])
      })
    })
    return (await giveUpSilent(postgres, { hostId, lostAfterMs: 60_000 }, giveUpInstancesOf)) !== null
  })
}

const left = ({ inside }: Host) => inside.store.directory.db.all('SELECT vm_id FROM left_vms')

// Goal: a host whose VMs do not come up costs its client nothing: same record, same answer to a repeated create;
// nothing is left of the first host's VM, and its egress is not the second's.
test.skipIf(missing)('a claim that fails', async () => {
  await using fleet = await openFleet(server)
  const booting = Promise.withResolvers<void>()
  const broken = await fleet.host('broken', { places: 100, isBroken: true, mayBoot: booting.promise })
  const good = await fleet.host('good', { places: 10 })
  const made = await good.create({ idempotencyKey: 'once' })
  expect(made.status).toBe(202)
  const { name, hostname, created_at } = made.body.data
  await until('its first VM is there', 60_000, () => broken.vms().length === 1)
  const [{ id } = { id: '' }] = broken.inside.store.directory.db.all<{ id: string }>('SELECT id FROM instances')
  const sample = { id, egressBytes: 7_000, egressObservedAtMs: Date.now(), egressBlockAppliedAtMs: null }
  broken.inside.store.directory.transact(tx => setInstanceEgress(tx, [sample]))
  booting.resolve()
  await until('ready', 60_000, async () => (await broken.shown(name)).status === 'ready')
  expect(await hostsOf(fleet)).toBe(`${good.inside.hostId}|2`)
  for (const host of [broken, good]) {
    expect(await host.shown(name)).toMatchObject({ name, hostname, created_at, failure_code: null })
    expect((await host.create({ idempotencyKey: 'once' })).body.data).toEqual(made.body.data)
    await until('the name leads to it', 60_000, () => host.addressOf(hostname) !== null)
  }
  expect(broken.addressOf(hostname)).toBe(good.addressOf(hostname))
  await until('the first VM is gone', 60_000, () => broken.vms().length === 0)
  await until('and forgotten', 60_000, () => left(broken).length === 0)
  expect(good.vms()).toHaveLength(1)
  expect(await fleet.sql('SELECT egress_bytes FROM strongroom.instances')).toBe('0')
  expect(await fleet.sql("SELECT string_agg(status, ',' ORDER BY at_ms) FROM strongroom.instance_changes")).toBe(
    'provisioning,ready',
  )
})

// Goal: it is tried once more and not again; without room elsewhere it fails as on a single host.
test.skipIf(missing).each([
  ['no other host has room', { places: 0 }, 1],
  ['the second host fails, too', { places: 10, isBroken: true }, 2],
])('%s', async (_, other, attempt) => {
  await using fleet = await openFleet(server)
  const broken = await fleet.host('broken', { places: 100, isBroken: true })
  const second = await fleet.host('second', other)
  const { name } = await second.created()
  await until('failed', 60_000, async () => (await second.shown(name)).status === 'failed')
  expect(await second.shown(name)).toMatchObject({ failure_code: 'claim_failed' })
  expect(await hostsOf(fleet)).toEndWith(`|${attempt}`)
  expect((await broken.send('DELETE', `/v1/instances/${name}`)).status).toBe(202)
  await until('terminated', 60_000, async () => (await broken.shown(name)).status === 'terminated')
  await until('no VM is left', 60_000, () => fleet.vms().length === 0)
})

// Goal: without the database nobody decides: nothing fails, and the other host gets it once the database is back.
test.skipIf(missing)('a claim that fails without the database', async () => {
  await using fleet = await openFleet(server, { isCut: true })
  const booting = Promise.withResolvers<void>()
  const broken = await fleet.host('broken', { places: 100, isBroken: true, mayBoot: booting.promise })
  const good = await fleet.host('good', { places: 10 })
  const { name } = await good.created()
  await until('its first VM is there', 60_000, () => broken.vms().length === 1)
  fleet.cut()
  booting.resolve()
  await until('the database was asked', 60_000, () => !broken.inside.postgres.view().isReachable)
  expect((await broken.shown(name)).status).toBe('provisioning')
  fleet.restore()
  await until('ready', 60_000, async () => (await good.shown(name)).status === 'ready')
  expect(await hostsOf(fleet)).toBe(`${good.inside.hostId}|2`)
})

// Goal: what a lost host was bringing up another host brings up. The lost one, which had made it ready meanwhile and
// could not say so, ends its VM when it is back; neither its news nor its address count any more.
test.skipIf(missing)('a host that is lost', async () => {
  await using fleet = await openFleet(server, { isCut: true })
  const booting = Promise.withResolvers<void>()
  const lost = await fleet.host('lost', { places: 100, mayBoot: booting.promise, lostAfterMs })
  const stays = await fleet.host('stays', { places: 10, isDirect: true, lostAfterMs })
  const { name, hostname } = await stays.created()
  await until('its first VM is there', 60_000, () => lost.vms().length === 1)
  fleet.cut()
  booting.resolve()
  await until('ready where nobody hears of it', 60_000, async () => (await lost.shown(name)).status === 'ready')
  await loses(stays, lost)
  await until('ready on the other', 60_000, async () => (await stays.shown(name)).status === 'ready')
  const address = stays.addressOf(hostname)
  fleet.restore()
  await until('its VM is ended', 60_000, () => lost.vms().length === 0)
  await until('both lead to the same', 60_000, () => lost.addressOf(hostname) === address)
  expect(address).not.toBeNull()
  expect(stays.addressOf(hostname)).toBe(address)
  expect(await hostsOf(fleet)).toBe(`${stays.inside.hostId}|2`)
  await until('the same record', 60_000, async () => {
    const [here, there] = [await lost.shown(name), await stays.shown(name)]
    return JSON.stringify(here) === JSON.stringify(there) && here.status === 'ready'
  })
  const log = 'SELECT status, at_ms FROM instance_changes ORDER BY at_ms'
  expect(lost.inside.store.directory.db.all(log)).toEqual(stays.inside.store.directory.db.all(log))
  expect(await fleet.sql('SELECT count(*) FROM strongroom.instance_changes')).toBe('2')
})

// Goal: a host that is gone holds no delete up: what was being deleted there ends, what is deleted there ends at once,
// and its VMs end with its return, so that nothing is left anywhere.
test.skipIf(missing)('deletes on a lost host', async () => {
  await using fleet = await openFleet(server, { isCut: true })
  const lost = await fleet.host('lost', { places: 2, lostAfterMs })
  const stays = await fleet.host('stays', { places: 0, isDirect: true, lostAfterMs })
  const names = [(await stays.created()).name, (await stays.created()).name] as const
  for (const name of names) {
    await until('ready', 60_000, async () => (await stays.shown(name)).status === 'ready')
  }
  fleet.cut()
  await until('cut off', 60_000, () => !lost.inside.postgres.view().isReachable)
  expect((await stays.send('DELETE', `/v1/instances/${names[0]}`)).status).toBe(202)
  expect((await stays.shown(names[0])).status).toBe('terminating')
  await loses(stays, lost)
  expect((await stays.shown(names[0])).status).toBe('terminated')
  expect(await stays.shown(names[1])).toMatchObject({ status: 'failed', failure_code: 'host_lost' })
  expect((await stays.send('DELETE', `/v1/instances/${names[1]}`)).status).toBe(202)
  expect((await stays.shown(names[1])).status).toBe('terminated')
  expect(lost.vms()).toHaveLength(2)
  fleet.restore()
  await until('its VMs end', 60_000, () => lost.vms().length === 0)
  expect((await lost.listed()).map(({ status }) => status)).toEqual(['terminated', 'terminated'])
})

// Goal: VMs whose records are gone by the time their host is back are ended all the same.
test.skipIf(missing)('a host that comes back after the records', async () => {
  await using fleet = await openFleet(server, { isCut: true })
  const lost = await fleet.host('lost', { places: 2, lostAfterMs })
  const stays = await fleet.host('stays', { places: 0, isDirect: true, lostAfterMs })
  const { name } = await stays.created()
  await until('ready', 60_000, async () => (await stays.shown(name)).status === 'ready')
  fleet.cut()
  await until('cut off', 60_000, () => !lost.inside.postgres.view().isReachable)
  await loses(stays, lost)
  expect((await stays.send('DELETE', `/v1/instances/${name}`)).status).toBe(202)
  expect(await stays.removeExpired(40)).toMatchObject({ instances: 1 })
  await fleet.sql(
    'DELETE FROM strongroom.changes; UPDATE strongroom.trimmed SET version = (SELECT version FROM strongroom.fleet)',
  )
  fleet.restore()
  await until('its VM ends', 60_000, () => lost.vms().length === 0)
  expect(await lost.listed()).toEqual([])
})

// Goal: an owner deletes by a host whose clock is two hours behind the one that made the instance; no time of it is
// before an earlier one.
test.skipIf(missing)('a delete by a host with another clock', async () => {
  await using fleet = await openFleet(server)
  const right = await fleet.host('right', { places: 100 })
  const behind = await fleet.host('behind', { places: 10, wrongMs: () => -7_200_000 })
  const { name } = await right.created()
  await until('both show it', 60_000, async () => (await behind.shown(name)).status === 'ready')
  expect((await behind.send('DELETE', `/v1/instances/${name}`)).status).toBe(202)
  await until('it has ended', 60_000, async () => (await right.shown(name)).status === 'terminated')
  const times = await fleet.sql(`SELECT at_ms FROM strongroom.instance_changes
    ORDER BY array_position(ARRAY['provisioning', 'ready', 'terminating', 'terminated'], status)`)
  const order = times.split('\n').map(Number)
  expect(order).toEqual(order.toSorted((a, b) => a - b))
})
