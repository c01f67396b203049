// Two hosts of a fleet over one PostgreSQL: service A keeps its promises whichever host is asked. Real PostgreSQL and
// HTTP; VMs are files.

import { expect, test } from 'bun:test'
import { asOwner } from '../../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { giveUpInstancesOf } from '../../../src/fleet/hosts/give-up.ts'
import { forgetHost } from '../../../src/fleet/hosts/hosts.query.ts'
import { type Fleet, openFleet } from '../../rigs/fleet/fleet.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')

let server: PostgresServer

startForTests(started => {
  server = started
})

async function twoHosts(): Promise<Fleet & AsyncDisposable> {
  const fleet = await openFleet(server)
  await fleet.host('east')
  await fleet.host('west')
  return fleet
}

// Goal: what one host acknowledged the other shows at once, and either deletes it.
test.skipIf(missing)('reads on the other host', async () => {
  await using fleet = await twoHosts()
  for (const [by, other] of fleet.pairs()) {
    const { name } = await by.created()
    expect((await other.shown(name)).name).toBe(name)
    expect((await other.listed()).map(found => found.name)).toContain(name)
    await until('ready', 60_000, async () => (await other.shown(name)).status === 'ready')
    expect((await other.send('DELETE', `/v1/instances/${name}`)).status).toBe(202)
    expect((await by.shown(name)).terminated_reason).toBe('deleted_via_api')
    await until('terminated', 60_000, async () => (await by.shown(name)).status === 'terminated')
  }
  expect(fleet.vms()).toEqual([])
})

// Goal: a key works on every host at once, and is worth nothing on any once it is revoked.
test.skipIf(missing)('keys', async () => {
  await using fleet = await twoHosts()
  const [east, west] = fleet.both()
  const key = await east.newKey('globex')
  expect((await west.send('GET', '/v1/instances', { key })).status).toBe(200)
  await east.revoke(key)
  for (const host of [west, east]) {
    expect((await host.send('GET', '/v1/instances', { key })).status).toBe(401)
    expect((await host.send('POST', '/v1/instances', { key })).status).toBe(401)
  }
  await west.suspend('globex')
  expect((await east.send('GET', '/v1/instances', { key: await east.newKey('globex') })).status).toBe(403)
})

// Goal: an answer that is given again makes no version of the directory, so that no host is woken for it.
test.skipIf(missing)('repeated answers', async () => {
  await using fleet = await twoHosts()
  const [east, west] = fleet.both()
  const version = () => fleet.sql('SELECT version FROM strongroom.fleet')
  const quiet = async () => {
    const isReported = () => [east, west].every(({ inside }) => inside.fleet.view().unreportedRows === 0)
    await until('all is reported', 60_000, isReported)
  }
  const { name } = (await east.create({ idempotencyKey: 'k' })).body.data
  const repeat = async (host: typeof east) => (await host.create({ idempotencyKey: 'k' })).body.data.name
  expect([await repeat(west), await repeat(east)]).toEqual([name, name])
  await until('ready', 60_000, async () => (await west.shown(name)).status === 'ready')
  await quiet()
  const created = await version()
  for (const host of [east, west, east]) expect(await repeat(host)).toBe(name)
  expect(await version()).toBe(created)
  const end = async (host: typeof east) => (await host.send('DELETE', `/v1/instances/${name}`)).status
  expect(await end(east)).toBe(202)
  await until('terminated', 60_000, async () => (await west.shown(name)).status === 'terminated')
  await quiet()
  const ended = await version()
  expect(ended).not.toBe(created)
  for (const host of [east, west]) expect(await end(host)).toBe(202)
  expect(await version()).toBe(ended)
})

// Goal: one key, one instance, whichever host gets the request, how many at once, and in whichever order.
test.skipIf(missing)('idempotency over both hosts', async () => {
  await using fleet = await twoHosts()
  const [east, west] = fleet.both()
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, index) => (index % 2 === 0 ? east : west).create({ idempotencyKey: 'once' })),
  )
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([202]))
  expect(new Set(answers.map(({ body }) => body.data.name)).size).toBe(1)
  expect(await west.listed()).toHaveLength(1)
  const other = await west.create({ idempotencyKey: 'once', publicKey: fleet.otherPublicKey })
  expect([other.status, other.body.error.code]).toEqual([409, 'conflict'])
})

