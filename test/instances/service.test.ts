// Goal: an instance is created within each limit and refused from its number on, once for each Idempotency-Key, and
// only its organization sees or ends it.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { Fault } from '../../src/base/fault.ts'
import { newUuid, systemRandom } from '../../src/base/ids.ts'
import { createLogger } from '../../src/base/log.ts'
import { retryAfterOf, UnavailableFault } from '../../src/http/limited.ts'
import {
  createInstancesService,
  type InstancesDeps,
  type InstancesSettings,
  type Principal,
} from '../../src/instances/service.ts'
import { type DirectoryTx, openStore } from '../../src/store/db.ts'
import { insertReservation } from '../../src/store/directory/build.query.ts'
import { findInstance, moveInstance } from '../../src/store/directory/instance.query.ts'
import { insertKey, revokeKey } from '../../src/store/directory/key.query.ts'
import {
  findOrganization,
  insertOrganization,
  organizationById,
  setOrganizationQuotas,
  setOrganizationStatus,
} from '../../src/store/directory/organization.query.ts'
import { withHosts } from '../rigs/fleet/with-hosts.ts'

const settings: InstancesSettings = {
  domain: 'agents.example',
  inferenceModels: ['tiny', 'big'],
  instancesPerOrganizationMax: 100,
  instanceMemoryMib: 2048,
  buildMemoryMib: 4096,
  createsPerDayMax: 100,
  recordsPerOrganizationMax: 100,
  retentionDays: 30,
  egressPriceMicroUsdPerGib: 1,
} as never
const dayMs = 24 * 60 * 60 * 1000
const asked = { publicKey: 'ssh-ed25519 AAAA', inferenceModel: null, egress: null }

type Changes = Partial<InstancesDeps> & { readonly hosts?: Partial<DirectoryTx['hosts']> }

function open(limits: Partial<InstancesSettings> = {}, { hosts, ...changes }: Changes = {}) {
  const clock = createManualClock()
  const store = openStore(':memory:', { clock })
  const { db } = store.directory
  const called: string[] = []
  const logged: string[] = []
  const callerOf = (slug: string): Principal => {
    insertOrganization(db, { id: slug, slug, nowMs: 0 })
    const keyPrefix = `${slug}00000000`.slice(0, 8)
    insertKey(db, {
      prefix: keyPrefix,
      organizationId: slug,
      secretSha256: new Uint8Array(32),
      scope: 'write',
      nowMs: 0,
    })
    const organization = findOrganization(db, slug)
    if (organization === null) throw new Error('it was inserted')
    return { organization, keyPrefix }
  }
  const service = createInstancesService({
    directory: withHosts(store.directory, clock, hosts),
    platform: 'tcg',
    clock,
    admitNew: () => {},
    isClockTrusted: () => true,
    random: systemRandom,
    log: createLogger({ level: 'debug', sink: line => void logged.push(line), nowMs: clock.nowMs }),
    settings: { ...settings, ...limits },
    takeVm: () => ({ vmId: newUuid(), start: 'cold' }),
    onCreated: ({ name }, start) => void called.push(`created ${name} ${start}`),
    onDeleted: ({ name }) => void called.push(`deleted ${name}`),
    inferenceCostMicroUsd: () => 0n,
    ...changes,
  })
  const [acme, globex] = [callerOf('acme'), callerOf('globex')]
  const create = async (caller = acme, key: string | null = null, request = asked) =>
    (await service.create(caller, request, key)).data.name
  const rowOf = (name: string, organizationId = 'acme') => findInstance(db, { organizationId, name })
  const end = (name: string) => {
    const row = rowOf(name)
    if (row === null) throw new Error('there is none')
    const nowMs = clock.nowMs()
    if (row.status !== 'terminating') moveInstance(db, { id: row.id, from: row.status, to: 'terminating', nowMs })
    moveInstance(db, { id: row.id, from: 'terminating', to: 'terminated', nowMs, terminatedAtMs: nowMs })
  }
  return { store, db, clock, service, acme, globex, called, logged, create, rowOf, end }
}

async function refusal(work: () => Promise<unknown>): Promise<string> {
  try {
    await work()
    return 'accepted'
  } catch (error) {
    if (!(error instanceof Fault)) throw error
    return [error.code, error.param, retryAfterOf(error)].filter(part => part !== null && part !== undefined).join(' ')
  }
}

test('goal: a new instance has the default model, a name of its own below the domain, and a VM to come', async () => {
  const { create, rowOf, called, store, clock } = open()
  const name = await create()
  expect(name).toMatch(/^[a-z0-9]{8}$/)
  expect(rowOf(name)).toMatchObject({
    organizationId: 'acme',
    hostId: store.hostId,
    hostname: `${name}.acme.agents.example`,
    publicKey: 'ssh-ed25519 AAAA',
    inferenceModel: 'tiny',
    platform: 'tcg',
    status: 'provisioning',
    createdAtMs: clock.nowMs(),
  })
  expect(called).toEqual([`created ${name} cold`])
  const big = await create(undefined, null, { ...asked, inferenceModel: 'big' as never })
  expect(rowOf(big)?.inferenceModel).toBe('big')
  expect(await refusal(() => create(undefined, null, { ...asked, inferenceModel: 'gone' as never }))).toBe(
    'invalid_request inference_model',
  )
})

