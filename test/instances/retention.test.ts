// The janitor: what it removes, when, and what it leaves alone.

import { expect, test } from 'bun:test'
import { silentLogger } from '../../src/base/log.ts'
import { createJanitor, sweepIntervalMs } from '../../src/instances/retention.ts'
import { insertInstance, moveInstance } from '../../src/store/directory/instance.query.ts'
import type { Instance } from '../../src/store/directory/instance.table.ts'
import { findOrganization } from '../../src/store/directory/organization.query.ts'
import { type Appliance, publicKey, settings, startAppliance } from '../rigs/instances-service.ts'

const dayMs = 24 * 60 * 60 * 1000
const never = new AbortController().signal

function janitorOf(appliance: Appliance, retentionDays = 30) {
  return createJanitor({ store: appliance.store, clock: appliance.clock, log: silentLogger, retentionDays })
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

// Goal: a record stays listed, with its name, for the whole retention and goes after it, its change log with it; the living stay for ever.
test('terminated records', async () => {
  await using appliance = await startAppliance()
  const { clock, store } = appliance
  const living = await appliance.create()
  const deleted = await appliance.create()
  await appliance.send('DELETE', `/v1/instances/${deleted.name}`)
  const gone = await terminated(appliance)
  const janitor = janitorOf(appliance, 40)
  clock.advance(40 * dayMs)
  expect(await janitor.sweep(never)).toEqual({ instances: 0, answers: 0 })
  expect(await names(appliance)).toContain(gone.name)
  clock.advance(1)
  expect(await janitor.sweep(never)).toEqual({ instances: 1, answers: 0 })
  expect((await names(appliance)).sort()).toEqual([living.name, deleted.name].sort())
  expect((await appliance.send('GET', `/v1/instances/${gone.name}`)).status).toBe(404)
  expect(store.db.all(`SELECT id FROM instance_changes WHERE instance_id = '${gone.id}'`)).toEqual([])
  clock.advance(4_000 * dayMs)
  expect((await janitor.sweep(never)).instances).toBe(0)
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
  await janitorOf(appliance).sweep(never)
  const { usage, pricing } = (await appliance.send('GET', '/v1/usage')).data as Record<string, Record<string, unknown>>
  expect([pricing?.period_start, usage?.instance_hours_used]).toEqual(['2026-12-20T08:30:00.000Z', 1])
})

// Goal: a clock that jumps back removes nothing and breaks nothing; when it is right again, what is due goes.
test('a clock that jumps back', async () => {
  await using appliance = await startAppliance()
  const { clock } = appliance
  const gone = await terminated(appliance)
  const rightMs = clock.nowMs() + 32 * dayMs
  const janitor = janitorOf(appliance)
  clock.set(clock.nowMs() - 4_000 * dayMs)
  expect(await janitor.sweep(never)).toEqual({ instances: 0, answers: 0 })
  expect(await names(appliance)).toEqual([gone.name])
  clock.set(rightMs)
  expect(await janitor.sweep(never)).toEqual({ instances: 1, answers: 0 })
})

// Goal: stored answers go after 24 hours, not before.
test('stored answers', async () => {
  await using appliance = await startAppliance()
  const { clock } = appliance
  const post = (key: string) =>
    appliance.send('POST', '/v1/instances', { body: { public_key: publicKey }, headers: { 'Idempotency-Key': key } })
  await post('early')
  clock.advance(1_000)
  await post('late')
  const janitor = janitorOf(appliance)
  clock.advance(dayMs - 1_001)
  expect((await janitor.sweep(never)).answers).toBe(0)
  clock.advance(1)
  expect((await janitor.sweep(never)).answers).toBe(1)
  clock.advance(1_000)
  expect((await janitor.sweep(never)).answers).toBe(1)
})

// Goal: more than a batch goes batch by batch, and a sweep that is stopped is taken up by the next one.
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
  const stopping = createJanitor({
    store: {
      transact: work => {
        stopped.abort()
        return store.transact(work)
      },
    },
    clock,
    log: silentLogger,
    retentionDays: 30,
  })
  await stopping.run(stopped.signal)
  expect(await names(appliance)).toHaveLength(701)
  expect(await janitorOf(appliance).sweep(never)).toEqual({ instances: 701, answers: 0 })
  expect(await names(appliance)).toEqual([])
})

// Goal: it sweeps at once and then at each interval, goes on after a failure, and ends at the signal.
test('running', async () => {
  await using appliance = await startAppliance()
  const { clock, store } = appliance
  let failures = 1
  const janitor = createJanitor({
    store: {
      transact: work => {
        failures -= 1
        if (failures === 0) throw new Error('disk full')
        return store.transact(work)
      },
    },
    clock,
    log: silentLogger,
    retentionDays: 30,
  })
  const gone = await terminated(appliance)
  clock.advance(32 * dayMs)
  const stop = new AbortController()
  const running = janitor.run(stop.signal)
  await clock.sleepers(1)
  expect(await names(appliance)).toEqual([gone.name])
  clock.advance(sweepIntervalMs)
  await clock.sleepers(1)
  expect(await names(appliance)).toEqual([])
  stop.abort(new Error('stop'))
  await running
})
