// The end of builds of a fleet: an organization that is deleted, and records and files whose time is over, on
// every host, also one that was away. Real PostgreSQL, build VMs that play scripts.

import { expect, test } from 'bun:test'
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { buildsSettings, certainClock, source } from '../../scripts/rigs/build/builds-service.ts'
import { line, resultOf } from '../../scripts/rigs/build/engine.ts'
import { createClockGuard } from '../../scripts/rigs/clock-guard.ts'
import { hasPostgres, type PostgresServer } from '../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { until } from '../../scripts/rigs/until.ts'
import { silentLogger } from '../../src/base/log.ts'
import { BuildFiles } from '../../src/builds/files.ts'
import { BuildRetention } from '../../src/builds/retention.ts'
import { endAllOf } from '../../src/fleet/hosts/give-up.ts'
import { forgetHost } from '../../src/fleet/hosts/hosts.query.ts'
import { Removal, waitsFor } from '../../src/operator/removal.ts'
import { beginDeletion, remainsOf } from '../../src/store/directory/deletion.query.ts'
import { organizationById } from '../../src/store/directory/organization.query.ts'
import { type BuildHost, openBuildFleet } from '../rigs/fleet/build-fleet.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')
const full = () => ({ kind: 'full', lacking: 'memory', isEnding: false }) as const
const dayMs = 24 * 60 * 60 * 1000
const acme = 'org-acme'
const running = [line('init', 'begun'), { kind: 'wait', until: new Promise(() => {}) }] as const

let server: PostgresServer

startForTests(started => {
  server = started
})

/** As every daemon has it: it looks for deletions now and then. */
function removalOn({ store, builds }: BuildHost): AsyncDisposable {
  const removal = new Removal({
    ...{ store, clock: certainClock, log: silentLogger },
    deleteInstance: async () => {},
    cancelBuild: id => builds.service.cancelById(id),
    removeBuildFiles: id => builds.removeFilesOf(id),
  })
  const repeated = setInterval(() => removal.wake(acme), 200)
  return {
    [Symbol.asyncDispose]: async () => {
      clearInterval(repeated)
      await removal.stop()
    },
  }
}

function retentionOn({ store, directory, hostId }: BuildHost, days: number): BuildRetention {
  const clock = { ...certainClock, nowMs: () => certainClock.nowMs() + days * dayMs }
  return new BuildRetention({
    ...{ directory: store.directory, hostId, clock, log: silentLogger },
    files: new BuildFiles(join(directory, 'builds')),
    guard: createClockGuard(clock),
    settings: { ...buildsSettings, retentionMs: 7 * dayMs },
  })
}

/** Directories of builds. */
function leftOn({ directory }: BuildHost): string[] {
  return readdirSync(join(directory, 'builds')).filter(name => name !== 'incoming')
}

const isDeleted = ({ store }: BuildHost) => organizationById(store.directory.db, acme)?.deletedAtMs != null
const waitsOn = ({ store }: BuildHost) => waitsFor(remainsOf(store.directory.db, acme)).join()
const accept = ({ store }: BuildHost) =>
  store.directory.change(tx => beginDeletion(tx, { id: acme, nowMs: certainClock.nowMs() }))

