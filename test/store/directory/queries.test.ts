// The queries of organizations, keys, instances and stored responses, over a real database.

import { describe, expect, test } from 'bun:test'
import { openStore, type Store } from '../../../src/store/db.ts'
import {
  deleteExpiredIdempotency,
  findIdempotency,
  insertIdempotency,
} from '../../../src/store/directory/idempotency.query.ts'
import {
  deleteExpired,
  egressTotals,
  findInstance,
  insertInstance,
  instanceById,
  instanceByVm,
  instancesByVms,
  listChangesOverlapping,
  listInstances,
  listLiving,
  moveInstance,
  setInstanceEgress,
} from '../../../src/store/directory/instance.query.ts'
import type { InstanceStatus } from '../../../src/store/directory/instance.table.ts'
import { findKey, insertKey, listKeys, revokeKey, touchKey } from '../../../src/store/directory/key.query.ts'
import {
  findOrganization,
  insertOrganization,
  listOrganizations,
  organizationById,
  setOrganizationStatus,
} from '../../../src/store/directory/organization.query.ts'

function open(): Store & Disposable {
  const store = openStore(':memory:')
  insertOrganization(store.directory.db, { id: 'o1', slug: 'acme', nowMs: 1 })
  insertOrganization(store.directory.db, { id: 'o2', slug: 'globex', nowMs: 2 })
  return { ...store, [Symbol.dispose]: store.close }
}

function addInstance(
  store: Store,
  id: string,
  changes: { organizationId?: string; name?: string; hostname?: string; vmId?: string; nowMs?: number } = {},
) {
  return insertInstance(store.directory.db, {
    id,
    hostId: store.hostId,
    organizationId: 'o1',
    name: id,
    hostname: `${id}.example`,
    agent: 'opencode',
    publicKey: 'ssh-ed25519 AAAA',
    inferenceMode: 'default_gateway',
    inferenceModel: 'tiny',
    vmId: null,
    nowMs: 10,
    ...changes,
  })
}

describe('organizations', () => {
  // Goal: a slug is taken once; organizations are found by slug and by id, and suspended by slug.
  test('insert, find, suspend', () => {
    using store = open()
    const { db } = store.directory
    expect(insertOrganization(db, { id: 'o3', slug: 'acme', nowMs: 3 })).toBe(false)
    expect(organizationById(db, 'o3')).toBeNull()
    expect(findOrganization(db, 'acme')).toEqual({
      id: 'o1',
      slug: 'acme',
      status: 'active',
      createdAtMs: 1,
      deletingAtMs: null,
      deletedAtMs: null,
      ...{ budgetNanoUsd: null, budgetTokens: null, shortBudgets: null, quotas: null },
      recordCount: 0,
      livingCount: 0,
    })
    expect([findOrganization(db, 'ACME'), findOrganization(db, '')]).toEqual([null, null])
    expect(listOrganizations(db).map(({ slug }) => slug)).toEqual(['acme', 'globex'])
    expect(setOrganizationStatus(db, { slug: 'acme', status: 'suspended' })).toBe(true)
    expect(organizationById(db, 'o1')?.status).toBe('suspended')
    expect(setOrganizationStatus(db, { slug: 'none', status: 'suspended' })).toBe(false)
    expect(organizationById(db, 'o2')?.status).toBe('active')
  })
})

