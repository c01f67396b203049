// The endpoints of service A over HTTP: shapes, states, limits and usage.

import { expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import { publicKey, settings, startAppliance } from '../../../scripts/rigs/instances/instances-service.ts'
import {
  INSTANCE_FAILURES,
  InstanceCreated,
  InstanceList,
  InstanceRecord,
  UsageSummary,
} from '../../../src/contract/http/instance.ts'
import { SuccessEnvelope } from '../../../src/contract/http/problem.ts'
import { moveInstance, setInstanceEgress } from '../../../src/store/directory/instance.query.ts'
import { setOrganizationStatus } from '../../../src/store/directory/organization.query.ts'
import { VM_FAILURE_CODES } from '../../../src/vm/engine.ts'
import { expectNothingLeaks, failed, play, type Scenario } from '../../rigs/scenario.ts'

const valid = { public_key: publicKey }
const create = { method: 'POST', path: '/v1/instances' } as const

// Goal: the create answer has exactly the contract's nine fields, in its order; the reconciler is woken after the
// commit.
test('create answers 202 with the subset', async () => {
  await using appliance = await startAppliance()
  const answer = await appliance.send('POST', '/v1/instances', {
    body: { ...valid, agent: 'opencode', inference_mode: 'default_gateway' },
  })
  const { name } = answer.data
  expect(answer.status).toBe(202)
  expect(Value.Check(SuccessEnvelope(InstanceCreated), answer.json)).toBe(true)
  expect(Object.keys(answer.json)).toEqual(['request_id', 'correlation_id', 'data'])
  expect(Object.entries(answer.data)).toEqual([
    ['name', expect.stringMatching(/^[a-z0-9]{8}$/)],
    ['status', 'provisioning'],
    ['agent', 'opencode'],
    ['hostname', `${name}.acme.agents.example`],
    ['public_key', publicKey],
    ['inference_mode', 'default_gateway'],
    ['inference_model', 'tiny'],
    ['egress_limit_bytes', 5_368_709_120],
    ['created_at', '2026-11-20T08:30:00.000Z'],
  ])
  expect(appliance.instance(String(name)).vmId).toMatch(/^[0-9a-f-]{36}$/)
  expect(appliance.calls).toEqual([`created ${name}`])
})

// Goal: a record has exactly the fourteen fields in the contract's order, with the chosen model in every later answer.
test('retrieve and list answer the full record', async () => {
  await using appliance = await startAppliance()
  const body = { public_key: ` ${publicKey.replaceAll(' ', ' \t ')}\n`, inference_model: 'large' }
  const { name } = (await appliance.send('POST', '/v1/instances', { body })).data
  appliance.clock.advance(61_234)
  const { id } = appliance.instance(String(name))
  const nowMs = appliance.clock.nowMs()
  moveInstance(appliance.store.db, { id, from: 'provisioning', to: 'ready', nowMs, readyAtMs: nowMs })
  const answer = await appliance.send('GET', `/v1/instances/${name}`)
  expect(answer.status).toBe(200)
  expect(Value.Check(SuccessEnvelope(InstanceRecord), answer.json)).toBe(true)
  expect(Object.entries(answer.data)).toEqual([
    ['name', name],
    ['status', 'ready'],
    ['agent', 'opencode'],
    ['hostname', `${name}.acme.agents.example`],
    ['public_key', body.public_key],
    ['inference_mode', 'default_gateway'],
    ['inference_model', 'large'],
    ['egress_limit_bytes', 5_368_709_120],
    ['failure_code', null],
    ['failure_message', null],
    ['terminated_reason', null],
    ['created_at', '2026-11-20T08:30:00.000Z'],
    ['ready_at', '2026-11-20T08:31:01.234Z'],
    ['terminated_at', null],
  ])
  const list = await appliance.send('GET', '/v1/instances?limit=1&cursor=x')
  expect(list.status).toBe(200)
  expect(Value.Check(SuccessEnvelope(InstanceList), list.json)).toBe(true)
  expect(list.data).toEqual({ instances: [answer.data], next_cursor: null })
})

// Goal: what belongs to another organization is not there: not in lists, not by name, not to delete, not in the usage.
test('organizations do not see each other', async () => {
  await using appliance = await startAppliance()
  const foreign = await appliance.create(appliance.keys.globex)
  setInstanceEgress(appliance.store.db, [
    {
      id: foreign.id,
      egressBytes: 77,
      egressObservedAtMs: 1,
      egressBlockAppliedAtMs: 2,
    },
  ])
  const unknown = failed('not_found', 'There is no instance of this name.')
  const absent = [foreign.name, foreign.hostname]
  for (const method of ['GET', 'DELETE']) {
    await play(appliance, {
      goal: 'meets a foreign name',
      method,
      path: `/v1/instances/${foreign.name}`,
      status: 404,
      answer: unknown,
      absent,
    })
  }
  const list = await appliance.send('GET', '/v1/instances')
  expect(list.data).toEqual({ instances: [], next_cursor: null })
  const usage = await appliance.send('GET', '/v1/usage')
  expect(usage.data.usage).toMatchObject({ egress_bytes: 0, egress_blocked: false })
  for (const answer of [list, usage]) expectNothingLeaks(appliance, answer, absent)
  expect(appliance.instance(foreign.name, 'globex')).toEqual({
    ...foreign,
    egressBytes: 77,
    egressObservedAtMs: 1,
    egressBlockAppliedAtMs: 2,
  })
})

const DELETES = {
  provisioning: { accepted: true, moves: [] },
  ready: { accepted: true, moves: [{ from: 'provisioning', to: 'ready', readyAtMs: 5 }] },
  failed: {
    accepted: true,
    moves: [
      { from: 'provisioning', to: 'failed', failureCode: 'boot_failed', failureMessage: INSTANCE_FAILURES.boot_failed },
    ],
  },
  terminating: {
    accepted: false,
    moves: [{ from: 'provisioning', to: 'terminating', desired: 'absent', terminatedReason: 'deleted_via_api' }],
  },
  terminated: {
    accepted: false,
    moves: [
      { from: 'provisioning', to: 'terminating', desired: 'absent', terminatedReason: 'deleted_via_api' },
      { from: 'terminating', to: 'terminated', terminatedAtMs: 9 },
    ],
  },
} as const

for (const [status, row] of Object.entries(DELETES)) {
  // Goal: from every state a delete answers 202; only the first one changes anything, and tells the reconciler once.
  test(`delete while ${status}`, async () => {
    await using appliance = await startAppliance()
    const { id, name } = await appliance.create()
    for (const move of row.moves) moveInstance(appliance.store.db, { id, nowMs: appliance.clock.nowMs(), ...move })
    const before = await appliance.send('GET', `/v1/instances/${name}`)
    appliance.calls.length = 0
    appliance.clock.advance(1000)
    const first = await appliance.send('DELETE', `/v1/instances/${name}`)
    expect(first.status).toBe(202)
    expect(Value.Check(SuccessEnvelope(InstanceRecord), first.json)).toBe(true)
    expect(first.data).toEqual(
      row.accepted
        ? { ...before.data, status: 'terminating', terminated_reason: 'deleted_via_api', terminated_at: null }
        : before.data,
    )
    const again = await appliance.send('DELETE', `/v1/instances/${name}`)
    expect([again.status, again.data]).toEqual([202, first.data])
    expect(appliance.calls).toEqual(row.accepted ? [`deleted ${name}`] : [])
    expect(appliance.instance(name).desired).toBe('absent')
  })
}

// Goal: the limit counts every instance that is not terminated, names itself, and affects no other organization.
test('the limit of living instances', async () => {
  await using appliance = await startAppliance({ settings: { ...settings, instancesPerOrganizationMax: 2 } })
  const first = await appliance.create()
  await appliance.create()
  const refusal: Scenario = {
    goal: 'creates one too many',
    ...create,
    body: valid,
    headers: { 'Idempotency-Key': 'limited' },
    status: 409,
    answer: failed('conflict', 'The organization has its limit of 2 instances; delete one first.'),
  }
  await play(appliance, refusal)
  await appliance.create(appliance.keys.globex)
  await appliance.send('DELETE', `/v1/instances/${first.name}`)
  await play(appliance, refusal)
  const nowMs = appliance.clock.nowMs()
  moveInstance(appliance.store.db, {
    id: first.id,
    from: 'terminating',
    to: 'terminated',
    nowMs,
    terminatedAtMs: nowMs,
  })
  // A refused create was not stored under its key, so the same key now succeeds.
  const accepted = await appliance.send('POST', '/v1/instances', {
    body: valid,
    headers: { 'Idempotency-Key': 'limited' },
  })
  expect(accepted.status).toBe(202)
})

// Goal: names are drawn until one is free in the organization; a terminated record still holds its name.
test('a name is never given twice', async () => {
  const draws: string[] = []
  const random = (lengthBytes: number) => {
    // A name is drawn from 16 bytes at a time, a UUID from 16 too: count up slowly enough that names repeat.
    draws.push('draw')
    return new Uint8Array(lengthBytes).fill(Math.floor(draws.length / 4))
  }
  await using appliance = await startAppliance({ random })
  const names = new Set<string>()
  for (let i = 0; i < 8; i += 1) names.add((await appliance.create()).name)
  expect(names.size).toBe(8)
})

// Goal: when no free name is found, nothing is left of the attempt, and the client learns nothing of why.
test('running out of names rolls everything back', async () => {
  let uuids = 0
  const random = (lengthBytes: number) => {
    uuids += 1
    const bytes = new Uint8Array(lengthBytes)
    // Names are all the same; ids differ in their last bytes, which names do not reach.
    bytes.set([uuids >> 8, uuids & 0xff], lengthBytes - 2)
    return bytes
  }
  await using appliance = await startAppliance({ random })
  await appliance.create()
  appliance.calls.length = 0
  await play(appliance, {
    goal: 'is out of luck',
    ...create,
    body: valid,
    status: 500,
    answer: failed('internal_error', 'An unexpected error occurred.'),
    absent: ['draws'],
  })
  expect(appliance.calls).toEqual([])
  expect((await appliance.send('GET', '/v1/instances')).data.instances).toHaveLength(1)
  expect(appliance.store.db.all('SELECT id FROM instance_changes')).toHaveLength(1)
})

// Goal: a callback that throws after the commit is logged and does not turn an accepted create into a failure.
test('a failing callback does not fail the create', async () => {
  await using appliance = await startAppliance({
    onCreated: () => {
      throw new Error('the DNS zone is on fire')
    },
  })
  const answer = await appliance.send('POST', '/v1/instances', { body: valid })
  expect(answer.status).toBe(202)
  expect(appliance.logged.join('\n')).toContain('the DNS zone is on fire')
})

// Goal: a suspension that falls between a request's headers and the end of its body still counts.
test('a create is checked again at its commit', async () => {
  await using appliance = await startAppliance()
  const body = JSON.stringify(valid)
  const received = await appliance.raw(
    [
      `POST /v1/instances HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer ${appliance.keys.acme}\r\nContent-Length: ${body.length}\r\n\r\n`,
      appliance.bodyAwaited,
      async () => void setOrganizationStatus(appliance.store.db, { slug: 'acme', status: 'suspended' }),
      body,
    ],
    text => text.includes('}}'),
  )
  expect(received).toStartWith('HTTP/1.1 403 ')
  expect(appliance.calls).toEqual([])
})

// Goal: the usage has exactly its fields, sums egress over all living instances, and shows the oldest block in force.
test('usage', async () => {
  await using appliance = await startAppliance({ inferenceCostMicroUsd: () => 3_210_500n })
  const { clock, store } = appliance
  const empty = await appliance.send('GET', '/v1/usage')
  expect(Value.Check(SuccessEnvelope(UsageSummary), empty.json)).toBe(true)
  expect(empty.data.usage).toMatchObject({
    egress_observed_at: '2026-11-20T08:30:00.000Z',
    egress_block_applied_at: null,
  })
  const [first, second, gone] = [await appliance.create(), await appliance.create(), await appliance.create()]
  const startMs = clock.nowMs()
  for (const { id } of [first, gone])
    moveInstance(store.db, { id, from: 'provisioning', to: 'ready', nowMs: startMs, readyAtMs: startMs })
  clock.advance(5_400_000)
  await appliance.send('DELETE', `/v1/instances/${gone.name}`)
  moveInstance(store.db, {
    id: gone.id,
    from: 'terminating',
    to: 'terminated',
    nowMs: clock.nowMs(),
    terminatedAtMs: clock.nowMs(),
  })
  setInstanceEgress(store.db, [
    {
      id: first.id,
      egressBytes: 1_000,
      egressObservedAtMs: startMs + 7_000,
      egressBlockAppliedAtMs: null,
    },
  ])
  setInstanceEgress(store.db, [
    {
      id: second.id,
      egressBytes: 5_368_709_120,
      egressObservedAtMs: startMs + 5_000,
      egressBlockAppliedAtMs: startMs + 4_000,
    },
  ])
  setInstanceEgress(store.db, [
    {
      id: gone.id,
      egressBytes: 9,
      egressObservedAtMs: startMs + 9_000,
      egressBlockAppliedAtMs: startMs + 1_000,
    },
  ])
  clock.advance(1_800_000)
  const answer = await appliance.send('GET', '/v1/usage')
  expect(answer.status).toBe(200)
  expect(Object.entries(answer.data).map(([name, value]) => [name, Object.entries(value as object)])).toEqual([
    [
      'pricing',
      [
        ['period_start', '2026-11-20T08:30:00.000Z'],
        ['period_end', '2026-12-20T08:30:00.000Z'],
        ['subscription_cost_usd', '99.00'],
        ['instance_hours_included', 750],
        ['overage_per_hour_usd', '0.125'],
      ],
    ],
    [
      'usage',
      [
        ['instance_hours_used', 3.5],
        ['inference_cost_usd', '3.2105'],
        ['egress_bytes', 5_368_710_120],
        ['egress_limit_bytes', 5_368_709_120],
        ['egress_observed_at', '2026-11-20T08:30:07.000Z'],
        ['egress_blocked', true],
        ['egress_block_applied_at', '2026-11-20T08:30:04.000Z'],
      ],
    ],
  ])
})

// Goal: whatever the engine may report has its place in the documented set.
test('failure codes of the engine are among the documented ones', () => {
  expect(Object.keys(INSTANCE_FAILURES)).toEqual(expect.arrayContaining([...VM_FAILURE_CODES]))
  const documented = InstanceRecord.properties.failure_code.anyOf.flatMap(option =>
    'const' in option ? [option.const] : [],
  )
  expect(documented).toEqual(Object.keys(INSTANCE_FAILURES) as typeof documented)
})

// Goal: a list of a thousand records is whole, in order, and quick enough to poll.
test('a thousand instances in one list', async () => {
  await using appliance = await startAppliance({ settings: { ...settings, instancesPerOrganizationMax: 1_000 } })
  appliance.store.db.run('PRAGMA synchronous = OFF')
  const names: string[] = []
  for (let i = 0; i < 1_000; i += 1) {
    appliance.clock.advance(1)
    names.push((await appliance.create()).name)
  }
  await appliance.send('GET', '/v1/instances')
  // Time of the processor: other processes have a part of the wall clock's.
  const begin = process.cpuUsage()
  const { instances } = (await appliance.send('GET', '/v1/instances')).data as { instances: { name: string }[] }
  const { user, system } = process.cpuUsage(begin)
  expect(instances.map(({ name }) => name)).toEqual(names)
  expect((user + system) / 1_000).toBeLessThan(1_000)
})