// Goal: a deletion that one host accepts ends what all hosts have of the organization, running, waiting and done, and
// their files; it has ended only then. Another organization's stays.
test.skipIf(missing)('an organization with builds on two hosts', async () => {
  await using rig = await openBuildFleet(server)
  const east = await rig.host('east', { room: full })
  const west = await rig.host('west', { settings: { concurrentMax: 2 } })
  const done = await east.submit()
  await west.ended(done)
  const body = { nonce: '01', source_data: source.toString('base64') }
  const others = String((await east.send('POST', '/build', { key: rig.keys.globex, body })).json.job_id)
  await west.ended(others)
  const south = await rig.host('south', { settings: { concurrentMax: 1 } })
  await west.kill()
  const onSouth = await south.submit()
  await south.ended(onSouth)
  let offsetMs = 0
  const clock = { ...certainClock, nowMs: () => certainClock.nowMs() + offsetMs }
  const back = await rig.host('west', { clock })
  for (const host of [back, south]) host.world.script = running
  const [first, second] = [await back.submit(), await south.submit()]
  // A host whose lease is late passes a build on; and none is reserved a VM by a host that still sees one wait.
  const runs = (id: string) => [back, south].every(host => host.look(id)?.state === 'running')
  await until('both run, and both hosts know it', 60_000, () => [first, second].every(runs))
  const reserved = await back.send('POST', '/vm')
  expect(reserved.status).toBe(200)
  const waiting = await east.submit()
  await until('nothing else is left on east', 60_000, () => leftOn(east).join() === waiting)

  await accept(east)
  // The time of the reservation is over.
  offsetMs = buildsSettings.reservedMs
  back.builds.vms.wake()
  await using _east = removalOn(east)
  await using _west = removalOn(back)
  await using _south = removalOn(south)
  await until('every host knows that it is deleted', 60_000, () => [east, back, south].every(isDeleted))
  expect([east, back, south].map(leftOn)).toEqual([[], [others], []])
  await until('no VM is left', 60_000, () =>
    [east, back, south].every(({ world }) => world.vms().every(({ state }) => state === 'gone')),
  )
  // Its host reports that it has gone within a second.
  await until('no reservation is left', 60_000, async () => {
    return (await rig.sql('SELECT count(*) FROM strongroom.build_reservations')) === '0'
  })
  for (const host of [east, back, south]) {
    for (const id of [done, onSouth, first, second, waiting]) {
      expect(host.look(id)?.removedAtMs).not.toBeNull()
      expect((await host.send('GET', `/build/${id}`)).status).toBe(401)
    }
    const answer = await host.send('GET', `/build/${others}/result`, { key: rig.keys.globex })
    expect([answer.status, answer.text]).toEqual([200, resultOf(source).toString()])
  }
})

// Goal: a deletion waits for hosts that are away, those with results as those with sources, and says so; they remove
// what they have as soon as they are back.
test.skipIf(missing)('a host that is away while an organization is deleted', async () => {
  await using rig = await openBuildFleet(server)
  const east = await rig.host('east', { room: full })
  const west = await rig.host('west', { settings: { concurrentMax: 2 } })
  const north = await rig.host('north', { room: full })
  const done = await east.submit()
  await west.ended(done)
  await until('north knows it', 60_000, () => north.look(done)?.closedAtMs != null)
  west.world.script = running
  const runs = await east.submit()
  await until('it runs', 60_000, () => west.look(runs)?.state === 'running')
  await west.kill()
  const waiting = await east.submit()
  await until('north knows it', 60_000, () => north.look(waiting) !== null)
  await east.kill()

  await accept(north)
  await using _north = removalOn(north)
  await until('it has cancelled', 60_000, () => [runs, waiting].every(id => north.build(id).state === 'cancelled'))
  expect([isDeleted(north), waitsOn(north)]).toEqual([false, '2 builds,1 build with files'])
  expect(existsSync(join(west.directory, 'builds', done, 'result.tar.gz'))).toBe(true)

  const eastAgain = await rig.host('east')
  await using _east = removalOn(eastAgain)
  await until('east has removed it', 60_000, () => waitsOn(north) === '1 build,1 build with files')
  expect(isDeleted(north)).toBe(false)
  const westAgain = await rig.host('west')
  await using _west = removalOn(westAgain)
  const all = [eastAgain, westAgain, north]
  await until('every host knows that it is deleted', 60_000, () => all.every(isDeleted))
  expect(all.map(leftOn)).toEqual([[], [], []])
  await until('no VM is left', 60_000, () => westAgain.world.vms().every(({ state }) => state === 'gone'))
})

// Goal: nobody waits for the files of a host that was forgotten, which are out of reach.
test.skipIf(missing)('a forgotten host keeps no deletion waiting', async () => {
  await using rig = await openBuildFleet(server)
  const east = await rig.host('east', { room: full })
  const west = await rig.host('west')
  const done = await east.submit()
  await until('east knows its end', 60_000, () => east.look(done)?.closedAtMs != null)
  await west.kill()
  await accept(east)
  await using _east = removalOn(east)
  await until('it waits', 60_000, () => waitsOn(east) === '1 build with files')
  await rig.sql('UPDATE strongroom.leases SET epoch = 0')
  await until('west is forgotten', 60_000, () =>
    rig
      .asOwner(owner => owner.transact(tx => forgetHost(tx, 'west', endAllOf)))
      .then(
        () => true,
        () => false,
      ),
  )
  await until('it is deleted', 60_000, () => isDeleted(east))
})

