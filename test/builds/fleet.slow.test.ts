// Builds of a fleet over real PostgreSQL and HTTP, with build VMs that play scripts: queued once, run anywhere, served
// through every host.

import { afterAll, afterEach, beforeAll, describe, expect, test } from 'bun:test'
import { randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { parseEvents, source } from '../../scripts/rigs/build/builds-service.ts'
import { goodScript, line, resultOf } from '../../scripts/rigs/build/engine.ts'
import { hasPostgres, type PostgresServer } from '../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { until } from '../../scripts/rigs/until.ts'
import { present } from '../../src/base/assert.ts'
import { endAllOf } from '../../src/fleet/hosts/give-up.ts'
import { forgetHost } from '../../src/fleet/hosts/hosts.query.ts'
import { type BuildFleetRig, type BuildHost, type HostChanges, openBuildFleet } from '../rigs/fleet/build-fleet.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')
const full = () => ({ kind: 'full', lacking: 'memory', isEnding: false }) as const

let server: PostgresServer

startForTests(started => {
  server = started
})

/** `east` takes builds and has no room for VMs, `west` runs them, `north` does neither. */
async function threeHosts(rig: BuildFleetRig, changes: HostChanges = {}) {
  const east = await rig.host('east', { ...changes, room: full })
  const west = await rig.host('west', changes)
  const north = await rig.host('north', { ...changes, room: full })
  return { east, west, north }
}

type ThreeHosts = Awaited<ReturnType<typeof threeHosts>>

/** One fleet for tests that leave all hosts alive, or come last. */
function sharedHosts(open: () => Promise<BuildFleetRig>): () => { rig: BuildFleetRig; hosts: ThreeHosts } {
  let made: { rig: BuildFleetRig; hosts: ThreeHosts } | null = null
  beforeAll(async () => {
    const rig = await open()
    made = { rig, hosts: await threeHosts(rig) }
  }, 120_000)
  afterEach(() => {
    if (made !== null) made.hosts.west.world.script = goodScript
  })
  afterAll(() => made?.rig[Symbol.asyncDispose]())
  return () => present(made, 'the hosts run')
}

