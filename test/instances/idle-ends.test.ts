// Goal: a ready instance whose VM says that its idle time is over ends with that reason; no other does, and a VM that
// does not answer is left alone. A snapshot by the owner's schedule is taken when the VM wants it.

import { expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import { startAppliance } from '../../scripts/rigs/instances/instances-service.ts'
import { Fault } from '../../src/base/fault.ts'
import { silentLogger } from '../../src/base/log.ts'
import type { IdlePoll } from '../../src/contract/vm/agent.ts'
import type { CertificateRequest } from '../../src/contract/vm/agent-responses.ts'
import { createIdle } from '../../src/guest/orders/idle.ts'
import { guestPaths } from '../../src/guest/paths.ts'
import { endIdleOnes, type IdleDeps } from '../../src/instances/idle-ends.ts'
import { moveInstance } from '../../src/store/directory/instance.query.ts'
import type { Instance } from '../../src/store/directory/instance.table.ts'

test('goal: only those that say so', async () => {
  await using appliance = await startAppliance()
  const { store } = appliance
  const [idle, busy, silent] = [await appliance.create(), await appliance.create(), await appliance.create()]
  // It is still being provisioned.
  const fourth = await appliance.create()
  for (const { id } of [idle, busy, silent]) {
    moveInstance(store.db, { id, from: 'provisioning', to: 'ready', nowMs: 1, readyAtMs: 1 })
  }
  const asked = new Map<string, IdlePoll>()
  const [ended, scheduled, used]: [string[], string[], string[]] = [[], [], []]
  const published: string[][] = []
  const deps = {
    directory: store.directory,
    hostId: store.hostId,
    clock: appliance.clock,
    log: silentLogger,
    minutesOf: (slug: string) => (slug === 'acme' ? 30 : null),
    pollIdle: async (vmId: string, poll: IdlePoll) => {
      asked.set(vmId, poll)
      if (vmId === silent.vmId) throw new Fault('channel.refused', 'bad_request: not a request of this wire')
      if (vmId !== busy.vmId) return { isIdle: true }
      const web = { name: 'web', csr: 'AAAA', chainSha256: null, egressBytes: 1 }
      return { isIdle: false, isSnapshotDue: true as const, published: [web] }
    },
    isSnapshotLost: (instance: Instance) => instance.id === busy.id,
    takeScheduled: async (instance: Instance) => void scheduled.push(instance.id),
    published: {
      note: ({ hostname }: Instance, asked: readonly CertificateRequest[]) => {
        published.push([hostname, ...asked.map(({ name }) => name)])
      },
      noteLiving: (hostnames: ReadonlySet<string>) => void published.push([...hostnames].toSorted()),
    },
    noteUsed: (instance: Instance) => void used.push(instance.id),
    beforeEnd: async () => true,
    endIdle: async (instance: Instance) => void ended.push(instance.id),
  } satisfies IdleDeps
  await endIdleOnes(deps, new Set())
  expect([ended, scheduled, used]).toEqual([[idle.id], [busy.id], [busy.id]])
  expect(Object.fromEntries(asked)).toEqual({
    [String(idle.vmId)]: { minutes: 30 },
    [String(busy.vmId)]: { minutes: 30, isSnapshotLost: true },
    [String(silent.vmId)]: { minutes: 30 },
  })
  // A VM that publishes nothing is noted too, so that its port closes; one that is silent keeps its own open.
  expect(published[0]).toEqual([idle, busy, silent, fourth].map(({ hostname }) => hostname).toSorted())
  expect(published).toContainEqual([busy.hostname, 'web'])
  expect(published).toContainEqual([idle.hostname])
  expect(published.slice(1).flat()).not.toContain(silent.hostname)
})

test('goal: a snapshot comes first; who comes back meanwhile keeps the instance, and a snapshot that has to wait delays the end', async () => {
  await using appliance = await startAppliance()
  const { store } = appliance
  const instance = await appliance.create()
  moveInstance(store.db, { id: instance.id, from: 'provisioning', to: 'ready', nowMs: 1, readyAtMs: 1 })
  const steps: string[] = []
  let [isIdle, mayEnd, isBack] = [true, false, false]
  const deps: IdleDeps = {
    directory: store.directory,
    hostId: store.hostId,
    clock: appliance.clock,
    log: silentLogger,
    minutesOf: () => 30,
    pollIdle: async () => ({ isIdle }),
    isSnapshotLost: () => false,
    published: { note: () => {}, noteLiving: () => {} },
    noteUsed: () => {},
    takeScheduled: async () => {},
    beforeEnd: async () => {
      steps.push('snapshot')
      isIdle = !isBack
      return mayEnd
    },
    endIdle: async () => void steps.push('end'),
  }
  await endIdleOnes(deps, new Set())
  expect(steps).toEqual(['snapshot'])
  ;[mayEnd, isBack] = [true, true]
  await endIdleOnes(deps, new Set())
  expect(steps).toEqual(['snapshot', 'snapshot'])
  ;[isIdle, isBack] = [true, false]
  await endIdleOnes(deps, new Set([instance.id]))
  expect(steps).toEqual(['snapshot', 'snapshot'])
  await endIdleOnes(deps, new Set())
  expect(steps).toEqual(['snapshot', 'snapshot', 'snapshot', 'end'])
})

const requestRow = '   1: 0100007F:480A 0100007F:C001 06 0 0 0 0\n'

// Goal: host and guest together end an instance whose snapshot takes long, unless it is used meanwhile.
test.each([
  { what: 'nobody comes', usedAfterS: null, steps: ['snapshot', 'end'] },
  { what: 'a request comes and goes during the snapshot', usedAfterS: 90, steps: ['snapshot'] },
])('goal: a snapshot of ten minutes, and $what', async ({ usedAfterS, steps }) => {
  await using appliance = await startAppliance()
  const { store, clock } = appliance
  const { id } = await appliance.create()
  moveInstance(store.db, { id, from: 'provisioning', to: 'ready', nowMs: 1, readyAtMs: 1 })
  const files = mkdtempSync(join(tmpdir(), 'srt-idle-'))
  const paths = {
    ...guestPaths(files),
    processes: join(files, 'proc'),
    logDir: files,
    ordersDir: join(files, 'orders'),
  }
  mkdirSync(join(files, 'proc/net'), { recursive: true })
  const startMs = clock.monotonicMs()
  let snapshotMs: number | null = null
  const see = () => {
    const nowMs = clock.monotonicMs()
    const sinceS = snapshotMs === null || usedAfterS === null ? -1 : (nowMs - snapshotMs) / 1_000 - usedAfterS
    writeFileSync(join(files, 'proc/uptime'), `${(nowMs - startMs) / 1_000} 1.00\n`)
    writeFileSync(join(files, 'proc/net/tcp'), sinceS >= 0 && sinceS < 60 ? requestRow : '')
  }
  const guest = createIdle({ paths, owner: userInfo() })
  const taken: string[] = []
  const deps: IdleDeps = {
    ...{ directory: store.directory, hostId: store.hostId, clock, log: silentLogger },
    minutesOf: () => 30,
    pollIdle: async (_, { minutes }) => {
      see()
      return { isIdle: guest.isOver(minutes) }
    },
    isSnapshotLost: () => false,
    published: { note: () => {}, noteLiving: () => {} },
    noteUsed: () => {},
    takeScheduled: async () => {},
    beforeEnd: async () => {
      taken.push('snapshot')
      snapshotMs = clock.monotonicMs()
      await clock.sleep(600_000)
      return true
    },
    endIdle: async () => void taken.push('end'),
  }
  const busy = new Set<string>()
  const rounds: Promise<void>[] = []
  for (let minute = 0; minute < 45; minute += 1) {
    if (!taken.includes('end')) rounds.push(endIdleOnes(deps, busy))
    await clock.elapse(60_000)
  }
  await Promise.all(rounds)
  rmSync(files, { recursive: true })
  expect(taken).toEqual([...steps])
})
