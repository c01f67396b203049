// Goal: service A keeps what a VM has sent and signed, whole, within the bounds of its organization, and hands it to
// that organization alone; whatever goes wrong leaves earlier snapshots and no half one.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
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
import { Snapshots, type SnapshotsDeps } from '../../../src/instances/snapshots/snapshots.ts'
import { Transfers } from '../../../src/instances/snapshots/transfers.ts'
import { beginDeletion } from '../../../src/store/directory/deletion.query.ts'
import { moveInstance } from '../../../src/store/directory/instance.query.ts'
import type { Instance } from '../../../src/store/directory/instance.table.ts'
import { organizationById } from '../../../src/store/directory/organization.query.ts'
import type { GuestRequests, VmView } from '../../../src/vm/engine.ts'
import { answering, dial, type FakeGuest, honest, refusal, signed } from '../../rigs/guest/sending-vm.ts'

let directory = ''
let port = 0
let appliance: Appliance
let transfers: Transfers
let snapshots: Snapshots
let guest: FakeGuest = {}
let parts: SnapshotsDeps
let freeBytes = 2 ** 40

async function start(settings: Partial<SnapshotsDeps['settings']> = {}) {
  port = lastingPort()
  transfers = new Transfers({ hostname: '127.0.0.1', port, log: silentLogger })
  appliance = await startAppliance({
    snapshots: given => {
      parts = {
        ...given,
        engine: {
          view: id => ({ id, address: '127.0.0.1', addressV6: null }) as VmView,
          guest: () => ({ egress: async () => {}, snapshot: asked, restore: asked, ...guest }) as GuestRequests,
        },
        files: new SnapshotFiles(directory, silentLogger),
        transfers,
        freeBytes: () => freeBytes,
        settings: { ...snapshotSettings, port, ...settings },
        random: systemRandom,
        log: silentLogger,
      }
      snapshots = new Snapshots(parts)
      return snapshots
    },
  })
}
const asked = () => Promise.reject(new Fault('channel.closed', 'not attached'))

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'srt-snapshots-'))
  guest = {}
  freeBytes = 2 ** 40
})
afterEach(async () => {
  await snapshots.stop()
  transfers.stop()
  await appliance[Symbol.asyncDispose]()
  rmSync(directory, { recursive: true, force: true })
})

async function readyInstance(key = appliance.keys.acme): Promise<Instance> {
  const instance = await appliance.create(key)
  moveInstance(appliance.store.db, {
    id: instance.id,
    from: 'provisioning',
    to: 'ready',
    nowMs: appliance.clock.nowMs(),
    readyAtMs: 1,
  })
  return instance
}

async function take(name: string, key = appliance.keys.acme) {
  const begun = await appliance.send('POST', `/v1/instances/${name}/snapshots`, { key })
  if (begun.status !== 202) return { status: begun.status, error: begun.error }
  let attempt: Record<string, unknown> = {}
  await until('the attempt ends', 10_000, async () => {
    const { data } = await appliance.send('GET', `/v1/instances/${name}/snapshots`, { key })
    attempt = (data.attempts as Record<string, unknown>[])[0] ?? {}
    return attempt.state !== 'writing'
  })
  expect(attempt.id).toBe(begun.data.id)
  return { status: 202, attempt }
}
const numbers = async (path: string, key = appliance.keys.acme) => {
  const { data } = await appliance.send('GET', path, { key })
  return (data.snapshots as { number: number }[]).map(({ number }) => number)
}
const filesOf = ({ id }: Instance) => {
  try {
    return readdirSync(join(directory, id)).sort()
  } catch {
    return []
  }
}
const content = async ({ name }: Instance, number: number, headers = {}, key = appliance.keys.acme) => {
  const url = `http://127.0.0.1:${appliance.port}/v1/instances/${name}/snapshots/${number}`
  const response = await fetch(url, { headers: { authorization: `Bearer ${key}`, ...headers } })
  return { status: response.status, bytes: Buffer.from(await response.arrayBuffer()) }
}