test('goal: a warm VM is taken, and a call back that fails changes nothing', async () => {
  const vmId = newUuid()
  const { create, rowOf, logged } = open(
    {},
    {
      takeVm: () => ({ vmId, start: 'warm' }),
      onCreated: () => {
        throw new Error('no')
      },
    },
  )
  const name = await create()
  expect([rowOf(name)?.vmId, logged.filter(line => line.includes('an instance callback failed')).length]).toEqual([
    vmId,
    1,
  ])
})

test('goal: each limit refuses from its number on, and frees with the instance, the record or the day', async () => {
  const living = open({ instancesPerOrganizationMax: 2 })
  const first = await living.create()
  await living.create()
  expect(await refusal(() => living.create())).toBe('conflict')
  expect(await refusal(() => living.create(living.globex))).toBe('accepted')
  living.end(first)
  expect(await refusal(() => living.create())).toBe('accepted')

  const daily = open({ createsPerDayMax: 2 })
  await daily.create()
  daily.clock.advance(60_000)
  daily.end(await daily.create())
  expect(await refusal(() => daily.create())).toBe(`rate_limited ${(dayMs - 60_000) / 1000}`)
  daily.clock.advance(dayMs - 60_000 + 1)
  expect(await refusal(() => daily.create())).toBe('accepted')

  const records = open({ recordsPerOrganizationMax: 1 })
  records.end(await records.create())
  expect(await refusal(() => records.create())).toMatch(/^rate_limited \d+$/)
})

test('goal: one key of idempotency makes one instance in 24 hours, for one body and one organization', async () => {
  const { create, clock, rowOf, globex, called, end } = open({ instancesPerOrganizationMax: 1 })
  const name = await create(undefined, 'k')
  // Before limits: the response is the first one, though there is no room and it has ended.
  expect(await create(undefined, 'k')).toBe(name)
  expect(await refusal(() => create(undefined, 'k', { ...asked, publicKey: 'other' }))).toBe('conflict Idempotency-Key')
  end(name)
  expect(await create(undefined, 'k')).toBe(name)
  const theirs = await create(globex, 'k')
  expect([rowOf(theirs), rowOf(theirs, 'globex') === null]).toEqual([null, false])
  clock.advance(dayMs - 1)
  expect(await create(undefined, 'k')).toBe(name)
  clock.advance(1)
  expect(await create(undefined, 'k')).not.toBe(name)
  expect(called).toHaveLength(3)
})

test('goal: while the clock is not believed, no stored response counts as expired', async () => {
  const { create, clock } = open({}, { isClockTrusted: () => false })
  const name = await create(undefined, 'k')
  clock.advance(10 * dayMs)
  expect(await create(undefined, 'k')).toBe(name)
})

test('goal: a key that was revoked and an organization that was suspended since then create nothing', async () => {
  const { create, db, acme, globex, clock, called } = open()
  setOrganizationStatus(db, { slug: 'globex', status: 'suspended' })
  expect(await refusal(() => create(globex))).toBe('forbidden')
  revokeKey(db, { prefix: acme.keyPrefix, nowMs: clock.nowMs() } as never)
  expect(await refusal(() => create())).toBe('unauthenticated')
  expect(called).toEqual([])
})

test('goal: an instance is ended once, in every state, and by its organization alone', async () => {
  const { create, service, acme, globex, called, rowOf, end } = open()
  const name = await create()
  expect(await refusal(() => service.remove(globex, name))).toBe('not_found')
  expect(await refusal(() => service.retrieve(globex, name))).toBe('not_found')
  expect(await refusal(() => service.retrieve(acme, 'A'.repeat(8)))).toBe('not_found')
  const { data } = await service.remove(acme, name)
  expect([data.status, rowOf(name)?.desired, rowOf(name)?.terminatedReason]).toEqual([
    'terminating',
    'absent',
    'deleted_via_api',
  ])
  await service.remove(acme, name)
  end(name)
  expect((await service.remove(acme, name)).data.status).toBe('terminated')
  expect(called.slice(1)).toEqual([`deleted ${name}`])
})