describe.skipIf(missing)('three hosts', () => {
  const shared = sharedHosts(() => openBuildFleet(server))

  // Goal: what one host took another one runs, and a third one answers for: the same record, events and bytes.
  test('submitted on one host, run on another, read through a third', async () => {
    const { hosts } = shared()
    const { east, west, north } = hosts
    const held = Promise.withResolvers<void>()
    west.world.script = [line('init', 'begun'), { kind: 'wait', until: held.promise }, ...goodScript]
    const id = await east.submit()
    await until('west runs it', 60_000, () => west.store.directory.db !== null && west.world.vms().length === 1)
    const followed = Promise.all([east, west, north].map(host => host.events(id)))
    await until('north shows that it runs', 60_000, async () => {
      return (await north.send('GET', `/build/${id}`)).json.state === 'running'
    })
    held.resolve()
    const [byEast, byWest, byNorth] = await followed
    expect(byEast?.at(-1)?.event).toBe('complete')
    expect(byEast?.[0]?.event).toBe('queued')
    expect(byEast?.map(event => event.id)).toEqual(byEast?.map((_, at) => at + 1))
    expect([byWest, byNorth]).toEqual([byEast, byEast])
    await west.ended(id)
    for (const host of [east, west, north]) {
      const answer = await host.send('GET', `/build/${id}/result`)
      expect([answer.status, answer.text]).toEqual([200, resultOf(source).toString()])
      const part = await host.send('GET', `/build/${id}/result`, { headers: { range: 'bytes=3-6' } })
      expect([part.status, part.text]).toEqual([206, resultOf(source).toString().slice(3, 7)])
      await until('the record is the same', 60_000, async () => {
        const { json } = await host.send('GET', `/build/${id}`)
        return json.state === 'ok' && json.vm_id === west.build(id).vmId && json.attested !== null
      })
      expect((await host.events(id, '?from=2')).map(event => event.id)[0]).toBe(3)
    }
    // Nothing of it is left where it was taken.
    await until('no files', 60_000, () => !existsSync(join(east.directory, 'builds', id)))
    expect(east.world.vms()).toEqual([])
  })

  // Goal: another organization learns nothing of it through any host; a nonce is used once over all hosts.
  test('tenants and nonces', async () => {
    const { rig, hosts } = shared()
    const { east, west, north } = hosts
    const nonce = 'ab'.repeat(16)
    const id = await east.submit({ nonce })
    await west.ended(id)
    for (const host of [east, west, north]) {
      for (const path of ['', '/events', '/result']) {
        expect((await host.send('GET', `/build/${id}${path}`, { key: rig.keys.globex })).status).toBe(404)
      }
      expect((await host.send('DELETE', `/build/${id}`, { key: rig.keys.globex })).status).toBe(404)
      const again = await host.send('POST', '/build', { body: { nonce, source_data: source.toString('base64') } })
      expect([again.status, again.json.error]).toMatchObject([409, { param: 'nonce' }])
    }
    // A host with a build that waits reserves no VM for the next test.
    await west.ended(await north.submit({ nonce: 'cd'.repeat(16) }))
  })

  // Goal: a reserved VM and its build are reached through every host, and stay where the VM is.
  test('reserved VMs through every host', async () => {
    const { rig, hosts } = shared()
    const { east, west, north } = hosts
    const { vm_id: vmId } = (await west.send('POST', '/vm')).json
    for (const host of [east, west, north]) {
      const knows = async () => (await host.send('GET', `/vm/${vmId}/health`)).status === 200
      await until(`${host.name} knows the VM`, 60_000, knows)
    }
    const other = await north.send('POST', `/vm/${vmId}/build`, {
      key: rig.keys.globex,
      body: { nonce: '01', source_data: source.toString('base64') },
    })
    expect(other.status).toBe(404)
    const id = await east.submit({}, `/vm/${vmId}/build`)
    expect((await west.ended(id)).vmId).toBe(String(vmId))
    for (const host of [east, north]) {
      await until('the record is there', 60_000, async () => {
        return (await host.send('GET', `/vm/${vmId}/build/${id}`)).json.state === 'ok'
      })
      expect((await host.send('GET', `/vm/${vmId}/build/${id}/result`)).text).toBe(resultOf(source).toString())
      const body = { nonce: '02', source_data: source.toString('base64') }
      expect((await host.send('POST', `/vm/${vmId}/build`, { body })).status).toBe(409)
    }
    expect(await rig.sql('SELECT count(*) FROM strongroom.build_reservations')).toBe('0')
  })

  // Goal: an operator reads the log of a build on whichever host.
  test('logs for the operator', async () => {
    const { hosts } = shared()
    const { east, west, north } = hosts
    const id = await east.submit()
    await west.ended(id)
    await until('north knows', 60_000, () => north.build(id).state === 'ok')
    const log = async (host: BuildHost) =>
      (
        await Array.fromAsync(
          host.builds.logOf(host.build(id), { follow: false, signal: new AbortController().signal }),
          bytes => Buffer.from(bytes).toString(),
        )
      ).join('')
    expect(await log(north)).toContain('complete: ok')
    expect(await log(north)).toBe(await log(west))
  })

  // Goal: cancelled through any host, queued or running, it ends once, its VM goes, and its events end with that.
  test('cancel through any host', async () => {
    const { hosts } = shared()
    const { east, west, north } = hosts
    west.world.script = [line('init', 'begun'), { kind: 'wait', until: new Promise(() => {}) }]
    const running = await east.submit()
    await until('it runs', 60_000, async () => (await north.send('GET', `/build/${running}`)).json.state === 'running')
    const followed = north.events(running)
    expect((await north.send('DELETE', `/build/${running}`)).json.state).toBe('cancelled')
    expect((await followed).at(-1)?.data.result).toMatchObject({ status: 'failed', error_type: 'cancelled' })
    await until('its VM is gone', 60_000, () => west.world.vms().every(({ state }) => state === 'gone'))
    await west.kill()
    const queued = await east.submit()
    expect((await north.send('DELETE', `/build/${queued}`)).json.state).toBe('cancelled')
    expect((await north.events(queued)).map(({ event }) => event)).toEqual(['queued', 'complete'])
    expect((await east.send('DELETE', `/build/${queued}`)).json.state).toBe('cancelled')
  })
})