test('goal: a snapshot is kept, listed, downloaded and removed by its organization; others see nothing', async () => {
  await start()
  const instance = await readyInstance()
  const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, at) => at % 253))
  guest = honest(instance, bytes)
  const { attempt } = await take(instance.name)
  expect(attempt).toMatchObject({ state: 'kept', number: 1, bytes: 300_000, message: null, instance: instance.name })
  const { data } = await appliance.send('GET', `/v1/instances/${instance.name}/snapshots`)
  expect(data.snapshots).toEqual([
    {
      instance: instance.name,
      number: 1,
      bytes: 300_000,
      created_at: expect.any(String),
      ...signed(instance.hostname, 1, bytes),
    },
  ])
  expect((await content(instance, 1)).bytes.equals(bytes)).toBeTrue()
  const part = await content(instance, 1, { range: 'bytes=5-9' })
  expect([part.status, [...part.bytes]]).toEqual([206, [5, 6, 7, 8, 9]])
  const { globex, acmeRead } = appliance.keys
  const path = `/v1/instances/${instance.name}/snapshots`
  expect(await numbers('/v1/snapshots', globex)).toEqual([])
  expect((await content(instance, 1, {}, globex)).status).toBe(404)
  for (const [method, of, key, status] of [
    ['GET', path, globex, 404],
    ['POST', path, globex, 404],
    ['DELETE', `${path}/1`, globex, 404],
    ['POST', path, acmeRead, 403],
    ['DELETE', `${path}/1`, acmeRead, 403],
    ['GET', `${path}/2`, acmeRead, 404],
    ['GET', `${path}/01`, acmeRead, 404],
    ['GET', `${path}/..%2f1`, acmeRead, 404],
  ] as const) {
    expect([method, of, (await appliance.send(method, of, { key })).status]).toEqual([method, of, status])
  }
  expect((await appliance.send('DELETE', `${path}/1`)).status).toBe(200)
  expect([await numbers(path), filesOf(instance)]).toEqual([[], []])
})

test('goal: the oldest beyond the limit are replaced, and what they hold does not count against the next', async () => {
  await start({ keptPerInstance: 2, bytesPerOrganization: 250 })
  const instance = await readyInstance()
  guest = honest(instance, Buffer.alloc(100, 1))
  for (const number of [1, 2, 3]) expect((await take(instance.name)).attempt).toMatchObject({ state: 'kept', number })
  expect([await numbers(`/v1/instances/${instance.name}/snapshots`), filesOf(instance)]).toEqual([
    [2, 3],
    ['2.age', '2.json', '3.age', '3.json'],
  ])
})

test('goal: bytes beyond the share, the host or the disk fail the snapshot, with a reason, and leave the others', async () => {
  await start({ bytesPerOrganization: 250, bytesMax: 320 })
  const [instance, second] = [await readyInstance(), await readyInstance()]
  const foreign = await readyInstance(appliance.keys.globex)
  guest = honest(instance, Buffer.alloc(200, 1))
  expect((await take(instance.name)).attempt).toMatchObject({ state: 'kept' })
  guest = honest(second, Buffer.alloc(100, 1))
  const shared = (await take(second.name)).attempt
  expect([shared?.state, String(shared?.message)]).toEqual(['failed', expect.stringContaining('organization')])
  guest = honest(foreign, Buffer.alloc(200, 1))
  const all = (await take(foreign.name, appliance.keys.globex)).attempt
  expect([all?.state, String(all?.message)]).toEqual(['failed', expect.stringContaining('no room')])
  freeBytes = -1
  guest = honest(foreign, Buffer.alloc(10, 1))
  expect((await take(foreign.name, appliance.keys.globex)).error).toMatchObject({ code: 'conflict' })
  expect([filesOf(instance), filesOf(second), filesOf(foreign)]).toEqual([['1.age', '1.json'], [], []])
})

