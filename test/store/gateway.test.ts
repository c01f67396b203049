// The queries of gateway keys, the usage ledger and nonces, over a real database.

import { expect, test } from 'bun:test'
import { openStore, type Store } from '../../src/store/db.ts'
import {
  findGatewayKey,
  gatewayKeyListMax,
  insertGatewayKey,
  listGatewayKeys,
  type NewGatewayKey,
  prepareChangeMark,
  prepareGatewayKeyLookup,
  revokeDeletedInstancesGatewayKeys,
  revokeGatewayKey,
  touchGatewayKey,
} from '../../src/store/gateway-key.query.ts'
import { insertInstance } from '../../src/store/instance.query.ts'
import { instances } from '../../src/store/instance.table.ts'
import { countNonces, deleteExpiredNonces, insertNonce } from '../../src/store/nonce.query.ts'
import { insertOrganization, setOrganizationStatus } from '../../src/store/organization.query.ts'
import { findUsage, prepareUsageAppend, sumUsage } from '../../src/store/usage.query.ts'
import type { Usage } from '../../src/store/usage.table.ts'

function open(): Store & Disposable {
  const store = openStore(':memory:')
  insertOrganization(store.db, { id: 'o1', slug: 'acme', nowMs: 1 })
  insertOrganization(store.db, { id: 'o2', slug: 'globex', nowMs: 2 })
  return { ...store, [Symbol.dispose]: store.close }
}

function keyOf(prefix: string, changes: Partial<NewGatewayKey> = {}): NewGatewayKey {
  return {
    prefix,
    organizationId: 'o1',
    instanceId: null,
    secretSha256: new Uint8Array(32).fill(7),
    requestsPerMinute: null,
    tokensPerMinute: 5,
    concurrencyMax: null,
    expiresAtMs: null,
    nowMs: 10,
    ...changes,
  }
}

function addInstance(store: Store, id: string) {
  insertInstance(store.db, {
    ...{ id, name: id, hostname: `${id}.example`, organizationId: 'o1', hostId: store.hostId, vmId: null, nowMs: 1 },
    ...{ agent: 'agent', publicKey: 'k', inferenceMode: 'default_gateway', inferenceModel: 'tiny' },
  })
}

test('a key is stored once', () => {
  // Goal: a taken prefix changes nothing; the hash has exactly 32 bytes; the organization must exist.
  using store = open()
  expect(insertGatewayKey(store.db, keyOf('aaaaaaaa'))).toBe(true)
  expect(insertGatewayKey(store.db, keyOf('aaaaaaaa', { organizationId: 'o2', tokensPerMinute: 9 }))).toBe(false)
  expect(findGatewayKey(store.db, 'aaaaaaaa')).toEqual({
    ...{ prefix: 'aaaaaaaa', organizationId: 'o1', instanceId: null, secretSha256: Buffer.alloc(32, 7) },
    ...{ requestsPerMinute: null, tokensPerMinute: 5, concurrencyMax: null },
    ...{ createdAtMs: 10, expiresAtMs: null, revokedAtMs: null, lastUsedAtMs: null },
  })
  expect(() => insertGatewayKey(store.db, keyOf('bbbbbbbb', { secretSha256: new Uint8Array(31) }))).toThrow('invariant')
  expect(() => insertGatewayKey(store.db, keyOf('bbbbbbbb', { organizationId: 'o9' }))).toThrow()
  expect(findGatewayKey(store.db, 'bbbbbbbb')).toBe(null)
})

test('the look-up of a request sees key, organization and instance as they are', () => {
  // Goal: prepared once, it still reads the present each time.
  using store = open()
  addInstance(store, 'i1')
  insertGatewayKey(store.db, keyOf('aaaaaaaa', { instanceId: 'i1' }))
  insertGatewayKey(store.db, keyOf('bbbbbbbb'))
  const look = prepareGatewayKeyLookup(store.db)
  expect(look('cccccccc')).toBe(null)
  expect(look('bbbbbbbb')).toMatchObject({ organizationStatus: 'active', instanceDesired: null })
  expect(look('aaaaaaaa')).toMatchObject({ key: { instanceId: 'i1' }, instanceDesired: 'present' })
  setOrganizationStatus(store.db, { slug: 'acme', status: 'suspended' })
  store.db.update(instances).set({ desired: 'absent' }).run()
  expect(look('aaaaaaaa')).toMatchObject({ organizationStatus: 'suspended', instanceDesired: 'absent' })
})

test('the change mark moves with every change and with nothing else', () => {
  // Goal: what was read is as good as new exactly as long as the mark stands still.
  using store = open()
  const mark = prepareChangeMark(store.db)
  const before = mark()
  findGatewayKey(store.db, 'aaaaaaaa')
  expect(mark()).toEqual(before)
  insertGatewayKey(store.db, keyOf('aaaaaaaa'))
  expect(mark()).not.toEqual(before)
})

