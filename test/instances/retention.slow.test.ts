// Retention: what it removes, when, and what it leaves alone.

import { expect, test } from 'bun:test'
import { createClockGuard } from '../../scripts/rigs/clock-guard.ts'
import { type Appliance, publicKey, settings, startAppliance } from '../../scripts/rigs/instances/instances-service.ts'
import { silentLogger } from '../../src/base/log.ts'
import {
  noteRemoval,
  type RetentionDeps,
  removedBeforeMs,
  removeExpired,
  retentionIntervalMs,
  runRetention,
} from '../../src/instances/retention.ts'
import { insertInstance, moveInstance } from '../../src/store/directory/instance.query.ts'
import type { Instance } from '../../src/store/directory/instance.table.ts'
import { findOrganization } from '../../src/store/directory/organization.query.ts'

const dayMs = 24 * 60 * 60 * 1000
const never = new AbortController().signal

/** A round over everything that is due. */
function remove({ store, clock }: Appliance, retentionDays = 30) {
  return removeExpired({ directory: store.directory, clock, log: silentLogger, retentionDays }, never)
}

async function terminated(appliance: Appliance): Promise<Instance> {
  const { name } = await appliance.create()
  await appliance.send('DELETE', `/v1/instances/${name}`)
  return terminate(appliance, appliance.instance(name))
}

function terminate(appliance: Appliance, instance: Instance): Instance {
  const nowMs = appliance.clock.nowMs()
  moveInstance(appliance.store.db, {
    id: instance.id,
    from: 'terminating',
    to: 'terminated',
    nowMs,
    terminatedAtMs: nowMs,
  })
  return instance
}

async function names(appliance: Appliance): Promise<string[]> {
  const { instances } = (await appliance.send('GET', '/v1/instances')).data as { instances: { name: string }[] }
  return instances.map(({ name }) => name)
}

test('goal: until when records were removed is kept, and a longer retention does not lower it', async () => {
  await using appliance = await startAppliance()
  const { clock, store } = appliance
  const { db } = store.ledger
  const round = async (retentionDays: number) => {
    const onRemoval = (endedBeforeMs: number) => noteRemoval(db, endedBeforeMs)
    await removeExpired({ directory: store.directory, clock, log: silentLogger, retentionDays, onRemoval }, never)
    return removedBeforeMs(db)
  }
  expect(removedBeforeMs(db)).toBe(0)
  const before = clock.nowMs() - 40 * dayMs
  expect(await round(40)).toBe(before)
  clock.advance(dayMs)
  expect(await round(62)).toBe(before)
  expect(await round(40)).toBe(before + dayMs)
})

// Goal: a terminated record stays listed, with its name, for the whole retention, then goes with its change log;
// living ones stay.
test('terminated records', async () => {
  await using appliance = await startAppliance()
  const { clock, store } = appliance
  const living = await appliance.create()
  const deleted = await appliance.create()
  await appliance.send('DELETE', `/v1/instances/${deleted.name}`)
  const gone = await terminated(appliance)
  const round = () => remove(appliance, 40)
  clock.advance(40 * dayMs)
  expect(await round()).toEqual({ instances: 0, responses: 0 })
  expect(await names(appliance)).toContain(gone.name)
  clock.advance(1)
  expect(await round()).toEqual({ instances: 1, responses: 0 })
  expect((await names(appliance)).sort()).toEqual([living.name, deleted.name].sort())
  expect((await appliance.send('GET', `/v1/instances/${gone.name}`)).status).toBe(404)
  expect(store.db.all(`SELECT id FROM instance_changes WHERE instance_id = '${gone.id}'`)).toEqual([])
  clock.advance(4_000 * dayMs)
  expect((await round()).instances).toBe(0)
})

// Goal: a record outlives the billing period that its hours belong to, even where that is longer than the retention.
test('no record goes before its period has ended', async () => {
  await using appliance = await startAppliance()
  const { clock, store } = appliance
  const startMs = Date.UTC(2026, 11, 20, 8, 30)
  clock.set(startMs)
  const { id, name } = await appliance.create()
  moveInstance(store.db, { id, from: 'provisioning', to: 'ready', nowMs: startMs, readyAtMs: startMs })
  clock.advance(3_600_000)
  await appliance.send('DELETE', `/v1/instances/${name}`)
  terminate(appliance, appliance.instance(name))
  clock.set(Date.UTC(2027, 0, 20, 8, 30) - 1)
  await remove(appliance)
  const { usage, pricing } = (await appliance.send('GET', '/v1/usage')).data as Record<string, Record<string, unknown>>
  expect([pricing?.period_start, usage?.instance_hours_used]).toEqual(['2026-12-20T08:30:00.000Z', 1])
})