test('goal: a VM that signs another host name, other bytes or an old number, or nothing, has no snapshot kept', async () => {
  await start()
  const instance = await readyInstance()
  const bytes = Buffer.alloc(50, 1)
  guest = honest(instance, bytes)
  await take(instance.name)
  const { hostname } = instance
  const lies: readonly (readonly [string, FakeGuest])[] = [
    ['another host name', answering(bytes, async () => signed('other.acme.agents.example', 2, bytes))],
    ['other bytes', answering(bytes, async () => signed(hostname, 2, Buffer.alloc(51, 1)))],
    ['not newer', answering(bytes, async () => signed(hostname, 1, bytes))],
    ['header', answering(bytes, async () => ({ header: '{"a":1}', signature: 's' }))],
    ['packing broke off', answering(bytes, () => refusal('failed: packing broke off'))],
    ['no snapshots', { snapshot: () => refusal('bad_request: not a request of this wire') }],
  ]
  for (const [reason, lie] of lies) {
    guest = lie
    const { attempt } = await take(instance.name)
    expect([reason, attempt?.state, String(attempt?.message)]).toEqual([
      reason,
      'failed',
      expect.stringContaining(reason),
    ])
  }
  expect([await numbers('/v1/snapshots'), filesOf(instance)]).toEqual([[1], ['1.age', '1.json']])
})