test('lists and revocations', () => {
  // Goal: oldest first and of one organization; the list is bounded to the newest; the first revocation's time stays.
  using store = open()
  store.transact(tx => {
    for (let i = 0; i < gatewayKeyListMax + 5; i += 1) {
      insertGatewayKey(tx, keyOf(`k${String(i).padStart(7, '0')}`, { nowMs: i }))
    }
    insertGatewayKey(tx, keyOf('other000', { organizationId: 'o2' }))
  })
  const listed = listGatewayKeys(store.db, 'o1').map(key => key.prefix)
  expect([listed.length, listed[0], listed.at(-1)]).toEqual([gatewayKeyListMax, 'k0000005', 'k0001004'])
  expect(revokeGatewayKey(store.db, { prefix: 'other000', nowMs: 20 })).toBe(true)
  expect(revokeGatewayKey(store.db, { prefix: 'other000', nowMs: 30 })).toBe(true)
  expect(revokeGatewayKey(store.db, { prefix: 'nothing0', nowMs: 30 })).toBe(false)
  expect(findGatewayKey(store.db, 'other000')?.revokedAtMs).toBe(20)
  touchGatewayKey(store.db, { prefix: 'other000', nowMs: 40 })
  touchGatewayKey(store.db, { prefix: 'other000', nowMs: 41 })
  expect(findGatewayKey(store.db, 'other000')?.lastUsedAtMs).toBe(40)
})

test('keys of deleted instances are revoked, all others are not', () => {
  // Goal: only instances wished gone lose their keys, once.
  using store = open()
  for (const id of ['i1', 'i2']) addInstance(store, id)
  insertGatewayKey(store.db, keyOf('aaaaaaaa', { instanceId: 'i1' }))
  insertGatewayKey(store.db, keyOf('bbbbbbbb', { instanceId: 'i2' }))
  insertGatewayKey(store.db, keyOf('cccccccc'))
  expect(revokeDeletedInstancesGatewayKeys(store.db, { nowMs: 50 })).toEqual([])
  store.db.update(instances).set({ desired: 'absent' }).run()
  store.db.run("UPDATE instances SET desired = 'present' WHERE id = 'i2'")
  expect(revokeDeletedInstancesGatewayKeys(store.db, { nowMs: 50 })).toEqual(['aaaaaaaa'])
  expect(revokeDeletedInstancesGatewayKeys(store.db, { nowMs: 60 })).toEqual([])
})

test('the ledger', () => {
  // Goal: one row per id, the first one; an append is part of the transaction around it; periods are half open; organizations apart; no negative or broken amount gets in.
  using store = open()
  const row: Usage = {
    ...{
      id: 'r1',
      atMs: 100,
      organizationId: 'o1',
      keyPrefix: 'aaaaaaaa',
      instanceId: null,
      model: 'm',
      upstream: 'u',
    },
    ...{ promptTokens: 1, completionTokens: 2, costNanoUsd: 3, outcome: 'completed' },
  }
  const append = prepareUsageAppend(store.db)
  expect(append(row)).toBe(true)
  expect(append({ ...row, costNanoUsd: 99 })).toBe(false)
  expect(findUsage(store.db, 'r1')).toEqual(row)
  append({ ...row, id: 'r2', atMs: 200 })
  append({ ...row, id: 'r3', atMs: 150, organizationId: 'o2' })
  const requests = (startMs: number, endMs: number) =>
    sumUsage(store.db, { organizationId: 'o1', startMs, endMs }).requests
  expect([requests(100, 200), requests(100, 201), requests(101, 200), requests(0, 100)]).toEqual([1, 2, 0, 0])
  for (const odd of [-1, 0.5, Number.NaN, 2 ** 53]) {
    expect(() => append({ ...row, id: 'bad', promptTokens: odd })).toThrow('invariant')
  }
  expect(findUsage(store.db, 'bad')).toBe(null)
  expect(() =>
    store.transact(() => {
      append({ ...row, id: 'r4' })
      throw new Error('no')
    }),
  ).toThrow('no')
  expect(findUsage(store.db, 'r4')).toBe(null)
})

test('nonces', () => {
  // Goal: each is used once; expiry is by time and in batches, oldest first; exactly 32 bytes.
  using store = open()
  const nonce = (byte: number) => new Uint8Array(32).fill(byte)
  for (let i = 0; i < 5; i += 1) expect(insertNonce(store.db, { nonce: nonce(i), nowMs: 100 + i })).toBe(true)
  expect(insertNonce(store.db, { nonce: nonce(3), nowMs: 900 })).toBe(false)
  expect(() => insertNonce(store.db, { nonce: new Uint8Array(31), nowMs: 1 })).toThrow('invariant')
  expect(countNonces(store.db)).toBe(5)
  expect(deleteExpiredNonces(store.db, { usedAtOrBeforeMs: 102, limit: 2 })).toBe(2)
  expect(insertNonce(store.db, { nonce: nonce(2), nowMs: 900 })).toBe(false)
  expect(deleteExpiredNonces(store.db, { usedAtOrBeforeMs: 102, limit: 2 })).toBe(1)
  expect(deleteExpiredNonces(store.db, { usedAtOrBeforeMs: 102, limit: 2 })).toBe(0)
  expect(countNonces(store.db)).toBe(2)
  expect(insertNonce(store.db, { nonce: nonce(0), nowMs: 900 })).toBe(true)
})
