// Goal: each build of this host is moved to its end by one step after the other, whatever its VM and its source do.

import { expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buildsSettings } from '../../scripts/rigs/build/builds-service.ts'
import { fakeBuildEngine } from '../../scripts/rigs/build/engine.ts'
import { Fault } from '../../src/base/fault.ts'
import { newUuid, systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import { EventLogs } from '../../src/builds/events/events.ts'
import { BuildFiles } from '../../src/builds/files.ts'
import { BuildReconciler, type BuildReconcilerDeps } from '../../src/builds/reconciler.ts'
import type { DirectoryHost, DirectoryTx } from '../../src/store/db.ts'
import { moveBuild } from '../../src/store/directory/build.query.ts'
import { directBuilds } from '../rigs/build/direct-builds.ts'
import { withHosts } from '../rigs/fleet/with-hosts.ts'

type Changes = Partial<BuildReconcilerDeps> & { readonly hosts?: Pick<DirectoryTx['hosts'], 'find'> }

function open({ hosts, ...changes }: Changes = {}) {
  const undo = new AsyncDisposableStack()
  const builds = undo.use(directBuilds())
  const { store, clock } = builds
  const directory = mkdtempSync(join(tmpdir(), 'srt-reconciler-'))
  undo.defer(() => rmSync(directory, { recursive: true }))
  const files = new BuildFiles(join(directory, 'builds'))
  const events = new EventLogs(id => files.path(id, 'events'), { settings: buildsSettings, nowMs: clock.nowMs })
  const world = fakeBuildEngine(directory)
  world.boots = false
  const gate: string[] = []
  const handover = { fetchSource: async () => {}, fetchEvents: async () => {}, startEventsAfterLoss: async () => {} }
  const reconciler = new BuildReconciler({
    store: { ...store, directory: withHosts(store.directory, clock, hosts) },
    handover,
    clock,
    random: systemRandom,
    log: silentLogger,
    events,
    files,
    engine: world.connect().engine,
    vms: { take: () => null, room: () => ({ kind: 'admit' }), hasWarm: () => false, wake: () => {} },
    vmSpec: { image: 'builder', vcpus: 1, memoryMib: 1024 },
    settings: { ...buildsSettings, concurrentMax: 2 },
    closingLines: () => [],
    trust: () => Promise.reject(new Error('no evidence comes')),
    gate: { open: () => {}, close: id => void gate.push(id) },
    makeRoom: () => true,
    beforeResult: () => {},
    ...changes,
  })
  undo.defer(() => reconciler.stop())
  /** With a directory for its files, as an accepted one has. */
  const add = async (more: Parameters<typeof builds.add>[0] = {}) => {
    const id = builds.add({ createdAtMs: clock.nowMs(), ...more })
    await files.adopt(id, null)
    return id
  }
  /** Lets workers run until the build is as `isSo` says. */
  const until = async (id: string, isSo: (build: ReturnType<typeof builds.get>) => boolean) => {
    for (let turn = 0; turn < 10_000 && !isSo(builds.get(id)); turn += 1) await Bun.sleep(1)
    return builds.get(id)
  }
  const hasVm = (id: string) => until(id, ({ vmId }) => vmId !== null && world.vms().some(vm => vm.id === vmId))
  const isClosed = (id: string) => until(id, ({ closedAtMs }) => closedAtMs !== null)
  const lastEvent = (id: string) => {
    const line = readFileSync(files.path(id, 'events'), 'utf8').trim().split('\n').at(-1) ?? '{}'
    return JSON.parse(line).data as unknown
  }
  const dispose = () => undo.disposeAsync()
  return { ...builds, add, world, gate, reconciler, until, hasVm, isClosed, lastEvent, [Symbol.asyncDispose]: dispose }
}

const away = () => Promise.reject(new Fault('fleet.unavailable', 'it is away'))
const host: DirectoryHost = { hasLease: true, isDraining: false, answersHosts: true, isLost: false }

test('goal: a build that is taken up gets a VM of its own, or the one that is warm', async () => {
  const warm = newUuid()
  await using rig = open({
    vms: { take: () => warm, room: () => ({ kind: 'admit' }), hasWarm: () => true, wake: () => {} },
  })
  const id = await rig.add()
  rig.reconciler.wake(id)
  expect(await rig.hasVm(id)).toMatchObject({ state: 'starting', vmId: warm, claims: 1 })
  await using cold = open()
  const other = await cold.add()
  cold.reconciler.wake(other)
  const { vmId } = await cold.hasVm(other)
  expect([vmId === null, cold.world.calls]).toEqual([false, [`define ${vmId}`]])
})

test('goal: a VM that finds no room gives its build back to the queue, and the next try begins anew', async () => {
  await using rig = open()
  const id = await rig.add()
  rig.reconciler.wake(id)
  const { vmId: first } = await rig.hasVm(id)
  rig.world.fail(first ?? '', 'capacity_exhausted', 'full')
  rig.reconciler.wake(id)
  expect(await rig.until(id, ({ state }) => state === 'queued')).toMatchObject({
    vmId: null,
    startedAtMs: null,
    claims: 2,
  })
  expect(rig.world.calls).toContain(`dismiss ${first}`)
  // Not before the time after which room is looked for again.
  await rig.clock.elapse(2_000)
  const { vmId: second, state } = await rig.hasVm(id)
  expect([state, second === null, second === first]).toEqual(['starting', false, false])
})

test('goal: a VM that fails otherwise ends its build, with its words, once', async () => {
  await using rig = open()
  const id = await rig.add()
  rig.reconciler.wake(id)
  const { vmId } = await rig.hasVm(id)
  rig.world.fail(vmId ?? '', 'boot_failed', 'no kernel')
  rig.reconciler.wake(id)
  const error = 'The build VM failed: no kernel'
  expect(await rig.isClosed(id)).toMatchObject({ state: 'failed', errorType: 'internal', error })
  expect(rig.lastEvent(id)).toEqual({ type: 'complete', result: { status: 'failed', error, error_type: 'internal' } })
  rig.reconciler.wake(id)
  await Bun.sleep(5)
  expect([rig.reconciler.counts(), rig.gate]).toEqual([{ ok: 0, failed: 1, cancelled: 0 }, [id]])
})

test('goal: a VM that is not up within an hour ends its build, not a millisecond earlier', async () => {
  await using rig = open()
  const id = await rig.add()
  rig.reconciler.wake(id)
  await rig.hasVm(id)
  rig.reconciler.wake(id)
  await Bun.sleep(5)
  rig.clock.advance(60 * 60 * 1000 - 1)
  rig.reconciler.wake(id)
  await Bun.sleep(20)
  expect(rig.get(id).state).toBe('starting')
  rig.clock.advance(1)
  rig.reconciler.wake(id)
  expect((await rig.isClosed(id)).error).toBe('The build VM did not start within an hour.')
})

test('goal: a cancelled build loses its VM and its network at once, and is closed with that as its last event', async () => {
  await using rig = open()
  const id = await rig.add()
  rig.reconciler.wake(id)
  const { vmId } = await rig.hasVm(id)
  const end = { finishedAtMs: 1, errorType: 'cancelled', error: 'The build was cancelled.' } as const
  moveBuild(rig.db, { id, from: 'starting', to: 'cancelled', ...end })
  rig.reconciler.wakeCancelled(rig.get(id))
  expect([rig.gate, rig.world.calls.at(-1)]).toEqual([[id], `dismiss ${vmId}`])
  await rig.isClosed(id)
  expect(rig.lastEvent(id)).toMatchObject({ type: 'complete', result: { error_type: 'cancelled' } })
  expect(rig.reconciler.counts()).toEqual({ ok: 0, failed: 0, cancelled: 1 })
})

test("goal: a source that cannot be had for 30 s goes back to its host's queue, or ends the build if that host is lost", async () => {
  for (const [state, expected] of [
    [host, { state: 'queued', hostId: 'other', vmId: null, claims: 2 }],
    [
      { ...host, isLost: true },
      { state: 'failed', errorType: 'internal', error: expect.stringContaining('was lost') },
    ],
  ] as const) {
    let other: DirectoryHost = host
    const hosts = { find: (id: string) => (id === 'other' ? other : host) }
    const handover = { fetchSource: away, fetchEvents: async () => {}, startEventsAfterLoss: async () => {} }
    await using rig = open({ hosts, handover })
    const id = await rig.add({ hostId: 'other' })
    rig.reconciler.wake(id)
    await rig.clock.sleepers(1)
    await rig.clock.elapse(250)
    expect(await rig.until(id, build => build.state === 'starting')).toMatchObject({ sourceHostId: 'other' })
    other = state
    await rig.clock.elapse(29_000)
    expect(rig.get(id).state).toBe('starting')
    await rig.clock.elapse(20_000)
    expect(await rig.until(id, build => build.state !== 'starting')).toMatchObject(expected)
  }
})

test('goal: a source that is damaged ends the build', async () => {
  const bring = () => Promise.reject(new Fault('internal', 'not as it was accepted'))
  await using rig = open({
    hosts: { find: () => host },
    handover: { fetchSource: bring, fetchEvents: async () => {}, startEventsAfterLoss: async () => {} },
  })
  const id = await rig.add({ hostId: 'other' })
  rig.reconciler.wake(id)
  await rig.clock.sleepers(1)
  await rig.clock.elapse(250)
  expect((await rig.isClosed(id)).error).toBe(
    'The source of the build could not be fetched from the host that accepted it.',
  )
})