describe('keys', () => {
  const key = {
    prefix: 'abcd1234',
    organizationId: 'o1',
    secretSha256: new Uint8Array(32).fill(7),
    scope: 'write',
    nowMs: 5,
  } as const

  // Goal: a prefix is taken once, a hash has 32 bytes, and a key needs its organization.
  test('insert and find', () => {
    using store = open()
    const { db } = store.directory
    expect(insertKey(db, key)).toBe(true)
    expect(insertKey(db, { ...key, organizationId: 'o2' })).toBe(false)
    expect(() => insertKey(db, { ...key, prefix: 'x', secretSha256: new Uint8Array(31) })).toThrow('invariant broken')
    expect(() => insertKey(db, { ...key, prefix: 'x', organizationId: 'none' })).toThrow()
    expect(findKey(db, 'abcd1234')).toEqual({
      prefix: 'abcd1234',
      organizationId: 'o1',
      secretSha256: Buffer.alloc(32, 7),
      isClientMade: false,
      name: null,
      scope: 'write',
      createdAtMs: 5,
      revokedAtMs: null,
      lastUsedAtMs: null,
    })
    expect(findKey(db, 'ABCD1234')).toBeNull()
    expect(listKeys(db, 'o1')).toHaveLength(1)
    expect(listKeys(db, 'o2')).toEqual([])
  })

  // Goal: revoking is idempotent and keeps the first time; what is not there cannot be revoked.
  test('revoke', () => {
    using store = open()
    insertKey(store.directory.db, key)
    expect(revokeKey(store.directory.db, { prefix: key.prefix, nowMs: 100 })).toBe(true)
    expect(revokeKey(store.directory.db, { prefix: key.prefix, nowMs: 200 })).toBe(true)
    expect(findKey(store.directory.db, key.prefix)?.revokedAtMs).toBe(100)
    expect(revokeKey(store.directory.db, { prefix: 'none', nowMs: 1 })).toBe(false)
  })

  // Goal: the use is written at most once a minute, or when the noted one lies in the future.
  test('touch', () => {
    using store = open()
    insertKey(store.directory.db, key)
    const touched = [1_000, 60_999, 61_000, 61_001, 500].map(nowMs => {
      touchKey(store.directory.db, { prefix: key.prefix, nowMs })
      return findKey(store.directory.db, key.prefix)?.lastUsedAtMs
    })
    expect(touched).toEqual([1_000, 1_000, 61_000, 61_000, 500])
  })
})

