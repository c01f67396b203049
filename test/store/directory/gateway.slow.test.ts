// The queries of gateway keys, the usage ledger and nonces, over a real database.

import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { getTableColumns, sql } from 'drizzle-orm'
import fc from 'fast-check'
import { openStore, prepareRaw, type Store } from '../../../src/store/db.ts'
import {
  findGatewayKey,
  gatewayKeyListMax,
  insertGatewayKey,
  listGatewayKeys,
  type NewGatewayKey,
  prepareChangeMark,
  prepareGatewayKeyLookup,
  purgeGatewayKeys,
  revokeDeletedInstancesGatewayKeys,
  revokeGatewayKey,
  touchGatewayKey,
} from '../../../src/store/directory/gateway-key.query.ts'
import { insertInstance } from '../../../src/store/directory/instance.query.ts'
import { instances } from '../../../src/store/directory/instance.table.ts'
import { insertOrganization, setOrganizationStatus } from '../../../src/store/directory/organization.query.ts'
import {
  findUsage,
  oldUsage,
  prepareUsageAppend,
  purgeUsage,
  sumUsage,
} from '../../../src/store/directory/usage/usage.query.ts'
import { type Usage, usage } from '../../../src/store/directory/usage/usage.table.ts'

const CONSTRAINT = 'SQLITE_CONSTRAINT_FOREIGNKEY'

