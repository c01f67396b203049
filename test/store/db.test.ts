// Opening a database: schema, versions, transactions, and what an older or damaged file gets.

import { Database } from 'bun:sqlite'
import { describe, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { getTableConfig, type SQLiteTable } from 'drizzle-orm/sqlite-core'
import { Fault } from '../../src/base/fault.ts'
import { storageCodeOf } from '../../src/base/storage-failure.ts'
import { MIGRATIONS, openStore, type RoomName } from '../../src/store/db.ts'
import { attestationOf, storeAttestation } from '../../src/store/directory/attestation.query.ts'
import { instanceAttestations } from '../../src/store/directory/attestation.table.ts'
import { buildNonces, builds, buildVms } from '../../src/store/directory/build.table.ts'
import { gatewayKeys } from '../../src/store/directory/gateway-key.table.ts'
import { idempotency } from '../../src/store/directory/idempotency.table.ts'
import { instanceChanges, instances } from '../../src/store/directory/instance.table.ts'
import { keys } from '../../src/store/directory/key.table.ts'
import { insertOrganization, listOrganizations } from '../../src/store/directory/organization.query.ts'
import { organizations } from '../../src/store/directory/organization.table.ts'
import { poolVms } from '../../src/store/directory/pool.table.ts'
import { usage } from '../../src/store/directory/usage/usage.table.ts'
import { usageDays } from '../../src/store/directory/usage/usage-day.table.ts'
import { usageMonths } from '../../src/store/directory/usage/usage-month.table.ts'
import { egressOf } from '../../src/store/ledger/egress.query.ts'
import { events } from '../../src/store/ledger/event.table.ts'
import { gateways } from '../../src/store/ledger/gateway.table.ts'
import { launchOf } from '../../src/store/ledger/launch.query.ts'
import { nonces } from '../../src/store/ledger/nonce.table.ts'
import { recordResource, resourcesOf } from '../../src/store/ledger/resource.query.ts'
import { insertVm, listVms, openVm, vmById } from '../../src/store/ledger/vm.query.ts'
import { egress, launches, resources, restingAddresses, vms } from '../../src/store/ledger/vm.table.ts'
import { holdLock } from '../rigs/lock-holder.ts'

const ROOMS: Record<RoomName, readonly SQLiteTable[]> = {
  directory: [
    organizations,
    keys,
    gatewayKeys,
    usage,
    usageDays,
    usageMonths,
    instances,
    instanceChanges,
    instanceAttestations,
    idempotency,
    poolVms,
    builds,
    buildNonces,
    buildVms,
  ],
  ledger: [vms, resources, restingAddresses, egress, launches, gateways, nonces, events],
}
const TABLES = [...ROOMS.directory, ...ROOMS.ledger]

function place(): { path: string } & Disposable {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-db-'))
  return { path: join(directory, 'strongroom.db'), [Symbol.dispose]: () => rmSync(directory, { recursive: true }) }
}

function faultOf(work: () => unknown): Fault {
  try {
    work()
  } catch (error) {
    if (error instanceof Fault) return error
    throw error
  }
  throw new Error('no fault')
}

/** As SQLite shows it: texts in quotes. */
function defaultText(value: unknown): string | null {
  if (value === undefined) return null
  return typeof value === 'string' ? `'${value}'` : String(value)
}

describe('schema', () => {
  for (const table of TABLES) {
    const config = getTableConfig(table)
    // Goal: what the code believes of a table is what the migrations make: names, types, nullability, defaults, keys.
    test(`${config.name} is as declared`, () => {
      const store = openStore(':memory:')
      type Column = { name: string; type: string; notnull: number; dflt_value: string | null; pk: number }
      const actual = store.directory.db.all<Column>(`PRAGMA table_info(${config.name})`)
      const keyColumns = [
        ...config.columns.filter(column => column.primary),
        ...config.primaryKeys.flatMap(key => key.columns),
      ].map(({ name }) => name)
      const declared = config.columns.map(column => ({
        name: column.name,
        type: column.getSQLType().toUpperCase(),
        notNull: column.notNull,
        default: defaultText(column.default),
        isKey: keyColumns.includes(column.name),
      }))
      const found = actual.map(column => ({
        name: column.name,
        type: column.type,
        // SQLite does not say NOT NULL of a key column that is implicitly so.
        notNull: column.notnull === 1 || column.pk > 0,
        default: column.dflt_value,
        isKey: column.pk > 0,
      }))
      expect(found).toEqual(declared)
      const indexNames = store.directory.db
        .all<{ name: string; origin: string }>(`PRAGMA index_list(${config.name})`)
        .filter(({ origin }) => origin === 'c')
        .map(({ name }) => name)
      for (const index of config.indexes) expect(indexNames).toContain(index.config.name)
      const foreign = store.directory.db.all<{ from: string; table: string; on_delete: string }>(
        `PRAGMA foreign_key_list(${config.name})`,
      )
      const declaredForeign = config.foreignKeys.map(key => {
        const { columns, foreignTable } = key.reference()
        return `${columns[0]?.name} ${getTableConfig(foreignTable).name} ${(key.onDelete ?? 'no action').toUpperCase()}`
      })
      expect(foreign.map(key => `${key.from} ${key.table} ${key.on_delete}`).sort()).toEqual(declaredForeign.sort())
      store.close()
    })
  }

  // Goal: every table of the schema is declared in code and covered by the comparison above.
  test('no table is left out', () => {
    const store = openStore(':memory:')
    const names = store.directory.db.all<{ name: string }>(
      "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
    )
    expect(names.map(({ name }) => name).sort()).toEqual(
      [...TABLES.map(table => getTableConfig(table).name), 'meta'].sort(),
    )
    store.close()
  })

  // Goal: a fleet may keep the directory in another database than a host's ledger: no key leads from one room to the other.
  test('no foreign key spans both rooms', () => {
    const store = openStore(':memory:')
    for (const [room, tables] of Object.entries(ROOMS)) {
      const names = tables.map(table => getTableConfig(table).name)
      for (const name of names) {
        const keys = store[room as RoomName].db.all<{ table: string }>(`PRAGMA foreign_key_list(${name})`)
        for (const { table } of keys) expect(names).toContain(table)
      }
    }
    store.close()
  })

  // Goal: enumerated columns refuse in SQL what the type refuses in code.
  test('checks', () => {
    const store = openStore(':memory:')
    for (const table of TABLES) {
      const { name, columns } = getTableConfig(table)
      const [row] = store.directory.db.all<{ sql: string }>(`SELECT sql FROM sqlite_schema WHERE name = '${name}'`)
      expect(row?.sql).toContain('STRICT')
      for (const column of columns) {
        if (column.enumValues === undefined || column.enumValues.length === 0) continue
        expect(row?.sql).toContain(
          `CHECK (${column.name} IN (${column.enumValues.map((value: string) => `'${value}'`).join(', ')}))`,
        )
      }
    }
    store.close()
  })
})

describe('versions', () => {
  // Goal: a database of a newer executable is refused, named, and not changed by a single byte.
  test('newer', () => {
    using at = place()
    openStore(at.path).close()
    const sqlite = new Database(at.path)
    sqlite.run(`PRAGMA user_version = ${MIGRATIONS.length + 1}`)
    sqlite.run('PRAGMA wal_checkpoint(TRUNCATE)')
    sqlite.close()
    const before = readFileSync(at.path)
    const fault = faultOf(() => openStore(at.path))
    expect([fault.code, fault.message]).toEqual([
      'store.newer',
      `database ${at.path} has schema ${MIGRATIONS.length + 1}, this executable knows up to ${MIGRATIONS.length}; nothing was changed`,
    ])
    expect(readFileSync(at.path).equals(before)).toBe(true)
  })

  // Goal: an older database is brought up step by step and keeps its rows; opening it again changes nothing.
  test('older', () => {
    using at = place()
    const first = openStore(at.path)
    insertOrganization(first.directory.db, { id: 'o1', slug: 'acme', nowMs: 1 })
    first.close()
    const further = [...MIGRATIONS, 'CREATE TABLE later (id TEXT PRIMARY KEY) STRICT', "INSERT INTO later VALUES ('x')"]
    for (let i = 0; i < 2; i += 1) {
      const store = openStore(at.path, further)
      expect(store.directory.db.all('SELECT id FROM later')).toEqual([{ id: 'x' }])
      expect(listOrganizations(store.directory.db)).toHaveLength(1)
      expect(store.hostId).toBe(first.hostId)
      store.close()
    }
    expect(faultOf(() => openStore(at.path)).code).toBe('store.newer')
  })

  // Goal: when an older database's table is made anew, its rows and all that refers to them are kept, and the references still hold.
  test('an instance of schema 2, with its log and its key, comes along', () => {
    using at = place()
    openStore(at.path, MIGRATIONS.slice(0, 2)).close()
    const old = new Database(at.path)
    old.run('PRAGMA foreign_keys = ON')
    old.run(`
      INSERT INTO organizations VALUES ('o1', 'acme', 'active', 1);
      INSERT INTO vms (id, host_id, image, desired, state, vcpus, memory_mib, created_at_ms, changed_at_ms)
        VALUES ('v1', 'h', 'instance', 'running', 'running', 1, 512, 1, 1);
      INSERT INTO instances (id, host_id, organization_id, name, hostname, desired, status, agent, public_key, inference_mode,
        inference_model, vm_id, egress_bytes, created_at_ms, ready_at_ms, changed_at_ms)
        VALUES ('i1', 'h', 'o1', 'n', 'n.x', 'present', 'ready', 'a', 'k', 'm', 't', 'v1', 77, 1, 2, 3);
      INSERT INTO instance_changes (instance_id, status, at_ms) VALUES ('i1', 'ready', 2);
      INSERT INTO gateway_keys (prefix, organization_id, instance_id, secret_sha256, created_at_ms)
        VALUES ('p', 'o1', 'i1', zeroblob(32), 1);`)
    const before = old.query<Record<string, unknown>, []>('SELECT * FROM instances').all()
    old.close()
    const store = openStore(at.path)
    const { db } = store.directory
    expect(db.all<Record<string, unknown>>('SELECT * FROM instances')).toEqual(
      before.map(row => ({ ...row, platform: null })),
    )
    expect(db.all('SELECT instance_id FROM instance_changes')).toEqual([{ instance_id: 'i1' }])
    expect(db.all('SELECT instance_id FROM gateway_keys')).toEqual([{ instance_id: 'i1' }])
    db.run("DELETE FROM vms WHERE id = 'v1'")
    db.run("DELETE FROM instances WHERE id = 'i1'")
    expect(db.all('SELECT * FROM instance_changes')).toEqual([])
    expect(db.all('SELECT instance_id FROM gateway_keys')).toEqual([{ instance_id: null }])
    store.close()
  })

  // Goal: what an older version made for a VM is still on record in its order, and a uid can join it.
  test('resources of schema 3 come along', () => {
    using at = place()
    openStore(at.path, MIGRATIONS.slice(0, 3)).close()
    const old = new Database(at.path)
    old.run(`
      INSERT INTO vms (id, host_id, image, desired, state, vcpus, memory_mib, created_at_ms, changed_at_ms)
        VALUES ('v1', 'h', 'instance', 'running', 'running', 1, 512, 1, 1);
      INSERT INTO resources VALUES (7, 'v1', 'address', '10.0.0.1', 1), (9, 'v1', 'qemu', '1:2', 2);`)
    old.close()
    const store = openStore(at.path)
    recordResource(store.ledger.db, { vmId: 'v1', kind: 'uid', name: '70000', nowMs: 3 })
    expect(resourcesOf(store.ledger.db, 'v1').map(({ seq, kind }) => [seq, kind])).toEqual([
      [10, 'uid'],
      [9, 'qemu'],
      [7, 'address'],
    ])
    expect(() => store.ledger.db.run("UPDATE resources SET kind = 'other'")).toThrow()
    store.close()
  })

  // Goal: VMs that ran before the upgrade keep what they have, and a TPM can join it, between the user id and QEMU.
  test('resources of schema 10 come along', () => {
    using at = place()
    openStore(at.path, MIGRATIONS.slice(0, 10)).close()
    const old = new Database(at.path)
    old.run(`
      INSERT INTO vms (id, host_id, image, desired, state, vcpus, memory_mib, created_at_ms, changed_at_ms)
        VALUES ('v1', 'h', 'instance', 'running', 'running', 1, 512, 1, 1);
      INSERT INTO resources VALUES (7, 'v1', 'uid', '70000', 1), (9, 'v1', 'disk', '/d', 2);`)
    old.close()
    const store = openStore(at.path)
    for (const [kind, name] of [
      ['tpm', '1:2'],
      ['qemu', '3:4'],
    ] as const)
      recordResource(store.ledger.db, { vmId: 'v1', kind, name, nowMs: 3 })
    expect(resourcesOf(store.ledger.db, 'v1').map(({ kind, name }) => `${kind} ${name}`)).toEqual([
      'qemu 3:4',
      'tpm 1:2',
      'disk /d',
      'uid 70000',
    ])
    store.close()
  })

  // Goal: guests that ran before the upgrade keep their network and what they have sent; the attestation of an instance goes with its record.
  test('guests of schema 6 count as opened', () => {
    using at = place()
    openStore(at.path, MIGRATIONS.slice(0, 6)).close()
    const old = new Database(at.path)
    old.run(`
      INSERT INTO organizations VALUES ('o1', 'acme', 'active', 1);
      INSERT INTO vms (id, host_id, image, desired, state, vcpus, memory_mib, created_at_ms, changed_at_ms) VALUES
        ('v1', 'h', 'instance', 'running', 'running', 1, 512, 1, 5),
        ('v2', 'h', 'instance', 'running', 'booting', 1, 512, 1, 6);
      INSERT INTO egress VALUES ('v1', 4321, 7, NULL);
      INSERT INTO instances (id, host_id, organization_id, name, hostname, desired, status, agent, public_key, inference_mode,
        inference_model, vm_id, egress_bytes, created_at_ms, ready_at_ms, changed_at_ms)
        VALUES ('i1', 'h', 'o1', 'n', 'n.x', 'present', 'ready', 'a', 'k', 'm', 't', 'v1', 77, 1, 2, 3);`)
    old.close()
    const store = openStore(at.path)
    expect([vmById(store.ledger.db, 'v1')?.openedAtMs, vmById(store.ledger.db, 'v2')?.openedAtMs]).toEqual([5, null])
    expect(egressOf(store.ledger.db, 'v1')).toMatchObject({ usedBytes: 4321, rescueBytes: 0 })
    expect([openVm(store.ledger.db, { id: 'v1', nowMs: 9 }), openVm(store.ledger.db, { id: 'v3', nowMs: 9 })]).toEqual([
      true,
      false,
    ])
    expect(vmById(store.ledger.db, 'v1')?.openedAtMs).toBe(5)
    const row = {
      instanceId: 'i1',
      nonce: 'n'.repeat(43),
      sshHostKey: 'ssh-ed25519 A',
      attestedAtMs: 1,
      document: '{}',
    }
    storeAttestation(store.directory.db, row)
    storeAttestation(store.directory.db, { ...row, attestedAtMs: 2 })
    expect(attestationOf(store.directory.db, 'i1')).toEqual({ ...row, attestedAtMs: 2 })
    store.directory.db.run("DELETE FROM instances WHERE id = 'i1'")
    expect(attestationOf(store.directory.db, 'i1')).toBeNull()
    store.close()
  })

  // Goal: VMs that ran before the upgrade keep their network, their turn and their records; a gateway's can join them.
  test('VMs of schema 13 come along', () => {
    using at = place()
    openStore(at.path, MIGRATIONS.slice(0, 13)).close()
    const old = new Database(at.path)
    old.run(`
      INSERT INTO vms (id, host_id, image, desired, state, vcpus, memory_mib, created_at_ms, changed_at_ms, network) VALUES
        ('v2', 'h', 'builder', 'running', 'running', 1, 512, 1, 5, 'fetch'),
        ('v1', 'h', 'instance', 'running', 'running', 1, 512, 1, 5, 'world');
      INSERT INTO resources (vm_id, kind, name, created_at_ms) VALUES ('v1', 'address', '10.0.0.1', 1);
      INSERT INTO launches VALUES ('v1', '{}', 'm', 'h', 'o', 1);`)
    old.close()
    const store = openStore(at.path)
    const { db } = store.ledger
    expect(listVms(db, 'h').map(({ id, network }) => [id, network])).toEqual([
      ['v2', 'fetch'],
      ['v1', 'world'],
    ])
    expect(vmById(db, 'v1')).toMatchObject({ workload: null, modelDisk: null })
    expect(launchOf(db, 'v1')).toMatchObject({ document: '{}', hostData: 'h', workload: null })
    const vm = { hostId: 'h', image: 'inference', vcpus: 1, memoryMib: 512, nowMs: 9 }
    insertVm(db, { ...vm, id: 'v3', network: 'gateway', workload: '{}', modelDisk: '/m.img' })
    insertVm(db, { ...vm, id: 'v4' })
    expect(vmById(db, 'v3')).toMatchObject({ network: 'gateway', workload: '{}', modelDisk: '/m.img' })
    expect(vmById(db, 'v4')).toMatchObject({ network: 'world', workload: null, modelDisk: null })
    expect(() => db.run("UPDATE vms SET network = 'other'")).toThrow()
    store.close()
  })

  // Goal: a migration that fails halfway leaves the schema as it was before that migration.
  test('a migration that fails', () => {
    using at = place()
    openStore(at.path).close()
    const broken = [...MIGRATIONS, 'CREATE TABLE later (id TEXT) STRICT; INSERT INTO nowhere VALUES (1)']
    expect(faultOf(() => openStore(at.path, broken)).code).toBe('store.corrupt')
    const store = openStore(at.path)
    expect(store.directory.db.all("SELECT name FROM sqlite_schema WHERE name = 'later'")).toEqual([])
    store.close()
  })

  // Goal: a file that is no database, and a path that cannot be, are Faults that name the path.
  test('no database', () => {
    using at = place()
    writeFileSync(
      at.path,
      'this is no database, but it is long enough to have a header of its own, so it seems to be one',
    )
    for (const path of [at.path, join(at.path, 'inside-a-file.db')]) {
      const fault = faultOf(() => openStore(path))
      expect([fault.code, fault.message.includes(path)]).toEqual(['store.corrupt', true])
    }
  })
})

describe('use', () => {
  // Goal: a transaction is all or nothing, and one inside another can fail alone.
  test('transactions', () => {
    const store = openStore(':memory:')
    const add = (slug: string) => insertOrganization(store.directory.db, { id: slug, slug, nowMs: 1 })
    expect(() =>
      store.directory.transact(tx => {
        insertOrganization(tx, { id: 'a', slug: 'a', nowMs: 1 })
        throw new Error('undo')
      }),
    ).toThrow('undo')
    expect(listOrganizations(store.directory.db)).toEqual([])
    store.directory.transact(tx => {
      add('b')
      expect(() =>
        tx.transaction(inner => {
          insertOrganization(inner, { id: 'c', slug: 'c', nowMs: 1 })
          throw new Error('inner')
        }),
      ).toThrow('inner')
    })
    expect(listOrganizations(store.directory.db).map(({ slug }) => slug)).toEqual(['b'])
    store.close()
  })

  // Goal: a transaction of one room cannot be opened within one of the other.
  test('no transaction spans both rooms', () => {
    const store = openStore(':memory:')
    const both = () => store.directory.transact(() => store.ledger.transact(() => 'both'))
    expect(both).toThrow('no transaction within another')
    expect(store.ledger.transact(() => 'one')).toBe('one')
    store.close()
  })

  // Goal: foreign keys hold, writes reach the disk at commit, and readers do not wait for the writer.
  test('pragmas', () => {
    using at = place()
    const store = openStore(at.path)
    const pragma = (name: string) =>
      Object.values(store.directory.db.get<Record<string, unknown>>(`PRAGMA ${name}`) ?? {})[0]
    expect([pragma('foreign_keys'), pragma('journal_mode'), pragma('synchronous')]).toEqual([1, 'wal', 2])
    store.close()
  })
})

// Goal: whoever else holds the database holds the event loop for half a second at a time, keeps nobody from reading, and is told from a damaged file.
test('another program holds the lock', async () => {
  using at = place()
  const store = openStore(at.path)
  insertOrganization(store.directory.db, { id: 'o1', slug: 'acme', nowMs: 1 })
  const add = () => insertOrganization(store.directory.db, { id: 'o2', slug: 'globex', nowMs: 1 })
  {
    await using _ = await holdLock(at.path)
    for (const write of [add, () => store.directory.transact(add), () => store.ledger.transact(() => {})]) {
      const startedMs = performance.now()
      expect(storageCodeOf(thrownBy(write))).toBe('store.busy')
      expect(performance.now() - startedMs).toBeLessThan(2_000)
    }
    expect(listOrganizations(store.directory.db).map(({ id }) => id)).toEqual(['o1'])
    const { code, message } = faultOf(() => openStore(at.path))
    expect([code, message]).toEqual(['store.busy', `open database ${at.path}: database is locked`])
  }
  expect(store.directory.transact(add)).toBe(true)
  store.close()
  openStore(at.path).close()
})

function thrownBy(work: () => unknown): unknown {
  try {
    work()
  } catch (error) {
    return error
  }
  throw new Error('nothing was thrown')
}