// Goal: each host removes its own builds when their time is over, files and records, on all hosts; nobody removes those
// of a host that is away, but for one that was forgotten.
test.skipIf(missing)('builds whose time is over', async () => {
  await using rig = await openBuildFleet(server)
  const east = await rig.host('east', { settings: { concurrentMax: 1 } })
  const own = await east.submit()
  await east.ended(own)
  // Not while the row is deleted: that would bring it back.
  await east.reported()
  await east.kill()
  const west = await rig.host('west', { settings: { concurrentMax: 1 } })
  const theirs = await west.submit()
  await west.ended(theirs)
  // Without room: what is submitted to west below stays there, however late west is.
  const back = await rig.host('east', { room: full })
  await until('each knows both', 60_000, () => back.look(theirs)?.closedAtMs != null && west.look(own) !== null)
  const signal = new AbortController().signal

  expect(await retentionOn(back, 6).removeExpired(signal)).toBe(0)
  expect(await retentionOn(back, 8).removeExpired(signal)).toBe(1)
  expect([leftOn(back), leftOn(west)]).toEqual([[], [theirs]])
  await until('west knows', 60_000, () => west.look(own) === null)
  expect(back.look(theirs)?.id).toBe(theirs)
  expect((await back.send('GET', `/build/${theirs}/result`)).text).toBe(resultOf(source).toString())
  await west.kill()
  expect(await retentionOn(back, 8).removeExpired(signal)).toBe(0)
  const again = await rig.host('west')
  expect(await retentionOn(again, 8).removeExpired(signal)).toBe(1)
  await until('east knows', 60_000, () => back.look(theirs) === null)
  expect([leftOn(back), leftOn(again), await rig.sql('SELECT count(*) FROM strongroom.builds')]).toEqual([[], [], '0'])
  expect(await rig.sql('SELECT count(*) FROM strongroom.build_nonces')).toBe('0')

  const left = await again.submit()
  await again.ended(left)
  await until('east knows it', 60_000, () => back.look(left)?.closedAtMs != null)
  await again.kill()
  await rig.sql('UPDATE strongroom.leases SET epoch = 0')
  await until('west is forgotten', 60_000, () =>
    rig
      .asOwner(owner => owner.transact(tx => forgetHost(tx, 'west', endAllOf)))
      .then(
        () => true,
        () => false,
      ),
  )
  await until('east knows that', 60_000, () => back.look(left)?.removedAtMs != null)
  expect(await retentionOn(back, 8).removeExpired(signal)).toBe(1)
  expect(await rig.sql('SELECT count(*) FROM strongroom.builds')).toBe('0')
})

// Goal: a source whose build another host took, and which has ended there and gone from the records while this host was
// away, is found when it is back: nothing is left on its disk.
test.skipIf(missing)('a source of a build that has gone', async () => {
  await using rig = await openBuildFleet(server)
  const east = await rig.host('east', { room: full })
  const west = await rig.host('west', { room: full, settings: { concurrentMax: 1 }, bringMs: 500 })
  const closed = 'SELECT count(*) FROM strongroom.builds WHERE closed_at_ms IS NOT NULL'
  const id = await east.submit()
  await until('west knows it', 60_000, () => west.look(id) !== null)
  await east.kill()
  expect(leftOn(east)).toEqual([id])
  await west.builds.service.cancelById(id)
  const back = await rig.host('east')
  await back.ended(id)
  // Its own report of the end, if it came later, would bring the record back.
  await until('the directory knows the end', 60_000, async () => (await rig.sql(closed)) === '1')
  await back.kill()
  await rig.sql(`SET search_path = strongroom; BEGIN; SELECT begin_change(true); DELETE FROM builds; COMMIT`)
  const last = await rig.host('east')
  await until('it has gone', 60_000, () => last.look(id) === null && leftOn(last).length === 0)
})