test('goal: control characters and long texts of a guest reach no client', async () => {
  await start()
  const instance = await readyInstance()
  guest = { snapshot: () => Promise.reject(new Fault('channel.refused', `failed: \x1b[2J${'x'.repeat(5_000)}`)) }
  const { attempt } = await take(instance.name)
  expect(String(attempt?.message)).toMatch(/^failed: \\x1b\[2Jx+$/)
  expect(String(attempt?.message).length).toBeLessThanOrEqual(1_000)
})

test('goal: one of an instance, two of an organization at a time; a stop drops them and keeps the rest', async () => {
  await start()
  const instances = [await readyInstance(), await readyInstance(), await readyInstance()]
  const waiting = Promise.withResolvers<never>()
  waiting.promise.catch(() => {})
  guest = { snapshot: () => waiting.promise }
  const post = async (at: number) =>
    (await appliance.send('POST', `/v1/instances/${instances[at]?.name}/snapshots`)).status
  expect([await post(0), await post(0), await post(1), await post(2)]).toEqual([202, 409, 202, 429])
  await snapshots.stop()
  waiting.reject(new Error('stopped'))
  expect(instances.flatMap(filesOf)).toEqual([])
})

test('goal: an instance that is not ready takes none, and a host that is switched off says so', async () => {
  await start({ keptPerInstance: 0 })
  const instance = await appliance.create()
  const path = `/v1/instances/${instance.name}/snapshots`
  expect((await appliance.send('POST', path)).error).toMatchObject({
    code: 'conflict',
    message: expect.stringContaining('provisioning'),
  })
  const ready = await readyInstance()
  expect((await take(ready.name)).error).toMatchObject({ message: expect.stringContaining('switched off') })
})

test('goal: another instance of the organization fetches it whole; one of another organization, or an unknown one, does not', async () => {
  await start()
  const [instance, target] = [await readyInstance(), await readyInstance()]
  const bytes = Buffer.alloc(700_000, 7)
  guest = honest(instance, bytes)
  await take(instance.name)
  const fetched = Promise.withResolvers<Buffer>()
  let pipe = ''
  guest = {
    restore: async (from, name) => {
      pipe = name
      void dial(from, new Uint8Array()).then(fetched.resolve, fetched.reject)
    },
  }
  const body = { instance: instance.name, number: 1 }
  const begun = await appliance.send('POST', `/v1/instances/${target.name}/restore`, { body })
  expect([begun.status, begun.data]).toEqual([202, { pipe, bytes: 700_000 }])
  expect((await fetched.promise).equals(bytes)).toBeTrue()
  const foreign = await readyInstance(appliance.keys.globex)
  const { globex } = appliance.keys
  for (const [path, wanted, key, status] of [
    [foreign.name, body, globex, 404],
    [target.name, body, globex, 404],
    [foreign.name, body, undefined, 404],
    [target.name, { ...body, number: 2 }, undefined, 404],
    [target.name, { ...body, more: 1 }, undefined, 400],
    [target.name, { ...body, number: '1' }, undefined, 400],
    [target.name, body, appliance.keys.acmeRead, 403],
  ] as const) {
    const answer = await appliance.send('POST', `/v1/instances/${path}/restore`, {
      body: wanted,
      ...(key === undefined ? {} : { key }),
    })
    expect([path, wanted, answer.status]).toEqual([path, wanted, status])
  }
  guest = { restore: () => Promise.reject(new Fault('channel.refused', 'bad_request: not a request of this wire')) }
  const old = await appliance.send('POST', `/v1/instances/${target.name}/restore`, { body })
  expect([old.status, old.error.message]).toEqual([409, expect.stringContaining('create another instance')])
})

test('goal: snapshots outlive the instance and the service, and go with its record', async () => {
  await start()
  const instance = await readyInstance()
  guest = honest(instance, Buffer.alloc(50, 1))
  await take(instance.name)
  await appliance.send('DELETE', `/v1/instances/${instance.name}`)
  snapshots.removeOrphans()
  expect(await numbers('/v1/snapshots')).toEqual([1])
  const files = new SnapshotFiles(directory, silentLogger)
  expect(files.of(instance.id).map(({ number }) => number)).toEqual([1])
  appliance.store.ledger.db.run('DELETE FROM instance_changes')
  appliance.store.ledger.db.run('DELETE FROM instances')
  snapshots.removeOrphans()
  expect(filesOf(instance)).toEqual(['1.age', '1.json'])
  snapshots.removeOrphans()
  expect([await numbers('/v1/snapshots'), filesOf(instance)]).toEqual([[], []])
})

test('goal: they go with a deleted organization, and stay while the directory of a fleet is not here', async () => {
  await start()
  const instance = await readyInstance()
  guest = honest(instance, Buffer.alloc(50, 1))
  await take(instance.name)
  const { organizationId: id } = instance
  const away = new Snapshots({
    ...parts,
    directory: {
      ...appliance.store,
      admit: () => {
        throw new Fault('fleet.unavailable', 'no copy yet')
      },
    },
  })
  expect(() => away.removeOrphans()).toThrow('no copy yet')
  beginDeletion(appliance.store.db, { id, nowMs: 9 })
  for (let count = 0; count < 2; count += 1) snapshots.removeOrphans()
  expect(filesOf(instance)).toEqual([])
})

test('goal: a key that another host has revoked takes, restores and removes nothing', async () => {
  await start()
  const instance = await readyInstance()
  guest = honest(instance, Buffer.alloc(50, 1))
  await take(instance.name)
  const { db } = appliance.store
  const organization = organizationById(db, instance.organizationId)
  if (organization === null) throw new Error('no organization')
  // As a read of a fleet's directory that brought changes of other hosts.
  const read: SnapshotsDeps['directory']['read'] = async (caller, work) => {
    caller?.assertAllowed(db)
    return await work(db)
  }
  const elsewhere = new Snapshots({ ...parts, directory: { ...appliance.store, read } })
  const [gone, from] = [
    { organization, keyPrefix: 'gone' },
    { instance: instance.name, number: 1 },
  ]
  const openElsewhere = () => Promise.reject(new Error('no other host'))
  await expect(elsewhere.take(gone, instance.name)).rejects.toThrow('revoked')
  await expect(elsewhere.remove(gone, from)).rejects.toThrow('revoked')
  await expect(elsewhere.restore(gone, instance.name, { from, openElsewhere })).rejects.toThrow('revoked')
  expect(filesOf(instance)).toEqual(['1.age', '1.json'])
})