describe.skipIf(missing)('a database that goes away', () => {
  const shared = sharedHosts(() => openBuildFleet(server, { isCut: true }))

  // Goal: a host that cannot know what others have acknowledged does not say that there is no such build.
  test('cancel of a build that is not known here', async () => {
    const { rig, hosts } = shared()
    const { east } = hosts
    const path = `/build/${randomUUID()}`
    expect((await east.send('DELETE', path)).status).toBe(404)
    rig.cut()
    expect((await east.send('DELETE', path)).status).toBe(503)
    rig.restore()
    await until('the database is back', 60_000, async () => (await east.send('DELETE', path)).status === 404)
  })

  // Goal: without the database builds that run go on, nothing ends twice or is lost, and all of it is there afterwards.
  test('the database away', async () => {
    const { rig, hosts } = shared()
    const { east, west, north } = hosts
    const held = Promise.withResolvers<void>()
    west.world.script = [line('init', 'begun'), { kind: 'wait', until: held.promise }, ...goodScript]
    const id = await east.submit()
    await until('it runs', 60_000, async () => (await north.send('GET', `/build/${id}`)).json.state === 'running')
    rig.cut()
    const refused = await east.send('POST', '/build', { body: { nonce: '77', source_data: source.toString('base64') } })
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '2'])
    expect((await east.send('DELETE', `/build/${id}`)).status).toBe(503)
    held.resolve()
    await until('the guest is done', 60_000, () => existsSync(join(west.directory, 'builds', id, 'result.tar.gz')))
    expect((await north.send('GET', `/build/${id}`)).json.state).toBe('running')
    rig.restore()
    expect((await west.ended(id)).state).toBe('ok')
    await until('north knows', 60_000, async () => (await north.send('GET', `/build/${id}`)).json.state === 'ok')
    await until('east reaches the database', 60_000, () => east.postgres.view().isReachable)
    await east.submit({ nonce: '77' })
  })
})

// Goal: whoever follows a build from the queue on goes on with it on the host that takes it up, without a gap. And
// organizations take turns over all hosts: one that fills a host's queue does not keep another one waiting.
test.skipIf(missing)('followed from the queue on, and fair turns over hosts', async () => {
  await using rig = await openBuildFleet(server)
  const [east, north] = [await rig.host('east', { room: full }), await rig.host('north', { room: full })]
  const many = [await east.submit(), await east.submit(), await east.submit()]
  const [id = ''] = many
  const body = { nonce: 'aa'.repeat(16), source_data: source.toString('base64') }
  const other = String((await north.send('POST', '/build', { key: rig.keys.globex, body })).json.job_id)
  await until('north knows it', 60_000, async () => (await north.send('GET', `/build/${id}`)).status === 200)
  const begun = await Promise.all([east, north].map(host => host.open(`/build/${id}/events`)))
  const west = await rig.host('west', { settings: { concurrentMax: 1 } })
  const texts = await Promise.all(begun.map(response => response.text()))
  for (const each of [...many, other]) await west.ended(each)
  const whole = (await west.events(id)).map(event => event.id)
  for (const text of texts) {
    expect(parseEvents(text).map(event => event.id)).toEqual(whole)
    expect(text).toContain('event: complete')
  }
  const started = (each: string) => west.build(each).startedAtMs ?? 0
  const order = [...many, other].toSorted((a, b) => started(a) - started(b))
  expect(order.indexOf(other)).toBe(1)
  expect(west.world.calls.filter(call => call.startsWith('order '))).toHaveLength(4)
})

// Goal: limits of an organization are counted over all hosts, exactly, also for builds that come at once.
test.skipIf(missing)('limits over hosts', async () => {
  await using rig = await openBuildFleet(server)
  const settings = { perOrganizationMax: 5, queueMax: 100, uploadsMax: 100 }
  const east = await rig.host('east', { room: full, settings })
  const west = await rig.host('west', { room: full, settings })
  const tries = Array.from({ length: 12 }, (_, at) => (at % 2 === 0 ? east : west).submit().catch(String))
  const answers = await Promise.all(tries)
  expect(answers.filter(answer => answer.startsWith('Error: 429 '))).toHaveLength(7)
  expect(await rig.sql('SELECT count(*) FROM strongroom.builds')).toBe('5')
  expect((await west.send('POST', '/vm')).status).toBe(429)
})

