// Goal: snapshots that no command takes, by the owner's schedule and before the idle end: one at a time, none where
// nothing has changed, and what keeps one from being taken is shown.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { lastingPort } from '../../../scripts/rigs/free-port.ts'
import { type Appliance, startAppliance } from '../../../scripts/rigs/instances/instances-service.ts'
import { snapshotSettings } from '../../../scripts/rigs/instances/no-snapshots.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { Fault } from '../../../src/base/fault.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { SnapshotFiles } from '../../../src/instances/snapshots/files.ts'
import { createSnapshotMetrics } from '../../../src/instances/snapshots/metrics.ts'
import { Snapshots, type SnapshotsDeps } from '../../../src/instances/snapshots/snapshots.ts'
import { Transfers } from '../../../src/instances/snapshots/transfers.ts'
import { moveInstance } from '../../../src/store/directory/instance.query.ts'
import type { GuestRequests, VmView } from '../../../src/vm/engine.ts'
import { dial, type FakeGuest, honest, refusal, sha256, signed } from '../../rigs/guest/sending-vm.ts'

let directory = ''
let appliance: Appliance
let transfers: Transfers
let snapshots: Snapshots
let guest: FakeGuest = {}
let freeBytes = 2 ** 40

async function start(settings: Partial<SnapshotsDeps['settings']> = {}) {
  const port = lastingPort()
  transfers = new Transfers({ hostname: '127.0.0.1', port, log: silentLogger })
  appliance = await startAppliance({
    snapshots: given => {
      snapshots = new Snapshots({
        ...given,
        engine: {
          view: id => ({ id, address: '127.0.0.1', addressV6: null }) as VmView,
          guest: () => guest as GuestRequests,
        },
        files: new SnapshotFiles(directory, silentLogger),
        transfers,
        freeBytes: () => freeBytes,
        settings: { ...snapshotSettings, port, ...settings },
        random: systemRandom,
        log: silentLogger,
      })
      return snapshots
    },
  })
}

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'srt-unattended-'))
  guest = {}
  freeBytes = 2 ** 40
})
afterEach(async () => {
  await snapshots.stop()
  transfers.stop()
  await appliance[Symbol.asyncDispose]()
  rmSync(directory, { recursive: true, force: true })
})

async function readyInstance() {
  const instance = await appliance.create(appliance.keys.acme)
  const nowMs = appliance.clock.nowMs()
  moveInstance(appliance.store.db, { id: instance.id, from: 'provisioning', to: 'ready', nowMs, readyAtMs: 1 })
  return { ...instance, status: 'ready' as const }
}
type Listed = { readonly snapshots: { number: number }[]; readonly attempts: Record<string, unknown>[] }
const listed = async (path: string) => (await appliance.send('GET', path)).data as Listed
const numbers = async (path: string) => (await listed(path)).snapshots.map(({ number }) => number)

test('goal: an end by idleness waits for the snapshot that the owner takes, and takes another if that one fails', async () => {
  await start()
  const instance = { ...(await readyInstance()), status: 'ready' as const }
  const path = `/v1/instances/${instance.name}/snapshots`
  const answers = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  let asked = 0
  guest = {
    snapshot: async to => {
      asked += 1
      const number = asked
      await answers[number - 1]?.promise
      await dial(to, Buffer.from([number]))
      return signed(instance.hostname, number, Buffer.from([number]))
    },
  }
  let ends = 0
  const end = () => snapshots.takeBeforeEnd(instance).finally(() => (ends += 1))
  expect((await appliance.send('POST', path)).status).toBe(202)
  const first = end()
  await appliance.send('GET', path)
  expect([ends, asked]).toEqual([0, 1])
  answers[0]?.resolve()
  expect([await first, asked, await numbers(path)]).toEqual([true, 1, [1]])
  expect((await appliance.send('POST', path)).status).toBe(202)
  const second = end()
  answers[1]?.reject(new Fault('channel.refused', 'the VM fails'))
  expect([await second, asked, await numbers(path)]).toEqual([true, 3, [1, 3]])
})