// Goal: limits of an organization hold over all hosts, exactly, also for creates that come at once.
test.skipIf(missing)('limits over both hosts', async () => {
  await using fleet = await openFleet(server, { settings: { instancesPerOrganizationMax: 7 } })
  const [east, west] = [await fleet.host('east'), await fleet.host('west')]
  const answers = await Promise.all(Array.from({ length: 20 }, (_, i) => (i % 2 === 0 ? east : west).create()))
  expect(answers.filter(({ status }) => status === 202)).toHaveLength(7)
  expect(answers.filter(({ status }) => status === 409)).toHaveLength(13)
})

// Goal: instances are spread by free places, never beyond them, and a refusal says what no host was left for.
test.skipIf(missing)('placement', async () => {
  await using fleet = await openFleet(server)
  const [east, west] = [await fleet.host('east', { places: 6 }), await fleet.host('west', { places: 4 })]
  const answers = await Promise.all(Array.from({ length: 14 }, (_, i) => (i % 2 === 0 ? east : west).create()))
  expect(answers.filter(({ status }) => status === 202)).toHaveLength(10)
  const refused = answers.find(({ status }) => status !== 202)
  expect([refused?.status, refused?.retryAfter]).toEqual([503, '10'])
  expect(refused?.body.error.message).toContain('every host is full')
  await until('all are ready', 60_000, async () => (await east.listed()).every(({ status }) => status === 'ready'))
  expect([east.vms().length, west.vms().length]).toEqual([6, 4])
})

// Goal: without the database nothing is created and nothing is lost; what is known is read; it goes on by itself.
test.skipIf(missing)('the database away', async () => {
  await using fleet = await openFleet(server, { isCut: true })
  const [east, west] = [await fleet.host('east'), await fleet.host('west')]
  const { name } = await east.created()
  for (const host of [east, west]) {
    await until('ready', 60_000, async () => (await host.shown(name)).status === 'ready')
  }
  fleet.cut()
  const refused = await east.create({ idempotencyKey: 'later' })
  expect([refused.status, refused.retryAfter]).toEqual([503, '2'])
  expect(refused.body.error.message).toContain('Nothing was changed')
  for (const host of [east, west]) {
    expect((await host.shown(name)).status).toBe('ready')
    expect((await host.listed()).map(found => found.name)).toEqual([name])
    expect((await host.send('DELETE', `/v1/instances/${name}`)).status).toBe(503)
  }
  fleet.restore()
  await until('creates are taken again', 60_000, async () => {
    const made = await west.create({ idempotencyKey: 'later' })
    return made.status === 202
  })
  await until('the other host reads it', 60_000, async () => (await east.listed()).length === 2)
  expect((await east.create({ idempotencyKey: 'later' })).status).toBe(202)
  expect(await west.listed()).toHaveLength(2)
})

// Goal: what a host did while the database was away reaches the others once it is back, in order and once.
test.skipIf(missing)('progress without the database', async () => {
  await using fleet = await openFleet(server, { isCut: true })
  const booting = Promise.withResolvers<void>()
  const east = await fleet.host('east', { mayBoot: booting.promise })
  const west = await fleet.host('west', { places: 0 })
  const { name } = await west.created()
  await until('adopted', 60_000, () => east.vms().length === 1)
  fleet.cut()
  booting.resolve()
  await until('ready where it runs', 60_000, async () => (await east.shown(name)).status === 'ready')
  expect((await west.shown(name)).status).toBe('provisioning')
  fleet.restore()
  await until('ready everywhere', 60_000, async () => (await west.shown(name)).status === 'ready')
  expect(await fleet.sql("SELECT string_agg(status, ',' ORDER BY at_ms) FROM strongroom.instance_changes")).toBe(
    'provisioning,ready',
  )
})

// Goal: a delete that crosses the news that the instance is ready wins, on every host, and its time as ready counts.
test.skipIf(missing)('a delete that crosses a ready', async () => {
  await using fleet = await openFleet(server, { isCut: true })
  const booting = Promise.withResolvers<void>()
  const [east, west] = [
    await fleet.host('east', { mayBoot: booting.promise }),
    await fleet.host('west', { places: 0, isDirect: true }),
  ]
  const { name } = await west.created()
  await until('adopted', 60_000, () => east.vms().length === 1)
  fleet.cut()
  booting.resolve()
  await until('ready where it runs', 60_000, async () => (await east.shown(name)).status === 'ready')
  expect((await west.send('DELETE', `/v1/instances/${name}`)).status).toBe(202)
  fleet.restore()
  await until('terminated', 60_000, async () => (await west.shown(name)).status === 'terminated')
  expect(fleet.vms()).toEqual([])
  expect((await east.shown(name)).ready_at).toBe((await west.shown(name)).ready_at)
  expect((await west.shown(name)).ready_at).not.toBeNull()
  expect((await east.listed())[0]).toEqual((await west.listed())[0])
})

