// Limits of service A's clients: requests of a key, creates and records of an organization, and the cost of a full
// list.

import { describe, expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import {
  type Answer,
  type Appliance,
  publicKey,
  settings,
  startAppliance,
} from '../../../scripts/rigs/instances/instances-service.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { createRequestRate } from '../../../src/http/rate.ts'
import { removeExpired } from '../../../src/instances/retention.ts'
import { moveInstance } from '../../../src/store/directory/instance.query.ts'

const dayMs = 24 * 60 * 60 * 1000

function expectLimited(answer: Answer): number {
  expect(answer.status).toBe(429)
  expect(answer.error.code).toBe('invalid_request')
  expect(answer.json.request_id).toBe(answer.headers.get('X-Request-ID') ?? '')
  const seconds = Number(answer.headers.get('Retry-After'))
  expect(Number.isSafeInteger(seconds) && seconds >= 1).toBe(true)
  return seconds
}

const create = (appliance: Appliance, idempotencyKey?: string) =>
  appliance.send('POST', '/v1/instances', {
    body: { public_key: publicKey },
    ...(idempotencyKey === undefined ? {} : { headers: { 'Idempotency-Key': idempotencyKey } }),
  })

/** Deletes an instance and lets its teardown be over. */
async function terminate(appliance: Appliance, answer: Answer): Promise<void> {
  const name = String(answer.data.name)
  expect((await appliance.send('DELETE', `/v1/instances/${name}`)).status).toBe(202)
  const { id } = appliance.instance(name)
  const nowMs = appliance.clock.nowMs()
  moveInstance(appliance.store.db, { id, from: 'terminating', to: 'terminated', nowMs, terminatedAtMs: nowMs })
}

describe('requests of a key', () => {
  test('beyond the limit are refused with the envelope, for as long as Retry-After says, and no other key is', async () => {
    // Goal: one client's loop is not everybody's; what is said of the wait is true.
    await using appliance = await startAppliance({ requestsPerMinute: 5 })
    const get = (key = appliance.keys.acme) => appliance.send('GET', '/v1/instances', { key })
    for (let i = 0; i < 5; i += 1) expect((await get()).status).toBe(200)
    const seconds = expectLimited(await get())
    expect((await get(appliance.keys.globex)).status).toBe(200)
    appliance.clock.advance(seconds * 1000 - 1000)
    expectLimited(await get())
    appliance.clock.advance(1000)
    expect((await get()).status).toBe(200)
    expectLimited(await get())
  })

  test('count whatever they are: unknown paths, other methods, refused bodies', async () => {
    // Goal: no way around the limit for a key that is known; who has no key gets 401 as ever.
    await using appliance = await startAppliance({ requestsPerMinute: 3 })
    expect((await appliance.send('PUT', '/v1/instances')).status).toBe(405)
    expect((await appliance.send('POST', '/v1/instances', { body: {} })).status).toBe(400)
    expect((await appliance.send('GET', '/v1/instances/abcd1234')).status).toBe(404)
    expectLimited(await appliance.send('GET', '/v1/usage'))
    expect((await appliance.send('GET', '/v1/usage', { key: null })).status).toBe(401)
  })

  test('leave nothing behind: a key that rests costs no memory', () => {
    // Goal: state for keys in use only.
    const clock = createManualClock()
    const rate = createRequestRate({ clock, requestsPerMinute: 10 })
    for (let i = 0; i < 1000; i += 1) rate.take(`key${i}`)
    expect(rate.size()).toBe(1000)
    clock.advance(60_000)
    rate.take('another')
    expect(rate.size()).toBe(1)
  })
})

describe('creates of an organization', () => {
  test('are limited within 24 hours, over restarts; a repetition is none', async () => {
    // Goal: issue 9: 10,000 creates and deletes in 59 s. A client that repeats itself is not punished for it.
    const few = { ...settings, createsPerDayMax: 3 }
    await using first = await startAppliance({ settings: few })
    for (const key of ['a', 'b', 'c']) {
      await terminate(first, await create(first, key))
      first.clock.advance(60_000)
      expect((await create(first, key)).status).toBe(202)
    }
    await using appliance = await first.restart()
    const seconds = expectLimited(await create(appliance, 'd'))
    expect(seconds * 1000).toBe(dayMs - 3 * 60_000)
    expect((await create(appliance, 'a')).status).toBe(202)
    expect(
      (await appliance.send('POST', '/v1/instances', { key: appliance.keys.globex, body: { public_key: publicKey } }))
        .status,
    ).toBe(202)
    appliance.clock.advance(seconds * 1000 - 1000)
    expectLimited(await create(appliance, 'd'))
    appliance.clock.advance(1000)
    expect((await create(appliance, 'd')).status).toBe(202)
    expectLimited(await create(appliance, 'e'))
  })

  test('are limited by the records that are kept, and are possible again when those have gone', async () => {
    // Goal: what a list has to show is bounded, whatever is created and deleted.
    await using appliance = await startAppliance({ settings: { ...settings, recordsPerOrganizationMax: 3 } })
    for (let i = 0; i < 3; i += 1) await terminate(appliance, await create(appliance))
    const seconds = expectLimited(await create(appliance))
    expect(seconds).toBeGreaterThan((30 * dayMs) / 1000)
    appliance.clock.advance(seconds * 1000)
    const { store, clock } = appliance
    const { signal } = new AbortController()
    await removeExpired({ directory: store.directory, clock, log: silentLogger, retentionDays: 30 }, signal)
    expect((await create(appliance)).status).toBe(202)
  })
})