describe('instances', () => {
  // Goal: a name is taken once per organization and a host name once at all; a refused insert leaves no trace in the
  // log.
  test('insert', () => {
    using store = open()
    const row = addInstance(store, 'i1')
    expect(row).toMatchObject({
      status: 'provisioning',
      desired: 'present',
      egressBytes: 0,
      readyAtMs: null,
      createdAtMs: 10,
      changedAtMs: 10,
    })
    expect(addInstance(store, 'i2', { name: 'i1' })).toBeNull()
    expect(addInstance(store, 'i2', { hostname: 'i1.example' })).toBeNull()
    expect(addInstance(store, 'i2', { organizationId: 'o2', name: 'i1' })).not.toBeNull()
    expect(store.directory.db.all('SELECT instance_id, status, at_ms FROM instance_changes')).toEqual([
      { instance_id: 'i1', status: 'provisioning', at_ms: 10 },
      { instance_id: 'i2', status: 'provisioning', at_ms: 10 },
    ])
    // The VM is the other room's: it is made after the row.
    expect(addInstance(store, 'i3', { vmId: 'not made yet' })?.vmId).toBe('not made yet')
  })

  const STATUSES: readonly InstanceStatus[] = ['provisioning', 'ready', 'failed', 'terminating', 'terminated']
  for (const held of STATUSES) {
    // Goal: only the move that knows the present status happens, once, and only it is logged.
    test(`compare-and-set on an instance that is ${held}`, () => {
      using store = open()
      const { db } = store.directory
      addInstance(store, 'i1')
      if (held !== 'provisioning')
        moveInstance(db, {
          id: 'i1',
          from: 'provisioning',
          to: held,
          nowMs: 20,
          terminatedAtMs: held === 'terminated' ? 20 : null,
        })
      const logLength = () => db.all('SELECT id FROM instance_changes').length
      const before = logLength()
      for (const from of STATUSES.filter(status => status !== held && status !== 'terminated')) {
        const to = from === 'ready' ? 'failed' : 'ready'
        expect(moveInstance(db, { id: 'i1', from, to, nowMs: 30 })).toBe(false)
      }
      expect([instanceById(db, 'i1')?.status, instanceById(db, 'i1')?.changedAtMs, logLength()]).toEqual([
        held,
        held === 'provisioning' ? 10 : 20,
        before,
      ])
      if (held === 'terminated') {
        expect(() => moveInstance(db, { id: 'i1', from: 'terminated', to: 'ready', nowMs: 30 })).toThrow(
          'nothing leaves terminated',
        )
        return
      }
      const to = held === 'terminating' ? 'failed' : 'terminating'
      expect(moveInstance(db, { id: 'i1', from: held, to, nowMs: 30, desired: 'absent' })).toBe(true)
      expect(moveInstance(db, { id: 'i1', from: held, to, nowMs: 40 })).toBe(false)
      expect(instanceById(db, 'i1')).toMatchObject({ status: to, desired: 'absent', changedAtMs: 30 })
      expect(logLength()).toBe(before + 1)
    })
  }

  // Goal: a move that makes no sense is a bug of ours and says so.
  test('moves that cannot be', () => {
    using store = open()
    addInstance(store, 'i1')
    expect(() => moveInstance(store.directory.db, { id: 'i1', from: 'ready', to: 'ready', nowMs: 1 })).toThrow(
      'a move changes the status',
    )
    expect(() =>
      moveInstance(store.directory.db, { id: 'i1', from: 'terminating', to: 'terminated', nowMs: 1 }),
    ).toThrow('has its time')
    expect(moveInstance(store.directory.db, { id: 'none', from: 'provisioning', to: 'ready', nowMs: 1 })).toBe(false)
  })

  // Goal: a move inside a transaction that fails later is undone with it, log and all.
  test('a move rolls back with its transaction', () => {
    using store = open()
    addInstance(store, 'i1')
    const attempt = () =>
      store.directory.transact(tx => {
        expect(moveInstance(tx, { id: 'i1', from: 'provisioning', to: 'ready', nowMs: 20 })).toBe(true)
        throw new Error('later')
      })
    expect(attempt).toThrow('later')
    expect(instanceById(store.directory.db, 'i1')?.status).toBe('provisioning')
    expect(store.directory.db.all('SELECT id FROM instance_changes')).toHaveLength(1)
  })

  // Goal: each way of finding gives what belongs to it, in order, and nothing of other organizations.
  test('finding', () => {
    using store = open()
    const { db } = store.directory
    addInstance(store, 'b', { nowMs: 10 })
    addInstance(store, 'a', { nowMs: 10 })
    addInstance(store, 'c', { nowMs: 5, vmId: 'v1' })
    addInstance(store, 'd', { organizationId: 'o2', nowMs: 1 })
    moveInstance(db, { id: 'a', from: 'provisioning', to: 'terminated', nowMs: 20, terminatedAtMs: 20 })
    expect(listInstances(db, 'o1').map(({ id }) => id)).toEqual(['c', 'a', 'b'])
    expect(listLiving(db, store.hostId).map(({ id }) => id)).toEqual(['d', 'c', 'b'])
    expect(findInstance(db, { organizationId: 'o1', name: 'b' })?.id).toBe('b')
    expect(findInstance(db, { organizationId: 'o2', name: 'b' })).toBeNull()
    expect(listLiving(db, 'another host')).toEqual([])
    expect(instanceByVm(db, 'v1')?.id).toBe('c')
    const byVm = [...instancesByVms(db, ['none', 'v1'])]
    expect(byVm.map(([vmId, { id }]) => [vmId, id])).toEqual([['v1', 'c']])
    moveInstance(db, { id: 'c', from: 'provisioning', to: 'terminated', nowMs: 30, terminatedAtMs: 30, vmId: null })
    expect(instanceByVm(db, 'v1')).toBeNull()
  })

  // Goal: egress samples are whole counts and touch neither status nor log.
  test('egress', () => {
    using store = open()
    addInstance(store, 'i1')
    setInstanceEgress(store.directory.db, [
      {
        id: 'i1',
        egressBytes: 5_368_709_120,
        egressObservedAtMs: 7,
        egressBlockAppliedAtMs: 6,
      },
    ])
    expect(instanceById(store.directory.db, 'i1')).toMatchObject({
      egressBytes: 5_368_709_120,
      egressObservedAtMs: 7,
      egressBlockAppliedAtMs: 6,
      changedAtMs: 10,
    })
    setInstanceEgress(store.directory.db, [
      {
        id: 'i1',
        egressBytes: 5_368_709_121,
        egressObservedAtMs: 8,
        egressBlockAppliedAtMs: null,
      },
    ])
    expect(instanceById(store.directory.db, 'i1')?.egressBlockAppliedAtMs).toBeNull()
    addInstance(store, 'i2')
    const of = (id: string, egressBytes: number) => ({
      id,
      egressBytes,
      egressObservedAtMs: 9,
      egressBlockAppliedAtMs: null,
    })
    setInstanceEgress(store.directory.db, [of('i2', 2), of('none', 3), of('i1', 1)])
    expect(listInstances(store.directory.db, 'o1').map(({ id, egressBytes }) => [id, egressBytes])).toEqual([
      ['i1', 1],
      ['i2', 2],
    ])
    for (const egressBytes of [-1, 0.5, Number.NaN]) {
      expect(() =>
        setInstanceEgress(store.directory.db, [
          {
            id: 'i1',
            egressBytes,
            egressObservedAtMs: 1,
            egressBlockAppliedAtMs: null,
          },
        ]),
      ).toThrow('invariant broken')
    }
  })

  // Goal: usage shows the oldest block that the firewall has, and none of an instance that failed: its VM is gone.
  test('egress of an organization', () => {
    using store = open()
    const { db } = store.directory
    const nothing = { bytes: 0, observedAtMs: null, blockedAtMs: null }
    expect(egressTotals(db, 'o1')).toEqual(nothing)
    const samples = [
      ['failing', 100, 9, 2],
      ['old', 20, 7, 4],
      ['newer', 3, 8, 5],
    ] as const
    for (const [id, egressBytes, egressObservedAtMs, egressBlockAppliedAtMs] of samples) {
      addInstance(store, id)
      setInstanceEgress(db, [{ id, egressBytes, egressObservedAtMs, egressBlockAppliedAtMs }])
    }
    expect(egressTotals(db, 'o1')).toEqual({ bytes: 123, observedAtMs: 9, blockedAtMs: 2 })
    moveInstance(db, { id: 'failing', from: 'provisioning', to: 'failed', nowMs: 20 })
    expect(egressTotals(db, 'o1')).toEqual({ bytes: 123, observedAtMs: 9, blockedAtMs: 4 })
    for (const id of ['old', 'newer']) {
      moveInstance(db, { id, from: 'provisioning', to: 'terminating', nowMs: 21 })
      moveInstance(db, { id, from: 'terminating', to: 'terminated', nowMs: 22, terminatedAtMs: 22 })
    }
    expect(egressTotals(db, 'o1')).toEqual({ bytes: 100, observedAtMs: 9, blockedAtMs: null })
    expect(egressTotals(db, 'o2')).toEqual(nothing)
  })

  // Goal: change logs come whole and in the order written, for an organization's instances that are ready or changed
  // since.
  test('changes that reach into a window', () => {
    using store = open()
    const { db } = store.directory
    for (const [id, organizationId] of [
      ['old', 'o1'],
      ['over', 'o1'],
      ['ready', 'o1'],
      ['foreign', 'o2'],
    ] as const) {
      addInstance(store, id, { organizationId })
      moveInstance(db, { id, from: 'provisioning', to: 'ready', nowMs: 20 })
    }
    moveInstance(db, { id: 'old', from: 'ready', to: 'failed', nowMs: 30 })
    moveInstance(db, { id: 'over', from: 'ready', to: 'failed', nowMs: 99 })
    const found = listChangesOverlapping(db, { organizationId: 'o1', fromMs: 50 })
    expect(found.map(({ instanceId, status, atMs }) => `${instanceId} ${status} ${atMs}`)).toEqual([
      'over provisioning 10',
      'over ready 20',
      'ready provisioning 10',
      'ready ready 20',
      'over failed 99',
    ])
  })

  // Goal: only what was terminated before the time goes, at most `limit` at once, with its log.
  test('expiry', () => {
    using store = open()
    const { db } = store.directory
    for (const id of ['a', 'b', 'c', 'd']) {
      addInstance(store, id)
      const atMs = id === 'c' ? 60 : 50
      if (id !== 'd')
        moveInstance(db, { id, from: 'provisioning', to: 'terminated', nowMs: atMs, terminatedAtMs: atMs })
    }
    expect(deleteExpired(db, { terminatedBeforeMs: 50, limit: 10 })).toBe(0)
    expect(deleteExpired(db, { terminatedBeforeMs: 60, limit: 1 })).toBe(1)
    expect(deleteExpired(db, { terminatedBeforeMs: 60, limit: 10 })).toBe(1)
    expect(listInstances(db, 'o1').map(({ id }) => id)).toEqual(['c', 'd'])
    expect(db.all('SELECT DISTINCT instance_id FROM instance_changes')).toEqual([
      { instance_id: 'c' },
      { instance_id: 'd' },
    ])
  })

  // Goal: the paths that every request or sweep takes use an index.
  test('indexes', () => {
    using store = open()
    const plan = (sql: string) =>
      store.directory.db
        .all<{ detail: string }>(`EXPLAIN QUERY PLAN ${sql}`)
        .map(({ detail }) => detail)
        .join('; ')
    const PLANS = {
      "SELECT * FROM instances WHERE organization_id = 'o1' ORDER BY created_at_ms, id":
        'instances_organization_created',
      "SELECT * FROM instances WHERE organization_id = 'o1' AND name = 'x'": 'instances_organization_name',
      "SELECT host_id, count(*) FROM instances WHERE status IN ('provisioning', 'ready') GROUP BY status, host_id":
        'COVERING INDEX instances_status_host',
      "SELECT created_at_ms FROM instances WHERE organization_id = 'o1' AND created_at_ms > 5 ORDER BY created_at_ms DESC LIMIT 1 OFFSET 9":
        'COVERING INDEX instances_organization_created',
      "SELECT * FROM instances WHERE vm_id = 'v'": 'instances_vm',
      "SELECT * FROM instances WHERE status IN ('provisioning', 'ready', 'failed', 'terminating')": 'instances_status',
      "SELECT id FROM instances WHERE status = 'terminated' AND terminated_at_ms < 5 LIMIT 9": 'instances_status',
      "SELECT c.* FROM instance_changes c JOIN instances i ON i.id = c.instance_id WHERE i.organization_id = 'o1'":
        'instance_changes_instance',
      'SELECT rowid FROM idempotency WHERE created_at_ms <= 5 LIMIT 9': 'idempotency_created',
      "SELECT * FROM keys WHERE organization_id = 'o1'": 'keys_organization',
    }
    for (const [sql, index] of Object.entries(PLANS)) expect(`${sql}: ${plan(sql)}`).toContain(index)
  })
})