// Goal: a host that drains takes up no build and reserves no VM; what it has taken runs elsewhere.
test.skipIf(missing)('a host that drains', async () => {
  await using rig = await openBuildFleet(server)
  const east = await rig.host('east')
  await rig.sql(
    'SET search_path = strongroom; BEGIN; SELECT begin_change(true); UPDATE hosts SET draining_ms = 1; COMMIT',
  )
  expect((await east.send('POST', '/vm')).status).toBe(503)
  const id = await east.submit()
  const west = await rig.host('west')
  expect((await west.ended(id)).state).toBe('ok')
  expect(east.world.calls).toEqual([])
})

// Goal: a host that is killed with builds of its own and of others goes on with them once it is back. A build whose
// source cannot be fetched waits for the host that has it, and holds no place meanwhile.
test.skipIf(missing)('a restart in the middle, and a source whose host is away', async () => {
  await using rig = await openBuildFleet(server)
  const { east, west, north } = await threeHosts(rig)
  const held = Promise.withResolvers<void>()
  west.world.script = [line('init', 'begun'), { kind: 'wait', until: held.promise }, ...goodScript]
  const id = await east.submit()
  await until('it runs', 60_000, async () => (await north.send('GET', `/build/${id}`)).json.state === 'running')
  const followed = north.events(id)
  await until('its events have come', 60_000, async () => (await north.open(`/build/${id}/events`)).status === 200)
  await west.kill()
  expect((await north.send('GET', `/build/${id}`)).json.state).toBe('running')
  const away = await north.open(`/build/${id}/events`)
  expect([away.status, away.headers.get('retry-after')]).toEqual([503, '2'])
  const back = await rig.host('west')
  held.resolve()
  expect((await back.ended(id)).state).toBe('ok')
  const events = await followed
  expect(events.at(-1)?.event).toBe('complete')
  expect(events.map(event => event.id)).toEqual(events.map((_, at) => at + 1))

  back.world.script = goodScript
  await back.kill()
  const waits = await east.submit()
  await east.kill()
  await until('east has no lease', 60_000, async () => {
    return (await rig.sql("SELECT has_lease FROM strongroom.host_states WHERE name = 'east'")) === 'f'
  })
  const last = await rig.host('west')
  const own = await last.submit()
  expect((await last.ended(own)).state).toBe('ok')
  expect(last.build(waits).state).toBe('queued')
  await rig.host('east')
  expect((await last.ended(waits)).state).toBe('ok')
})

// Goal: a host that claimed a build and does not get its source gives it back, and keeps nothing of it.
test.skipIf(missing)('a source that does not come', async () => {
  await using rig = await openBuildFleet(server)
  const { east, west, north } = await threeHosts(rig, { bringMs: 500 })
  rig.cutPeers(true)
  const id = await east.submit()
  await until('west gives it back', 60_000, () => Number(east.build(id).claims) >= 2)
  expect(east.build(id)).toMatchObject({ state: 'queued', hostId: east.hostId, vmId: null })
  await until('west keeps nothing of it', 60_000, () => !existsSync(join(west.directory, 'builds', id)))
  expect(west.world.vms()).toEqual([])
  rig.cutPeers(false)
  await east.kill()
  const back = await rig.host('east', { room: () => ({ kind: 'admit' }) })
  expect((await back.ended(id)).state).toBe('ok')
  expect((await north.events(id)).map(event => event.id)).toEqual((await back.events(id)).map(event => event.id))
})

// Goal: what waits at a host that answers no others is left to that host, and keeps no other one from its turn.
test.skipIf(missing)('a host that answers none', async () => {
  await using rig = await openBuildFleet(server)
  const east = await rig.host('east', { room: full, answersNone: true })
  const first = await east.submit()
  const west = await rig.host('west')
  const second = await west.submit()
  expect((await west.ended(second)).state).toBe('ok')
  expect(west.build(first)).toMatchObject({ state: 'queued', claims: 0 })
})