test('goal: an instance whose idle time is over ends once, for that reason, and only while it is ready', async () => {
  const { create, service, db, called, rowOf, acme } = open()
  const name = await create()
  const row = rowOf(name)
  if (row === null) throw new Error('it was created')
  await service.endIdle(row)
  expect(rowOf(name)?.status).toBe('provisioning')
  moveInstance(db, { id: row.id, from: 'provisioning', to: 'ready', nowMs: 1, readyAtMs: 1 })
  await service.endIdle(row)
  await service.endIdle(row)
  const { data } = await service.retrieve(acme, name)
  expect([data.status, data.terminated_reason, rowOf(name)?.desired]).toEqual(['terminating', 'idle', 'absent'])
  expect((await service.remove(acme, name)).data.terminated_reason).toBe('idle')
  expect(called.slice(1)).toEqual([`deleted ${name}`])
})

test('goal: an instance of another host is a row without a VM, and what a lost host has ends here', async () => {
  const place = () => ({ kind: 'placed', hostId: 'other' }) as const
  const { create, service, acme, rowOf } = open({}, { hosts: { place }, takeVm: () => ({ vmId: null, start: 'cold' }) })
  const name = await create()
  expect(rowOf(name)).toMatchObject({ hostId: 'other', platform: 'tcg', vmId: null })
  expect((await service.remove(acme, name)).data.status).toBe('terminated')
})

test('goal: without a host that takes it an instance is not created, and the refusal says why', async () => {
  const reason = 'every host is full'
  const { create, db } = open({}, { hosts: { place: () => ({ kind: 'refused', reason }) } })
  const refused = create()
  await expect(refused).rejects.toThrow(`No host of this fleet can take the instance: ${reason}. Nothing was created`)
  expect(await refusal(() => refused)).toBe('fleet.unavailable 10')
  expect(findOrganization(db, 'acme')?.recordCount).toBe(0)
})

/** Code and message of a refusal. */
async function refusalText(work: () => Promise<unknown>): Promise<string> {
  try {
    await work()
    return 'accepted'
  } catch (error) {
    if (!(error instanceof Fault)) throw error
    return `${error.code}: ${error.message}`
  }
}

test('goal: quotas replace the configured limits for one organization, up and down, and end with null', async () => {
  const { db, create, globex, end, clock } = open({ instancesPerOrganizationMax: 2, createsPerDayMax: 4 })
  setOrganizationQuotas(db, 'acme', { instances: 1 })
  const first = await create()
  expect(await refusalText(create)).toBe('conflict: The organization has its limit of 1 instances; delete one first.')
  for (let n = 0; n < 2; n += 1) await create(globex)
  expect(await refusalText(() => create(globex))).toContain('limit of 2 instances')
  setOrganizationQuotas(db, 'acme', { instances: 3, creates_per_day: 3 })
  const more = [await create(), await create()]
  expect(await refusalText(create)).toContain('limit of 3 instances')
  for (const name of [first, ...more]) end(name)
  expect(await refusalText(create)).toBe(
    'rate_limited: The organization has created its limit of 3 instances within 24 hours.',
  )
  setOrganizationQuotas(db, 'acme', { instances: 3, creates_per_day: null })
  expect(await refusalText(create)).toBe('accepted')
  expect(await refusalText(create)).toContain('limit of 4 instances within 24 hours')
  clock.advance(dayMs)
  setOrganizationQuotas(db, 'acme', { instances: 0 })
  expect(await refusalText(create)).toBe(
    'conflict: The operator allows this organization no instances; ask the operator.',
  )
})

test('goal: a quota of memory counts instances, builds and reserved VMs, exactly, and frees with each of them', async () => {
  const { db, store, create, globex, end } = open({ instanceMemoryMib: 2048, buildMemoryMib: 4096 })
  setOrganizationQuotas(db, 'acme', { memory_mib: 8192 })
  insertReservation(db, { vmId: 'vm', hostId: store.hostId, organizationId: 'acme', expiresAtMs: 1 })
  const first = await create()
  await create()
  const used = 'An instance takes 2048 MiB of memory, and the organization uses 8192 of its 8192 MiB'
  expect(await refusalText(create)).toBe(`conflict: ${used}; delete an instance, or wait for its builds to finish.`)
  expect(await refusalText(() => create(globex))).toBe('accepted')
  end(first)
  expect(await refusalText(create)).toBe('accepted')
  setOrganizationQuotas(db, 'globex', { memory_mib: 2047 })
  expect(await refusalText(() => create(globex))).toContain('uses 2048 of its 2047 MiB; ask the operator.')
})

test('goal: a host that admits nothing new creates nothing, and repeats its earlier responses', async () => {
  const host = { isOpen: true }
  const admitNew = () => {
    if (!host.isOpen) throw new UnavailableFault('closed', 5_000)
  }
  const { create, db, service, acme } = open({}, { admitNew })
  const name = await create(acme, 'key')
  host.isOpen = false
  expect(await refusal(create)).toBe('attestation_unavailable 5')
  expect(await create(acme, 'key')).toBe(name)
  expect((await service.remove(acme, name)).data.status).toBe('terminating')
  expect(organizationById(db, 'acme')?.livingCount).toBe(1)
  host.isOpen = true
  expect(await refusal(create)).toBe('accepted')
})