const minuteMs = 60_000

test('goal: ends without a snapshot are a problem until one is kept, unless the organization or its VM is the cause', async () => {
  await start({ bytesPerOrganization: 150, freeBytesMin: 10 })
  const instance = await readyInstance()
  /** Its end, waited for; the problems then. */
  const end = async (count: number) => {
    for (let quarters = 0; !(await snapshots.takeBeforeEnd(instance)); quarters += 1) {
      expect(quarters).toBeLessThan(96)
      await appliance.clock.elapse(15 * minuteMs)
    }
    return snapshots.problems().map(({ subject, detail }) => [subject, detail.includes(`${count} instances`)])
  }
  guest = { snapshot: () => refusal('failed: no key') }
  expect(await end(0)).toEqual([])
  guest = honest(instance, Buffer.alloc(200))
  expect(await end(0)).toEqual([])
  freeBytes = 9
  for (const count of [1, 2])
    expect(await end(count)).toEqual([
      ['room', false],
      ['ends', true],
    ])
  freeBytes = 2 ** 40
  expect(await end(2)).toEqual([['ends', true]])
  guest = honest(instance, Buffer.alloc(50))
  expect(await end(0)).toEqual([])
  expect(
    createSnapshotMetrics(snapshots)
      .render()
      .match(/^strongroom.*/gm)
      ?.slice(0, 2),
  ).toEqual(['strongroom_snapshots 1', 'strongroom_snapshot_bytes 50'])
})

test('goal: an idle end without room waits for a day, says until when, and is tried each quarter of an hour; use begins the day anew', async () => {
  await start({ bytesPerOrganization: 150 })
  const instance = await readyInstance()
  let sent = 0
  const large = honest(instance, Buffer.alloc(200))
  guest = {
    snapshot: (...request) => {
      sent += 1
      return large.snapshot(...request)
    },
  }
  const path = `/v1/instances/${instance.name}/snapshots`
  /** The host asks each minute while the instance is idle. */
  const idle = async (minutes: number) => {
    for (let minute = 0; minute < minutes; minute += 1) {
      if (await snapshots.takeBeforeEnd(instance)) return minute
      await appliance.clock.elapse(minuteMs)
    }
    return null
  }
  const until = new Date(appliance.clock.nowMs() + 24 * 60 * minuteMs).toISOString()
  expect(await idle(60)).toBeNull()
  expect(sent).toBe(4)
  const [attempt] = (await listed(path)).attempts
  expect(attempt).toMatchObject({ state: 'skipped', message: expect.stringContaining(`room until ${until}`) })
  // Used, however short.
  snapshots.noteUsed(instance)
  expect(await idle(23 * 60)).toBeNull()
  expect(await idle(2 * 60)).toBe(60)
  // As soon as there is room it ends with one.
  await appliance.clock.elapse(60 * minuteMs)
  expect(await idle(20)).toBeNull()
  guest = honest(instance, Buffer.alloc(100))
  expect([await idle(60), await numbers(path)]).toEqual([10, [1]])
})

test('goal: a schedule that finds no room packs the files again after ever longer pauses, 4 hours at most', async () => {
  await start({ bytesPerOrganization: 150 })
  const instance = await readyInstance()
  const path = `/v1/instances/${instance.name}/snapshots`
  const sentAt: number[] = []
  let minute = 0
  let bytes = 200
  guest = {
    snapshot: (...request) => {
      sentAt.push(minute)
      return honest(instance, Buffer.alloc(bytes)).snapshot(...request)
    },
  }
  /** The host asks each minute while the VM says that one is due. */
  const polls = async (minutes: number) => {
    for (const end = minute + minutes; minute < end; minute += 1) {
      await snapshots.takeScheduled(instance)
      await until('the attempt ends', 10_000, async () => (await listed(path)).attempts[0]?.state !== 'writing')
      await appliance.clock.elapse(minuteMs)
    }
  }
  await polls(8 * 60)
  expect(sentAt).toEqual([0, 30, 90, 210, 450])
  bytes = 100
  await polls(215)
  expect([sentAt.at(-1), await numbers(path)]).toEqual([690, [1]])
})