describe('stored responses', () => {
  const response = {
    organizationId: 'o1',
    key: 'k',
    bodySha256: new Uint8Array(32).fill(1),
    responseStatus: 202,
    responseData: '{"a":1}',
    nowMs: 5,
  } as const

  // Goal: a response is kept per organization and key, exactly; a later one under the same key takes its place.
  test('insert, find, replace, expire', () => {
    using store = open()
    const { db } = store.directory
    insertIdempotency(db, response)
    insertIdempotency(db, { ...response, organizationId: 'o2', nowMs: 6 })
    expect(findIdempotency(db, { organizationId: 'o1', key: 'k' })).toEqual({
      organizationId: 'o1',
      key: 'k',
      bodySha256: Buffer.alloc(32, 1),
      responseStatus: 202,
      responseData: '{"a":1}',
      createdAtMs: 5,
    })
    expect(findIdempotency(db, { organizationId: 'o1', key: 'K' })).toBeNull()
    insertIdempotency(db, { ...response, responseData: '{"a":2}', nowMs: 9 })
    expect(findIdempotency(db, { organizationId: 'o1', key: 'k' })).toMatchObject({
      responseData: '{"a":2}',
      createdAtMs: 9,
    })
    expect(deleteExpiredIdempotency(db, { createdAtOrBeforeMs: 5, limit: 10 })).toBe(0)
    expect(deleteExpiredIdempotency(db, { createdAtOrBeforeMs: 9, limit: 1 })).toBe(1)
    expect(deleteExpiredIdempotency(db, { createdAtOrBeforeMs: 9, limit: 10 })).toBe(1)
    expect(() => insertIdempotency(db, { ...response, bodySha256: new Uint8Array(20) })).toThrow('invariant broken')
  })
})