// Goal: builds of a host that is lost fail once, also in its own eyes when it comes back; its VMs go.
test.skipIf(missing)('a host that is lost', async () => {
  await using rig = await openBuildFleet(server)
  const { east, west, north } = await threeHosts(rig, { lostAfterMs: 2_000 })
  west.world.script = [line('init', 'begun'), ...goodScript]
  const done = await east.submit()
  await west.ended(done)
  west.world.script = [line('init', 'begun'), { kind: 'wait', until: new Promise(() => {}) }]
  const id = await east.submit()
  await until('it runs', 60_000, async () => (await north.send('GET', `/build/${id}`)).json.state === 'running')
  await west.kill()
  await rig.sql('UPDATE strongroom.clock SET lost_ms_min = 0')
  await until('it has failed', 60_000, async () => (await north.send('GET', `/build/${id}`)).json.state === 'failed')
  await until('east knows', 60_000, async () => (await east.send('GET', `/build/${id}`)).json.error_type === 'internal')
  expect((await east.send('GET', `/build/${done}/result`)).status).toBe(503)
  const back = await rig.host('west')
  const build = await back.ended(id)
  expect([build.state, build.error]).toEqual(['failed', 'The host that had this build was lost; submit it again.'])
  await until('its VM is gone', 60_000, () => back.world.vms().every(({ state }) => state === 'gone'))
  expect((await north.events(id)).at(-1)?.event).toBe('complete')
  expect((await east.send('GET', `/build/${done}/result`)).status).toBe(200)
})

// Goal: a forgotten host leaves records that say that nothing is left, and a git build that waited there goes on.
test.skipIf(missing)('a host that is forgotten', async () => {
  await using rig = await openBuildFleet(server)
  const { east, west, north } = await threeHosts(rig)
  const done = await east.submit()
  await west.ended(done)
  await west.kill()
  const git = String(
    (await east.send('POST', '/build', { body: { nonce: '11', repo_url: 'https://git.example/a.git' } })).json.job_id,
  )
  const archive = await east.submit()
  await until('north knows them', 60_000, async () => (await north.send('GET', `/build/${archive}`)).status === 200)
  await east.kill()
  await rig.sql('UPDATE strongroom.leases SET epoch = 0')
  for (const name of ['west', 'east']) {
    await until(`${name} is forgotten`, 60_000, () =>
      rig
        .asOwner(owner => owner.transact(tx => forgetHost(tx, name, endAllOf)))
        .then(
          () => true,
          () => false,
        ),
    )
  }
  await until('north knows', 60_000, async () => north.build(archive).state === 'failed')
  const gone = await north.send('GET', `/build/${done}/result`)
  expect([gone.status, (await north.send('GET', `/build/${done}`)).json.result]).toMatchObject([404, { url: null }])
  expect((await north.send('GET', `/build/${archive}`)).json).toMatchObject({ state: 'failed', error_type: 'internal' })
  const south = await rig.host('south')
  const build = await south.ended(git)
  expect(build.state).toBe('ok')
  const events = await north.events(git)
  expect([events[0]?.event, events.at(-1)?.event]).toEqual(['host', 'complete'])
})

// Goal: a host hands a source over to nobody but the host whose build it is by then, and nothing else by these paths.
test.skipIf(missing)('who gets a source', async () => {
  await using rig = await openBuildFleet(server)
  const east = await rig.host('east', { room: full })
  const id = await east.submit()
  const ask = async (path: string, from: string) =>
    (await east.builds.answerHost(new Request(`https://host.invalid${path}`), from)).status
  for (const from of ['', 'another', east.hostId]) {
    for (const file of ['source', 'events']) expect(await ask(`/handover/${id}/${file}`, from)).not.toBe(200)
  }
  // As west would take it up.
  await rig.asOwner(owner =>
    owner.transact(tx =>
      tx.query(
        "UPDATE builds SET host_id = 'west', state = 'starting', claims = 1, source_host_id = $2 WHERE id = $1",
        [id, east.hostId],
      ),
    ),
  )
  await until('east knows that', 60_000, () => east.build(id).hostId === 'west')
  expect(await ask(`/handover/${id}/source`, 'west')).toBe(200)
  expect(await ask(`/handover/${id}/source`, 'another')).toBe(503)
  expect(await ask(`/handover/${id}/result`, 'west')).toBe(404)
  expect(await ask(`/handover/..%2f${id}/source`, 'west')).toBe(404)
  expect(await ask(`/handover/${randomUUID()}/source`, 'west')).toBe(404)
  expect(await ask(`/log/${id}`, 'west')).toBe(503)
})