test("goal: the owner's schedule takes one if files have changed; what is skipped says why, and is no failure", async () => {
  await start({ freeBytesMin: 10 })
  const instance = await readyInstance()
  const path = `/v1/instances/${instance.name}/snapshots`
  const asks: (string | undefined)[] = []
  const sending = honest(instance, Buffer.from('files'))
  guest = {
    snapshot: (to, timeoutMs, options) => {
      asks.push(options.ifChanged)
      return asks.length === 2
        ? refusal('unchanged: snapshot: no file has changed')
        : sending.snapshot(to, timeoutMs, options)
    },
  }
  const taken = async () => {
    await appliance.clock.elapse(15 * minuteMs)
    await snapshots.takeScheduled(instance)
    await until('the attempt ends', 10_000, async () => (await listed(path)).attempts[0]?.state !== 'writing')
    return (await listed(path)).attempts[0]
  }
  expect(await taken()).toMatchObject({ state: 'kept', number: 1 })
  expect(await taken()).toMatchObject({ state: 'skipped', message: 'No file has changed since the last snapshot.' })
  freeBytes = 9
  expect(await taken()).toMatchObject({ state: 'skipped', message: expect.stringContaining('no room') })
  // As soon as there is room, without another word of the owner.
  freeBytes = 2 ** 40
  expect(await taken()).toMatchObject({ state: 'kept', number: 2 })
  const digest = sha256(Buffer.from('files'))
  expect([await numbers(path), asks]).toEqual([
    [1, 2],
    [undefined, digest, digest],
  ])
  expect(snapshots.counts().failures).toBe(0)
})

test('goal: a schedule does not rely on a snapshot that the host has not: it was removed, or could not be kept', async () => {
  await start()
  const instance = await readyInstance()
  const path = `/v1/instances/${instance.name}/snapshots`
  const asks: (string | undefined)[] = []
  let number = 0
  const bytes = () => Buffer.from(`files ${number}`)
  guest = {
    snapshot: async (to, _, { ifChanged }) => {
      number += 1
      asks.push(ifChanged)
      await dial(to, bytes())
      // Its place is taken by a directory, so keeping number 3 fails.
      if (number === 3) mkdirSync(join(directory, instance.id, '3.age', 'full'), { recursive: true })
      return signed(instance.hostname, number, bytes())
    },
  }
  const taken = async () => {
    await appliance.clock.elapse(15 * minuteMs)
    await snapshots.takeScheduled(instance)
    await until('the attempt ends', 10_000, async () => (await listed(path)).attempts[0]?.state !== 'writing')
    return [(await listed(path)).attempts[0]?.state, snapshots.isLost(instance)]
  }
  expect(snapshots.isLost(instance)).toBe(false)
  expect([await taken(), await taken()]).toEqual([
    ['kept', false],
    ['kept', false],
  ])
  expect(await taken()).toEqual(['failed', true])
  expect(await taken()).toEqual(['kept', false])
  for (const removed of [4, 2, 1]) expect((await appliance.send('DELETE', `${path}/${removed}`)).status).toBe(200)
  expect(await taken()).toEqual(['kept', false])
  const digestOf = (count: number) => sha256(Buffer.from(`files ${count}`))
  expect(asks).toEqual([undefined, digestOf(1), digestOf(2), digestOf(2), undefined])
})