// Goal: a clock that jumps back removes nothing and breaks nothing; when it is right again, what is due goes.
test('a clock that jumps back', async () => {
  await using appliance = await startAppliance()
  const { clock } = appliance
  const gone = await terminated(appliance)
  const rightMs = clock.nowMs() + 32 * dayMs
  const round = () => remove(appliance)
  clock.set(clock.nowMs() - 4_000 * dayMs)
  expect(await round()).toEqual({ instances: 0, responses: 0 })
  expect(await names(appliance)).toEqual([gone.name])
  clock.set(rightMs)
  expect(await round()).toEqual({ instances: 1, responses: 0 })
})

// Goal: stored responses go after 24 hours, not before.
test('stored responses', async () => {
  await using appliance = await startAppliance()
  const { clock } = appliance
  const post = (key: string) =>
    appliance.send('POST', '/v1/instances', { body: { public_key: publicKey }, headers: { 'Idempotency-Key': key } })
  await post('early')
  clock.advance(1_000)
  await post('late')
  const round = () => remove(appliance)
  clock.advance(dayMs - 1_001)
  expect((await round()).responses).toBe(0)
  clock.advance(1)
  expect((await round()).responses).toBe(1)
  clock.advance(1_000)
  expect((await round()).responses).toBe(1)
})

// Goal: more than a batch goes batch by batch, and a round that is stopped is taken up by the next one.
test('many records, and a stop in between', async () => {
  await using appliance = await startAppliance({ settings })
  const { clock, store } = appliance
  const organizationId = findOrganization(store.db, 'acme')?.id ?? ''
  const nowMs = clock.nowMs()
  store.transact(tx => {
    for (let i = 0; i < 1_201; i += 1) {
      const name = `n${String(i).padStart(7, '0')}`
      const fixed = {
        hostId: store.hostId,
        organizationId,
        agent: 'opencode',
        publicKey,
        inferenceMode: 'default_gateway',
        inferenceModel: 'tiny',
        vmId: null,
      }
      insertInstance(tx, { id: name, name, hostname: `${name}.x`, ...fixed, nowMs })
      moveInstance(tx, { id: name, from: 'provisioning', to: 'terminating', nowMs })
      moveInstance(tx, { id: name, from: 'terminating', to: 'terminated', nowMs, terminatedAtMs: nowMs })
    }
  })
  clock.advance(32 * dayMs)
  const stopped = new AbortController()
  const directory: RetentionDeps['directory'] = {
    change: async work => {
      stopped.abort()
      return await store.directory.change(work)
    },
  }
  await runRetention(
    { directory, clock, guard: createClockGuard(clock), log: silentLogger, retentionDays: 30 },
    stopped.signal,
  )
  expect(await names(appliance)).toHaveLength(701)
  expect(await remove(appliance)).toEqual({ instances: 701, responses: 0 })
  expect(await names(appliance)).toEqual([])
})

// Goal: it removes at once and then at each interval, goes on after a failure, and ends at the signal.
test('running', async () => {
  await using appliance = await startAppliance()
  const { clock, store } = appliance
  let failures = 1
  const directory: RetentionDeps['directory'] = {
    change: async work => {
      failures -= 1
      if (failures === 0) throw new Error('disk full')
      return await store.directory.change(work)
    },
  }
  const gone = await terminated(appliance)
  clock.advance(32 * dayMs)
  const stop = new AbortController()
  const running = runRetention(
    { directory, clock, guard: createClockGuard(clock), log: silentLogger, retentionDays: 30 },
    stop.signal,
  )
  await clock.sleepers(1)
  expect(await names(appliance)).toEqual([gone.name])
  clock.advance(retentionIntervalMs)
  await clock.sleepers(1)
  expect(await names(appliance)).toEqual([])
  stop.abort(new Error('stop'))
  await running
})