// Goal: a host that was away serves on from its copy, and has everything once it is back; one without a copy gets all.
test.skipIf(missing)('hosts that come and go', async () => {
  await using fleet = await twoHosts()
  const [east, west] = fleet.both()
  const first = await east.created()
  await west.stop()
  const second = await east.created()
  const back = await fleet.host('west')
  expect((await back.listed()).map(({ name }) => name).sort()).toEqual([first.name, second.name].sort())
  const third = await fleet.host('south')
  expect((await third.listed()).map(({ name }) => name).sort()).toEqual([first.name, second.name].sort())
  await fleet.sql('SELECT strongroom.trim_changes(0, 100000)')
  await fleet.sql(
    'DELETE FROM strongroom.changes; UPDATE strongroom.trimmed SET version = (SELECT version FROM strongroom.fleet)',
  )
  const made = await third.created()
  expect((await back.shown(made.name)).name).toBe(made.name)
})

// Goal: addresses of instances reach every host, and go with the instance.
test.skipIf(missing)('addresses', async () => {
  await using fleet = await twoHosts()
  const [east, west] = fleet.both()
  const { hostname } = await east.created()
  await until('known on both', 60_000, () => [east, west].every(host => host.addressOf(hostname) !== null))
  expect(east.addressOf(hostname)).toBe(west.addressOf(hostname))
  await west.send('DELETE', `/v1/instances/${hostname.split('.')[0]}`)
  expect(west.addressOf(hostname)).toBeNull()
  await until('gone on both', 60_000, () => [east, west].every(host => host.addressOf(hostname) === null))
})

// Goal: records are removed once for all hosts, and no name comes back before that.
test.skipIf(missing)('retention', async () => {
  await using fleet = await twoHosts()
  const [east, west] = fleet.both()
  const { name } = await east.created()
  await west.send('DELETE', `/v1/instances/${name}`)
  // The host that has it knows first.
  await until('terminated, as both know', 60_000, async () => {
    const shown = await Promise.all([east.shown(name), west.shown(name)])
    return shown.every(({ status }) => status === 'terminated')
  })
  expect(await west.removeExpired(29)).toEqual({ instances: 0, responses: 0 })
  expect(await west.removeExpired(40)).toEqual({ instances: 1, responses: 0 })
  expect(await east.removeExpired(40)).toEqual({ instances: 0, responses: 0 })
  expect(await east.listed()).toEqual([])
  expect(await fleet.sql('SELECT count(*) FROM strongroom.instances')).toBe('0')
})

// Goal: a host that is forgotten leaves nothing that cannot be ended: its failed instances end with their delete.
test.skipIf(missing)('instances of a forgotten host', async () => {
  await using fleet = await openFleet(server)
  const [east, west] = [await fleet.host('east', { places: 0, lostAfterMs: 10 ** 12 }), await fleet.host('west')]
  const { name } = await east.created()
  await until('ready', 60_000, async () => (await east.shown(name)).status === 'ready')
  await west.stop()
  const { hostId, database, postgres } = east.inside
  expect((await failure(postgres.transact(tx => forgetHost(tx, 'west', giveUpInstancesOf)))).code).toBe('conflict')
  await asOwner(database, async owner => {
    await owner.transactPlain(tx =>
      tx.query('UPDATE leases SET served_ms = served_ms - 60000 WHERE host_id <> $1', [hostId]),
    )
    // Hosts go by the operator's hand.
    expect((await failure(postgres.transact(tx => forgetHost(tx, 'west', giveUpInstancesOf)))).code).toBe(
      'fleet.forbidden',
    )
    await owner.transact(tx => forgetHost(tx, 'west', giveUpInstancesOf))
  })
  expect(await east.shown(name)).toMatchObject({ status: 'failed', failure_code: 'host_lost' })
  expect((await east.send('DELETE', `/v1/instances/${name}`)).status).toBe(202)
  expect((await east.shown(name)).status).toBe('terminated')
})
