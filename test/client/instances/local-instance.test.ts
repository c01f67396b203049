// Goal: one name stands for one instance, whatever was interrupted, whichever command came first, and whatever the
// service answers.

import { afterAll, beforeEach, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { type InstanceRequest, openInstance } from '../../../src/client/instances/local-instance.ts'
import { localNames } from '../../../src/client/instances/names.ts'
import type { SeenInstance } from '../../../src/client/instances/records.ts'
import { type CreateRequest, RefusedFault } from '../../../src/client/instances/service.ts'
import { ed25519Line } from '../../rigs/instances/instance-attestation.ts'

const home = mkdtempSync(join(tmpdir(), 'srt-local-instance-'))
afterAll(() => rmSync(home, { recursive: true }))
const names = localNames({ HOME: home })
const clock = createManualClock()
const hourMs = 3_600_000

const recordOf = (name: string, changes: Partial<SeenInstance> = {}): SeenInstance => ({
  name,
  status: 'provisioning',
  hostname: `${name}.acme.agents.example`,
  public_key: ed25519Line(2),
  inference_model: 'tiny',
  created_at: '2026-11-20T08:30:00.000Z',
  ...changes,
})

/** A service whose create is idempotent, as that of the contract. */
const service = {
  host: 'a.example',
  records: new Map<string, SeenInstance>(),
  byKey: new Map<string, string>(),
  bodies: [] as CreateRequest[],
  removed: [] as string[],
  /** Thrown after the create was made, or instead of it. */
  loses: null as Error | null,
  refuses: null as Error | null,
  create: async (body: CreateRequest, key: string) => {
    service.bodies.push(body)
    if (service.refuses !== null) throw service.refuses
    const name = service.byKey.get(key) ?? `inst000${service.byKey.size}`
    service.byKey.set(key, name)
    if (!service.records.has(name)) service.records.set(name, recordOf(name, { public_key: body.public_key }))
    if (service.loses !== null) throw service.loses
    return service.records.get(name) ?? recordOf(name)
  },
  retrieve: async (name: string) => service.records.get(name) ?? null,
  remove: async (name: string) => {
    service.removed.push(name)
    return service.records.get(name) ?? null
  },
}
const hints: string[] = []
const request: InstanceRequest = {
  name: 'work',
  api: 'https://a.example',
  publicKey: `${ed25519Line(2)} me`,
  model: null,
}
const open = (changes: Partial<InstanceRequest> = {}) =>
  openInstance({ service, names, clock, hint: async text => void hints.push(text) }, { ...request, ...changes })

beforeEach(() => {
  rmSync(join(home, '.config'), { recursive: true, force: true })
  service.records.clear()
  service.byKey.clear()
  Object.assign(service, { bodies: [], removed: [], loses: null, refuses: null })
  hints.length = 0
})

const lost = new RefusedFault('internal', '502', { remedy: 'x', retryMs: null, status: 502 })
const refusal = (status: number) =>
  new RefusedFault('invalid_request', `${status}`, { remedy: 'x', retryMs: null, status })

test('goal: the second time it is found, also after its response was lost', async () => {
  service.loses = lost
  await expect(open()).rejects.toBe(lost)
  service.loses = null
  const { record, isCreated } = await open()
  expect([record.name, isCreated, service.byKey.size]).toEqual(['inst0000', true, 1])
  expect(await open()).toMatchObject({ record: { name: 'inst0000' }, isCreated: false })
  expect(service.bodies).toHaveLength(2)
})

test('goal: an interrupted create keeps its key and model, and its Idempotency-Key for 23 hours alone', async () => {
  service.loses = lost
  await expect(open({ model: 'large' })).rejects.toBe(lost)
  const other = 'named another SSH key, model, reach or snapshot'
  await expect(open()).rejects.toThrow(other)
  await expect(open({ model: 'large', publicKey: ed25519Line(3) })).rejects.toThrow(other)
  // The comment of a key may name a person and a machine.
  expect(service.bodies).toEqual([{ public_key: ed25519Line(2), inference_model: 'large' }])
  clock.advance(22 * hourMs)
  await expect(open({ model: 'large' })).rejects.toBe(lost)
  expect(service.byKey.size).toBe(1)
  clock.advance(2 * hourMs)
  service.loses = null
  await open()
  expect(service.byKey.size).toBe(2)
})

test('goal: a refusal frees the name, unless an earlier request may have been accepted', async () => {
  for (const status of [400, 409]) {
    service.refuses = refusal(status)
    await expect(open()).rejects.toBe(service.refuses)
    expect(names.find('work')).toBeNull()
  }
  service.refuses = refusal(503)
  await expect(open()).rejects.toBe(service.refuses)
  service.refuses = refusal(429)
  await expect(open()).rejects.toBe(service.refuses)
  expect(names.find('work')).not.toBeNull()
})

test('goal: what ended or failed is replaced, the failed one is deleted, and what cannot be seen stays', async () => {
  await open()
  service.records.set('inst0000', recordOf('inst0000', { status: 'terminated' }))
  expect((await open()).record.name).toBe('inst0001')
  expect([hints, service.removed]).toEqual([
    ['work: inst0000.acme.agents.example is terminated; creating another one'],
    [],
  ])
  service.records.set('inst0001', recordOf('inst0001', { status: 'failed', failure_code: 'boot_failed' }))
  expect((await open()).record.name).toBe('inst0002')
  expect(service.removed).toEqual(['inst0001'])
  service.records.delete('inst0002')
  await expect(open()).rejects.toMatchObject({ code: 'not_found' })
  expect([names.find('work')?.hostname, service.byKey.size]).toEqual(['inst0002.acme.agents.example', 3])
})

test('goal: an instance that may not be new is neither created nor replaced; one that lives is found', async () => {
  const refused = new Error('not new')
  const refuseNew = () => {
    throw refused
  }
  await expect(open({ refuseNew })).rejects.toBe(refused)
  expect([names.find('work'), service.bodies]).toEqual([null, []])
  service.loses = lost
  await expect(open()).rejects.toBe(lost)
  await expect(open({ refuseNew })).rejects.toBe(refused)
  expect(service.bodies).toHaveLength(1)
  service.loses = null
  await open()
  expect(await open({ refuseNew })).toMatchObject({ record: { name: 'inst0000' }, isCreated: false })
  const before = names.find('work')
  service.records.set('inst0000', recordOf('inst0000', { status: 'failed', failure_code: 'boot_failed' }))
  await expect(open({ refuseNew })).rejects.toBe(refused)
  expect([service.removed, hints, names.find('work'), service.byKey.size]).toEqual([[], [], before, 1])
  service.records.set('abcd1234', recordOf('abcd1234'))
  expect(await open({ name: 'abcd1234', refuseNew })).toMatchObject({ isCreated: false })
  await expect(open({ name: 'dcba4321', refuseNew })).rejects.toBe(refused)
  expect([names.find('dcba4321'), service.byKey.size]).toEqual([null, 1])
})

test('goal: a service that contradicts itself is refused', async () => {
  await open()
  service.records.set('inst0000', recordOf('inst0000', { hostname: 'inst0000.other.agents.example' }))
  await expect(open()).rejects.toThrow('has the host name inst0000.other.agents.example')
  service.records.set('inst0000', recordOf('inst0000'))
  const answering = (record: SeenInstance) =>
    openInstance(
      { service: { ...service, create: async () => record }, names, clock, hint: async () => {} },
      { ...request, name: 'second' },
    )
  await expect(answering(recordOf('inst0000'))).rejects.toThrow('which is work on this machine')
  await expect(answering(recordOf('inst0009', { public_key: ed25519Line(9) }))).rejects.toThrow('another public key')
  await expect(answering(recordOf('inst0009', { public_key: '\u001b[2J' }))).rejects.toThrow('another public key')
})

test('goal: the name that the service drew is taken over, once', async () => {
  service.records.set('abcd1234', recordOf('abcd1234'))
  expect(await open({ name: 'abcd1234' })).toMatchObject({ record: { name: 'abcd1234' }, isCreated: false })
  await open()
  const { hostname } = names.find('work') ?? {}
  await expect(open({ name: hostname?.split('.')[0] ?? '' })).rejects.toThrow('is called work on this machine')
  service.records.set('dead1234', recordOf('dead1234', { status: 'terminated' }))
  expect((await open({ name: 'dead1234' })).isCreated).toBe(true)
})

/** Opens while another command opens the same name, at the remark that this one replaces its instance. */
const openDuring = (other: () => Promise<unknown>) => {
  let isDone = false
  const hint = async () => {
    if (isDone) return
    isDone = true
    await other()
  }
  return openInstance({ service, names, clock, hint }, request)
}

test('goal: of two commands that replace a failed instance, one creates, and both have its VM', async () => {
  await open()
  service.records.set('inst0000', recordOf('inst0000', { status: 'failed', failure_code: 'boot_failed' }))
  const first: unknown[] = []
  const second = await openDuring(async () => first.push(await open()))
  expect([first, second]).toEqual([
    [expect.objectContaining({ isCreated: true, record: recordOf('inst0001') })],
    expect.objectContaining({ isCreated: false, record: recordOf('inst0001') }),
  ])
  expect([service.byKey.size, names.find('work')?.hostname]).toEqual([2, 'inst0001.acme.agents.example'])
  service.records.set('inst0001', recordOf('inst0001', { status: 'terminated' }))
  const both = await Promise.all([open(), open()])
  expect([both.map(({ record }) => record.name), service.byKey.size]).toEqual([['inst0002', 'inst0002'], 3])
})

test('goal: of two commands after the time of an Idempotency-Key, one creates', async () => {
  service.loses = lost
  await expect(open()).rejects.toBe(lost)
  service.loses = null
  clock.advance(24 * hourMs)
  const both = await Promise.all([open(), open()])
  expect([both.map(({ record }) => record.name), service.byKey.size]).toEqual([['inst0001', 'inst0001'], 2])
})

test('goal: a refusal frees no name that another command has, and a VM that was created keeps one', async () => {
  const other = { ...request, name: 'work' }
  const racing = (during: () => Promise<unknown>) => {
    const create = async (body: CreateRequest, key: string) => {
      await during()
      return await service.create(body, key)
    }
    return openInstance({ service: { ...service, create }, names, clock, hint: async () => {} }, other)
  }
  const forget = async () => {
    const local = names.find('work')
    if (local !== null) await names.replace('work', local, null)
  }
  await racing(forget)
  expect(names.find('work')?.hostname).toBe('inst0000.acme.agents.example')
  await forget()
  const replacedMeanwhile = racing(async () => {
    await forget()
    await open()
  })
  await expect(replacedMeanwhile).rejects.toMatchObject({
    message: 'inst0002.acme.agents.example was created, but work is another instance by now',
    remedy: expect.stringContaining('`strongroom rm inst0002`'),
  })
  expect(names.find('work')?.hostname).toBe('inst0001.acme.agents.example')
  await forget()
  const refusedMeanwhile = racing(async () => {
    await forget()
    await open()
    service.refuses = refusal(409)
  })
  await expect(refusedMeanwhile).rejects.toThrow('409')
  expect(names.find('work')?.hostname).toBe('inst0003.acme.agents.example')
})

test('goal: a service at a new address has the instance that it knows; one that does not know it is refused', async () => {
  await open()
  const api = 'https://b.example'
  expect(await open({ api })).toMatchObject({ record: { name: 'inst0000' }, isCreated: false, local: { api } })
  expect([names.find('work')?.api, service.byKey.size]).toEqual([api, 1])
  service.records.clear()
  await expect(open()).rejects.toMatchObject({
    message: 'work is an instance of https://b.example, not of https://a.example',
    remedy: expect.stringContaining('`strongroom rm work --forget`'),
  })
  expect([names.find('work')?.api, service.byKey.size]).toEqual([api, 1])
})
