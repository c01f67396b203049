// Goal: builds are taken up in the order of their turns, no more than there is room for, each by one host.

import { expect, test } from 'bun:test'
import { buildsSettings } from '../../scripts/rigs/build/builds-service.ts'
import { silentLogger } from '../../src/base/log.ts'
import { BuildQueue, type BuildQueueDeps } from '../../src/builds/queue.ts'
import type { DirectoryHost, DirectoryTx } from '../../src/store/db.ts'
import { handBuild, moveBuild } from '../../src/store/directory/build.query.ts'
import { directBuilds } from '../rigs/build/direct-builds.ts'
import { withHosts } from '../rigs/fleet/with-hosts.ts'

type Changes = Partial<Pick<BuildQueueDeps, 'settings'>> & {
  readonly hosts?: Pick<DirectoryTx['hosts'], 'find'>
  readonly room?: () => 'admit' | 'queue'
  readonly hasWarm?: boolean
}

function open({ room = () => 'admit', hasWarm = false, hosts, ...changes }: Changes = {}) {
  const builds = directBuilds()
  const { store, clock } = builds
  const claimed: string[] = []
  const said: string[] = []
  const alarms: number[] = []
  const overdue: string[] = []
  const queue = new BuildQueue(
    {
      store: { ...store, directory: withHosts(store.directory, clock, hosts) },
      clock,
      log: silentLogger,
      vms: { room: () => ({ kind: room() }) as never, hasWarm: () => hasWarm },
      settings: { ...buildsSettings, concurrentMax: 3 },
      ...changes,
    },
    {
      say: (id, event) => void said.push(`${id} ${JSON.stringify(event)}`),
      onClaimed: id => void claimed.push(id),
      onOverdue: async ({ id }) => void overdue.push(id),
      alarm: ms => void alarms.push(ms),
      isStopping: () => false,
    },
  )
  return { ...builds, queue, claimed, said, alarms, overdue }
}

const host: DirectoryHost = { hasLease: true, isDraining: false, answersHosts: true, isLost: false }

test('goal: the organizations take turns, oldest first, until all VMs are in use', async () => {
  const { queue, add, claimed, get, clock, db } = open()
  const [first, , third, other] = [add(), add(), add(), add({ organizationId: 'globex' })]
  await queue.look()
  const second = claimed[2] ?? ''
  expect(claimed).toEqual([first, other, second].map(String))
  expect([get(second).organizationId, get(String(third)).state]).toEqual(['acme', 'queued'])
  expect(get(String(first))).toMatchObject({ state: 'starting', startedAtMs: clock.nowMs(), claims: 1, vmId: null })
  moveBuild(db, { id: String(other), from: 'starting', to: 'cancelled', finishedAtMs: 1 })
  await queue.look()
  expect(claimed[3]).toBe(String(third))
})

test('goal: reserved VMs count as used, and a host without room asks again in 2 s', async () => {
  let kind: 'admit' | 'queue' = 'queue'
  const { queue, add, reserve, claimed, alarms } = open({ room: () => kind })
  for (let n = 0; n < 3; n += 1) add()
  reserve('globex')
  await queue.look()
  expect([claimed.length, alarms]).toEqual([0, [2_000]])
  kind = 'admit'
  await queue.look()
  expect(claimed).toHaveLength(2)
})

test('goal: a warm VM is room', async () => {
  const { queue, add, claimed, alarms } = open({ room: () => 'queue', hasWarm: true })
  const id = add()
  await queue.look()
  expect([claimed, alarms]).toEqual([[id], []])
})

test('goal: after a build found no room, none is taken up for 2 s', async () => {
  const { queue, add, claimed, alarms, clock } = open()
  const id = add()
  queue.requeue(id)
  await queue.look()
  clock.advance(1_999)
  await queue.look()
  expect([claimed, alarms]).toEqual([[], [2_000, 1]])
  clock.advance(1)
  await queue.look()
  expect(claimed).toEqual([id])
})

test('goal: a build is said its place when that changes, not the first', async () => {
  const { queue, add, said, db } = open({ settings: { ...buildsSettings, concurrentMax: 0 } })
  const [a, b] = [add(), add()]
  await queue.look()
  expect(said).toEqual([])
  queue.requeue(a)
  await queue.look()
  expect(said).toEqual([`${a} {"type":"queued","position":0}`])
  moveBuild(db, { id: a, from: 'queued', to: 'cancelled', finishedAtMs: 1 })
  await queue.look()
  await queue.look()
  expect(said.slice(1)).toEqual([`${b} {"type":"queued","position":0}`])
})

test('goal: a build that has waited for a day is given up, not a millisecond earlier', async () => {
  const { queue, add, overdue, clock } = open({ settings: { ...buildsSettings, concurrentMax: 0 } })
  const id = add({ createdAtMs: clock.nowMs() })
  add({ hostId: 'other', createdAtMs: clock.nowMs() })
  await queue.look()
  clock.advance(24 * 60 * 60 * 1000 - 1)
  await queue.look()
  expect(overdue).toEqual([])
  clock.advance(1)
  await queue.look()
  expect(overdue).toEqual([id])
})

test('goal: the host that has the source comes first: another one takes the build after 250 ms, if it can reach it', async () => {
  const states = new Map([['other', host]])
  const hosts = { find: (id: string) => states.get(id) ?? (id === 'other' ? null : host) }
  const { queue, add, claimed, alarms, clock, get, store } = open({ hosts })
  const id = add({ hostId: 'other' })
  await queue.look()
  clock.advance(249)
  await queue.look()
  expect([claimed, alarms]).toEqual([[], [250, 1]])
  queue.avoid('other')
  clock.advance(1)
  await queue.look()
  expect(claimed).toEqual([])
  clock.advance(59_998)
  await queue.look()
  expect(claimed).toEqual([])
  clock.advance(1)
  await queue.look()
  expect(claimed).toEqual([id])
  expect(get(id)).toMatchObject({ state: 'starting', hostId: store.hostId, sourceHostId: 'other' })
})

test('goal: a host that is drained takes nothing, and a build of an unreachable host lets the next one pass', async () => {
  let own = { ...host, isDraining: true }
  const hosts = { find: (id: string) => (id === 'lost' ? null : own) }
  const { queue, add, claimed, clock, db, store } = open({ hosts })
  const theirs = add({ hostId: 'lost' })
  const ours = add({ organizationId: 'globex' })
  await queue.look()
  clock.advance(250)
  await queue.look()
  expect(claimed).toEqual([])
  own = host
  await queue.look()
  expect(claimed).toEqual([ours])
  // A build that waits at this host again has its source here.
  handBuild(db, { id: ours, from: 'starting', to: 'queued', hostId: store.hostId, startedAtMs: null })
  moveBuild(db, { id: theirs, from: 'queued', to: 'cancelled', finishedAtMs: 1 })
  await queue.look()
  expect(claimed).toEqual([ours, ours])
})