function open(): Store & Disposable {
  const store = openStore(':memory:')
  insertOrganization(store.directory.db, { id: 'o1', slug: 'acme', nowMs: 1 })
  insertOrganization(store.directory.db, { id: 'o2', slug: 'globex', nowMs: 2 })
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

function usageOf(changes: Partial<Usage>): Usage {
  return {
    id: 'r1',
    atMs: 100,
    organizationId: 'o1',
    keyPrefix: 'aaaaaaaa',
    instanceId: null,
    model: 'm',
    upstream: 'u',
    promptTokens: 1,
    completionTokens: 2,
    costNanoUsd: 3,
    outcome: 'completed',
    tokensSource: 'reported',
    endUser: null,
    tags: null,
    cachedTokens: 0,
    ...changes,
  }
}

function addInstance(store: Store, id: string) {
  insertInstance(store.directory.db, {
    id,
    name: id,
    hostname: `${id}.example`,
    organizationId: 'o1',
    hostId: store.hostId,
    vmId: null,
    nowMs: 1,
    agent: 'agent',
    publicKey: 'k',
    inferenceMode: 'default_gateway',
    inferenceModel: 'tiny',
  })
}

test('a key is stored once', () => {
  // Goal: a taken prefix changes nothing; the hash has exactly 32 bytes; the organization must exist.
  using store = open()
  expect(insertGatewayKey(store.directory.db, keyOf('aaaaaaaa'))).toBe(true)
  expect(insertGatewayKey(store.directory.db, keyOf('aaaaaaaa', { organizationId: 'o2', tokensPerMinute: 9 }))).toBe(
    false,
  )
  expect(findGatewayKey(store.directory.db, 'aaaaaaaa')).toEqual({
    prefix: 'aaaaaaaa',
    organizationId: 'o1',
    instanceId: null,
    secretSha256: Buffer.alloc(32, 7),
    isClientMade: false,
    name: null,
    requestsPerMinute: null,
    tokensPerMinute: 5,
    concurrencyMax: null,
    createdAtMs: 10,
    expiresAtMs: null,
    revokedAtMs: null,
    lastUsedAtMs: null,
    models: null,
    aliases: null,
    budgetNanoUsd: null,
    budgetTokens: null,
    shortBudgets: null,
  })
  expect(() => insertGatewayKey(store.directory.db, keyOf('bbbbbbbb', { secretSha256: new Uint8Array(31) }))).toThrow(
    'invariant',
  )
  expect(() => insertGatewayKey(store.directory.db, keyOf('bbbbbbbb', { organizationId: 'o9' }))).toThrow()
  expect(findGatewayKey(store.directory.db, 'bbbbbbbb')).toBe(null)
})

test('the look-up of a request sees key, organization and instance as they are', () => {
  // Goal: prepared once, it still reads the present each time.
  using store = open()
  addInstance(store, 'i1')
  insertGatewayKey(store.directory.db, keyOf('aaaaaaaa', { instanceId: 'i1' }))
  insertGatewayKey(store.directory.db, keyOf('bbbbbbbb'))
  const look = prepareGatewayKeyLookup(store.directory.db)
  expect(look('cccccccc')).toBe(null)
  expect(look('bbbbbbbb')).toMatchObject({ organizationStatus: 'active', instanceDesired: null })
  expect(look('aaaaaaaa')).toMatchObject({ key: { instanceId: 'i1' }, instanceDesired: 'present' })
  setOrganizationStatus(store.directory.db, { slug: 'acme', status: 'suspended' })
  store.directory.db.update(instances).set({ desired: 'absent' }).run()
  expect(look('aaaaaaaa')).toMatchObject({ organizationStatus: 'suspended', instanceDesired: 'absent' })
})

test('the change mark moves with every change of others too', () => {
  // Goal: the next look sees a commit of another connection, but not its uncommitted writes, and its reads move
  // nothing.
  const dir = mkdtempSync(join(tmpdir(), 'strongroom-mark-'))
  const [here, there] = [openStore(join(dir, 'a.db')), openStore(join(dir, 'a.db'))]
  const changes = prepareChangeMark(here.directory.db)
  const mark = () => ({ own: changes.own(), others: changes.others() })
  const before = mark()
  there.directory.transact(tx => {
    insertOrganization(tx, { id: 'o1', slug: 'acme', nowMs: 1 })
    expect(mark()).toEqual(before)
  })
  const after = mark()
  expect(after).not.toEqual(before)
  setOrganizationStatus(there.directory.db, { slug: 'acme', status: 'suspended' })
  const later = mark()
  expect(later).not.toEqual(after)
  findGatewayKey(there.directory.db, 'aaaaaaaa')
  expect(mark()).toEqual(later)
  here.close()
  there.close()
  rmSync(dir, { recursive: true, force: true })
})

test('the change mark moves with every change and with nothing else', () => {
  // Goal: what was read is as good as new exactly as long as the mark stands still.
  using store = open()
  const changes = prepareChangeMark(store.directory.db)
  const mark = () => ({ own: changes.own(), others: changes.others() })
  const before = mark()
  findGatewayKey(store.directory.db, 'aaaaaaaa')
  expect(mark()).toEqual(before)
  insertGatewayKey(store.directory.db, keyOf('aaaaaaaa'))
  expect(mark()).not.toEqual(before)
})

test('lists and revocations', () => {
  // Goal: oldest first and of one organization; the list is bounded to the newest; the first revocation's time stays.
  using store = open()
  store.directory.transact(tx => {
    for (let i = 0; i < gatewayKeyListMax + 5; i += 1) {
      insertGatewayKey(tx, keyOf(`k${String(i).padStart(7, '0')}`, { nowMs: i }))
    }
    insertGatewayKey(tx, keyOf('other000', { organizationId: 'o2' }))
  })
  const listed = listGatewayKeys(store.directory.db, 'o1').map(key => key.prefix)
  expect([listed.length, listed[0], listed.at(-1)]).toEqual([gatewayKeyListMax, 'k0000005', 'k0001004'])
  expect(revokeGatewayKey(store.directory.db, { prefix: 'other000', nowMs: 20 })).toBe(true)
  expect(revokeGatewayKey(store.directory.db, { prefix: 'other000', nowMs: 30 })).toBe(true)
  expect(revokeGatewayKey(store.directory.db, { prefix: 'nothing0', nowMs: 30 })).toBe(false)
  expect(findGatewayKey(store.directory.db, 'other000')?.revokedAtMs).toBe(20)
  touchGatewayKey(store.directory.db, { prefix: 'other000', nowMs: 40 })
  touchGatewayKey(store.directory.db, { prefix: 'other000', nowMs: 41 })
  expect(findGatewayKey(store.directory.db, 'other000')?.lastUsedAtMs).toBe(40)
})

test('keys of deleted instances are revoked, all others are not', () => {
  // Goal: only instances wished gone lose their keys, once.
  using store = open()
  for (const id of ['i1', 'i2']) addInstance(store, id)
  insertGatewayKey(store.directory.db, keyOf('aaaaaaaa', { instanceId: 'i1' }))
  insertGatewayKey(store.directory.db, keyOf('bbbbbbbb', { instanceId: 'i2' }))
  insertGatewayKey(store.directory.db, keyOf('cccccccc'))
  expect(revokeDeletedInstancesGatewayKeys(store.directory.db, { nowMs: 50 })).toEqual([])
  store.directory.db.update(instances).set({ desired: 'absent' }).run()
  store.directory.db.run("UPDATE instances SET desired = 'present' WHERE id = 'i2'")
  expect(revokeDeletedInstancesGatewayKeys(store.directory.db, { nowMs: 50 })).toEqual(['aaaaaaaa'])
  expect(revokeDeletedInstancesGatewayKeys(store.directory.db, { nowMs: 60 })).toEqual([])
})

test('the ledger', () => {
  // Goal: one row per id, the first; an append is part of the transaction around it; periods are half open;
  // organizations apart; no negative or broken amount gets in.
  using store = open()
  const row = usageOf({ id: 'r1' })
  const append = prepareUsageAppend(store.directory.db)
  expect(append([row])).toBe(1)
  expect(append([{ ...row, costNanoUsd: 99 }])).toBe(0)
  expect(append([])).toBe(0)
  expect(findUsage(store.directory.db, 'r1')).toEqual(row)
  append([
    { ...row, id: 'r2', atMs: 200 },
    { ...row, id: 'r3', atMs: 150, organizationId: 'o2' },
  ])
  const requests = (startMs: number, endMs: number) =>
    sumUsage(store.directory.db, { organizationId: 'o1', startMs, endMs }).requests
  expect([requests(100, 200), requests(100, 201), requests(101, 200), requests(0, 100)]).toEqual([1, 2, 0, 0])
  for (const odd of [-1, 0.5, Number.NaN, 2 ** 53]) {
    for (const amount of ['promptTokens', 'completionTokens', 'costNanoUsd']) {
      const before = { ...row, id: 'before' }
      expect(() => append([before, { ...row, id: 'bad', [amount]: odd }])).toThrow('invariant')
    }
  }
  expect([findUsage(store.directory.db, 'before'), findUsage(store.directory.db, 'bad')]).toEqual([null, null])
  expect(() =>
    store.directory.transact(() => {
      append([{ ...row, id: 'r4' }])
      throw new Error('no')
    }),
  ).toThrow('no')
  expect(findUsage(store.directory.db, 'r4')).toBe(null)
})

test('the ledger holds what was appended, column by column', () => {
  // Goal: the raw statements and the table's declaration mean the same; for any number of rows and repetitions the
  // first row of an id counts, once.
  expect(Object.keys(getTableColumns(usage)).length).toBe(15)
  const rowOf = fc.record<Usage>({
    id: fc.integer({ min: 0, max: 150 }).map(id => `r${id}`),
    atMs: fc.constantFrom(0, 1, 2 ** 31, Date.UTC(2026, 10, 21), Number.MAX_SAFE_INTEGER),
    organizationId: fc.constantFrom('o1', 'o2'),
    keyPrefix: fc.string({ maxLength: 8 }),
    instanceId: fc.option(fc.string({ maxLength: 8 }), { nil: null }),
    model: fc.constantFrom('tiny', "o'clock", 'ü\u{1f512}', '?1'),
    upstream: fc.string({ maxLength: 8 }),
    promptTokens: fc.maxSafeNat(),
    completionTokens: fc.maxSafeNat(),
    costNanoUsd: fc.maxSafeNat(),
    outcome: fc.constantFrom('completed', 'aborted', 'failed'),
    tokensSource: fc.constantFrom('reported', 'estimated', 'implausible'),
    endUser: fc.option(fc.string({ maxLength: 8 }), { nil: null }),
    tags: fc.constantFrom(null, '{"team":"blue"}'),
    cachedTokens: fc.maxSafeNat(),
  })
  using store = open()
  const append = prepareUsageAppend(store.directory.db)
  const batches = fc.array(fc.array(rowOf, { maxLength: 80, size: 'max' }), { maxLength: 3 })
  const check = fc.property(batches, appended => {
    store.directory.db.delete(usage).run()
    const expected = new Map<string, Usage>()
    for (const rows of appended) {
      const knownBefore = expected.size
      for (const row of rows) if (!expected.has(row.id)) expected.set(row.id, row)
      expect(append(rows)).toBe(expected.size - knownBefore)
    }
    const found = store.directory.db.select().from(usage).all()
    expect(new Map(found.map(row => [row.id, row]))).toEqual(expected)
  })
  fc.assert(check, { numRuns: 60 })
})

test('one row that cannot be, among many', () => {
  // Goal: the transaction around an append keeps none of them, and says that it was a constraint.
  using store = open()
  const append = prepareUsageAppend(store.directory.db)
  const rows = Array.from({ length: 60 }, (_, i) => usageOf({ id: `r${i}` }))
  for (const at of [0, 24, 25, 59]) {
    const broken = rows.with(at, usageOf({ id: 'bad', organizationId: 'nobody' }))
    expect(() => store.directory.transact(() => append(broken))).toThrow(expect.objectContaining({ code: CONSTRAINT }))
    expect(store.directory.db.select().from(usage).all()).toEqual([])
  }
  expect(append(rows)).toBe(60)
})

test('raw statements are of the store itself', () => {
  // Goal: a transaction's handle is refused, as it has no connection of its own.
  using store = open()
  expect(() => store.directory.transact(tx => prepareRaw(tx, 'SELECT 1'))).toThrow('not within a transaction')
  expect(prepareRaw<{ one: number }>(store.directory.db, 'SELECT 1 AS one').get()).toEqual({ one: 1 })
})

test('old usage is purged in batches', () => {
  // Goal: every organization's older rows go and nothing else, never more than asked for; found by index in a ledger of
  // any length.
  using store = open()
  const append = prepareUsageAppend(store.directory.db)
  append(Array.from({ length: 40 }, (_, i) => usageOf({ id: `r${i}`, atMs: i, organizationId: i % 3 ? 'o1' : 'o2' })))
  const left = () => sumUsage(store.directory.db, { organizationId: 'o1', startMs: 0, endMs: 99 }).requests
  expect(purgeUsage(store.directory.db, { beforeMs: 0, limit: 10 })).toBe(0)
  expect(purgeUsage(store.directory.db, { beforeMs: 30, limit: 0 })).toBe(0)
  expect([1, 2, 3, 4].map(() => purgeUsage(store.directory.db, { beforeMs: 30, limit: 12 }))).toEqual([12, 12, 6, 0])
  const kept = store.directory.db.select({ atMs: usage.atMs }).from(usage).all()
  expect(kept.map(row => row.atMs).sort()).toEqual([30, 31, 32, 33, 34, 35, 36, 37, 38, 39])
  expect(left()).toBe(6)
  const query = oldUsage(store.directory.db, { beforeMs: 30, limit: 12 }).getSQL()
  const plan = store.directory.db.all<{ detail: string }>(sql`EXPLAIN QUERY PLAN ${query}`).map(({ detail }) => detail)
  expect(plan.at(-1)).toBe('SEARCH usage USING INDEX usage_organization (organization_id=? AND at_ms<?)')
  expect(plan.join()).not.toContain('SCAN usage')
})

test('ended keys are purged', () => {
  // Goal: keys revoked or expired before the time go in batches, an instance's too. Living keys, lately ended ones and
  // those of an organization with old usage stay.
  using store = open()
  addInstance(store, 'i1')
  const keys: Record<string, Partial<NewGatewayKey> & { revokedAtMs?: number }> = {
    revoked1: { revokedAtMs: 99 },
    revoked2: { revokedAtMs: 99, expiresAtMs: 500 },
    expired1: { expiresAtMs: 99 },
    lately01: { revokedAtMs: 100 },
    lately02: { expiresAtMs: 100 },
    living01: {},
    living02: { expiresAtMs: 500 },
    instance: { instanceId: 'i1', revokedAtMs: 99 },
    withrows: { organizationId: 'o2', revokedAtMs: 99 },
  }
  for (const [prefix, { revokedAtMs, ...changes }] of Object.entries(keys)) {
    insertGatewayKey(store.directory.db, keyOf(prefix, changes))
    if (revokedAtMs !== undefined) revokeGatewayKey(store.directory.db, { prefix, nowMs: revokedAtMs })
  }
  prepareUsageAppend(store.directory.db)([
    usageOf({ id: 'old', organizationId: 'o2', atMs: 149 }),
    usageOf({ id: 'new', organizationId: 'o1', atMs: 150 }),
  ])
  const purge = (limit: number) =>
    purgeGatewayKeys(store.directory.db, { endedBeforeMs: 100, usageBeforeMs: 150, limit })
  expect(purge(2)).toHaveLength(2)
  expect(purge(2)).toHaveLength(2)
  expect(purge(2)).toEqual([])
  const left = () => ['o1', 'o2'].flatMap(id => listGatewayKeys(store.directory.db, id).map(key => key.prefix)).sort()
  expect(left()).toEqual(['lately01', 'lately02', 'living01', 'living02', 'withrows'])
  purgeUsage(store.directory.db, { beforeMs: 150, limit: 10 })
  expect(purge(9)).toEqual(['withrows'])
})