test('goal: schedules wait for a snapshot that is under way, and leave one transfer of the organization to commands', async () => {
  await start()
  const [first, second] = [await readyInstance(), await readyInstance()]
  const sent = Promise.withResolvers<void>()
  let asked = 0
  guest = {
    snapshot: async to => {
      asked += 1
      await sent.promise
      const { hostname } = asked === 1 ? first : second
      await dial(to, Buffer.from('files'))
      return signed(hostname, 1, Buffer.from('files'))
    },
  }
  await snapshots.takeScheduled(first)
  await snapshots.takeScheduled(first)
  await snapshots.takeScheduled(second)
  const [attempt] = (await listed(`/v1/instances/${second.name}/snapshots`)).attempts
  expect([asked, attempt?.state, attempt?.message]).toEqual([
    1,
    'skipped',
    expect.stringContaining('Other snapshots are under way'),
  ])
  const command = await appliance.send('POST', `/v1/instances/${second.name}/snapshots`)
  expect([command.status, asked]).toEqual([202, 2])
  sent.resolve()
})

test('goal: a VM that always says that a snapshot is due has one each quarter of an hour, and those of the owner stay', async () => {
  await start({ keptPerInstance: 2 })
  const instance = await readyInstance()
  const path = `/v1/instances/${instance.name}/snapshots`
  let asked = 0
  const sending = honest(instance, Buffer.from('files'))
  guest = {
    snapshot: (...request) => {
      asked += 1
      return sending.snapshot(...request)
    },
  }
  const ended = () =>
    until('the attempt ends', 10_000, async () => (await listed(path)).attempts[0]?.state !== 'writing')
  expect((await appliance.send('POST', path)).status).toBe(202)
  await ended()
  for (let minute = 0; minute < 60; minute += 1) {
    await snapshots.takeScheduled(instance)
    await ended()
    await appliance.clock.elapse(minuteMs)
  }
  expect([asked, await numbers(path)]).toEqual([5, [1, 5]])
  // The end, too, leaves the one of the command; another command replaces the oldest.
  expect([await snapshots.takeBeforeEnd(instance), await numbers(path)]).toEqual([true, [1, 6]])
  // After a restart the host still has what took each.
  const restarted = new SnapshotFiles(directory, silentLogger).of(instance.id)
  expect(restarted.map(({ number, isUnattended }) => [number, isUnattended])).toEqual([
    [1, undefined],
    [6, true],
  ])
  expect((await appliance.send('POST', path)).status).toBe(202)
  await ended()
  expect(await numbers(path)).toEqual([6, 7])
})

test('goal: where one snapshot is kept, a schedule is skipped for the one of a command, and says so', async () => {
  await start({ keptPerInstance: 1 })
  const instance = await readyInstance()
  const path = `/v1/instances/${instance.name}/snapshots`
  guest = honest(instance, Buffer.from('files'))
  expect((await appliance.send('POST', path)).status).toBe(202)
  await until('it is kept', 10_000, async () => (await listed(path)).attempts[0]?.state === 'kept')
  await snapshots.takeScheduled(instance)
  const { snapshots: kept, attempts } = await listed(path)
  expect([kept.length, attempts[0]]).toEqual([
    1,
    expect.objectContaining({ state: 'skipped', message: expect.stringContaining('that you took yourself') }),
  ])
})

test('goal: an idle end waits while the VM still ends an attempt that has failed on the host', async () => {
  await start({ bytesPerOrganization: 150, freeBytesMin: 10 })
  const instance = await readyInstance()
  const path = `/v1/instances/${instance.name}/snapshots`
  const ended = Promise.withResolvers<void>()
  let asked = 0
  guest = {
    snapshot: async to => {
      asked += 1
      if (asked > 1) return await refusal('failed: snapshot: another one is under way')
      await dial(to, Buffer.alloc(200)).catch(() => {})
      await ended.promise
      throw new Fault('channel.refused', 'failed: packing or sending broke off')
    },
  }
  await snapshots.takeScheduled(instance)
  await until('the host has no room for it', 10_000, async () => (await listed(path)).attempts[0]?.state !== 'writing')
  expect([await snapshots.takeBeforeEnd(instance), asked]).toEqual([false, 2])
  ended.resolve()
})
