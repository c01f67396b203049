// Opening a database: schema, versions, transactions, and what an older or damaged file gets.

import { Database } from 'bun:sqlite'
import { describe, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { getTableConfig, type SQLiteTable } from 'drizzle-orm/sqlite-core'
import { REMEDIES } from '../../src/base/remedies.ts'
import { storageCodeOf } from '../../src/base/storage-failure.ts'
import { copiesOf } from '../../src/store/copies.ts'
import { type DatabaseName, MIGRATIONS, openStore, schemaVersionOf } from '../../src/store/db.ts'
import { instanceAttestations } from '../../src/store/directory/attestation.table.ts'
import { buildNonces, buildReservations, builds, buildVms } from '../../src/store/directory/build.table.ts'
import { gatewayKeys } from '../../src/store/directory/gateway-key.table.ts'
import { idempotency } from '../../src/store/directory/idempotency.table.ts'
import { instanceChanges, instances } from '../../src/store/directory/instance.table.ts'
import { instanceAddresses } from '../../src/store/directory/instance-address.table.ts'
import { keys } from '../../src/store/directory/key.table.ts'
import { insertOrganization, listOrganizations } from '../../src/store/directory/organization.query.ts'
import { organizations } from '../../src/store/directory/organization.table.ts'
import { poolVms } from '../../src/store/directory/pool.table.ts'
import { usage } from '../../src/store/directory/usage/usage.table.ts'
import { usageDays } from '../../src/store/directory/usage/usage-day.table.ts'
import { usageMonths } from '../../src/store/directory/usage/usage-month.table.ts'
import { inspectDatabase } from '../../src/store/inspect.ts'
import { audit } from '../../src/store/ledger/audit.table.ts'
import { egressOf } from '../../src/store/ledger/egress.query.ts'
import { events } from '../../src/store/ledger/event.table.ts'
import { gatewayVms } from '../../src/store/ledger/gateway-vm.table.ts'
import { logCosignatures, logEntries, logHashes } from '../../src/store/ledger/log.table.ts'
import { nonces } from '../../src/store/ledger/nonce.table.ts'
import { passkeys } from '../../src/store/ledger/passkey.table.ts'
import { resourcesOf } from '../../src/store/ledger/resource.query.ts'
import { egress, launches, resources, restingAddresses, vms } from '../../src/store/ledger/vm.table.ts'
import { faultOf } from '../rigs/fault-of.ts'
import { holdLock, leastMs } from '../rigs/lock-holder.ts'

const ROOMS: Record<DatabaseName, readonly SQLiteTable[]> = {
  directory: [
    organizations,
    keys,
    gatewayKeys,
    usage,
    usageDays,
    usageMonths,
    instances,
    instanceChanges,
    instanceAddresses,
    instanceAttestations,
    idempotency,
    poolVms,
    builds,
    buildNonces,
    buildReservations,
    buildVms,
  ],
  ledger: [
    vms,
    resources,
    restingAddresses,
    egress,
    launches,
    gatewayVms,
    nonces,
    passkeys,
    events,
    audit,
    logEntries,
    logHashes,
    logCosignatures,
  ],
}
const newest = schemaVersionOf(MIGRATIONS)

/** Upgrades of a later executable. */
function upgradedBy(...later: readonly string[]): typeof MIGRATIONS {
  const upgrades = later.map((sql, index) => ({ to: newest + 1 + index, sql }))
  return { ...MIGRATIONS, upgrades: [...MIGRATIONS.upgrades, ...upgrades] }
}

/** Read and written by raw statements alone. */
const RAW_TABLES = ['allowances', 'copy_progress', 'left_vms', 'meta', 'outbox', 'outbox_held', 'replica']
const TABLES = [...ROOMS.directory, ...ROOMS.ledger]

function place(): { path: string } & Disposable {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-db-'))
  return { path: join(directory, 'strongroom.db'), [Symbol.dispose]: () => rmSync(directory, { recursive: true }) }
}

/** Returns a default as SQLite prints it: texts in quotes, booleans as 0 or 1. */
function defaultText(value: unknown): string | null {
  if (value === undefined) return null
  if (typeof value === 'boolean') return value ? '1' : '0'
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
      // A migration adds columns at the end, wherever the code lists them.
      const byName = (a: { name: string }, b: { name: string }) => a.name.localeCompare(b.name)
      expect(found.toSorted(byName)).toEqual(declared.toSorted(byName))
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
      [...TABLES.map(table => getTableConfig(table).name), ...RAW_TABLES].sort(),
    )
    store.close()
  })

  // Goal: a fleet may keep the directory in another database than a host's ledger: no foreign key leads from one room
  // to the other.
  test('no foreign key spans both rooms', () => {
    const store = openStore(':memory:')
    for (const [room, tables] of Object.entries(ROOMS)) {
      const names = tables.map(table => getTableConfig(table).name)
      for (const name of names) {
        const keys = store[room as DatabaseName].db.all<{ table: string }>(`PRAGMA foreign_key_list(${name})`)
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
        // Without one, so that a new toolchain needs no migration (schema 39).
        if (`${name}.${column.name}` === 'builds.toolchain') continue
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
    sqlite.run(`PRAGMA user_version = ${newest + 1}`)
    sqlite.run('PRAGMA wal_checkpoint(TRUNCATE)')
    sqlite.close()
    const before = readFileSync(at.path)
    const fault = faultOf(() => openStore(at.path))
    expect([fault.code, fault.message]).toEqual([
      'store.newer',
      `database ${at.path} has schema ${newest + 1}, this executable supports up to ${newest}; nothing was changed`,
    ])
    expect(readFileSync(at.path).equals(before)).toBe(true)
  })

  // Goal: an older database is brought up step by step and keeps its rows; opening it again changes nothing.
  test('older', () => {
    using at = place()
    const first = openStore(at.path)
    insertOrganization(first.directory.db, { id: 'o1', slug: 'acme', nowMs: 1 })
    first.close()
    const further = upgradedBy('CREATE TABLE later (id TEXT PRIMARY KEY) STRICT', "INSERT INTO later VALUES ('x')")
    for (let i = 0; i < 2; i += 1) {
      const store = openStore(at.path, { migrations: further })
      expect(store.directory.db.all('SELECT id FROM later')).toEqual([{ id: 'x' }])
      expect(listOrganizations(store.directory.db)).toHaveLength(1)
      expect(store.hostId).toBe(first.hostId)
      store.close()
    }
    expect(faultOf(() => openStore(at.path)).code).toBe('store.newer')
  })

  // Goal: a database that this executable cannot upgrade is refused with what to do, and not changed by a single byte.
  test('too old', () => {
    using at = place()
    const sqlite = new Database(at.path)
    sqlite.run('PRAGMA journal_mode = WAL')
    sqlite.run('CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT')
    sqlite.run('PRAGMA user_version = 20')
    sqlite.run('PRAGMA wal_checkpoint(TRUNCATE)')
    sqlite.close()
    const before = readFileSync(at.path)
    const fault = faultOf(() => openStore(at.path))
    expect([fault.code, fault.message]).toEqual([
      'store.older',
      `database ${at.path} has schema 20, this executable upgrades from 21; nothing was changed`,
    ])
    expect(REMEDIES['store.older']).toStartWith('open it once with the version before this one')
    expect(readFileSync(at.path).equals(before)).toBe(true)
  })

  // Goal: an upgrade that makes a table anew keeps its rows and the rows that refer to them, and the references still
  // hold.
  test('a table made anew', () => {
    using at = place()
    openStore(at.path).close()
    const old = new Database(at.path)
    old.run('PRAGMA foreign_keys = ON')
    old.run(`
      INSERT INTO vms (id, host_id, image, desired, state, vcpus, memory_mib, created_at_ms, changed_at_ms)
        VALUES ('v1', 'h', 'instance', 'running', 'running', 1, 512, 1, 1);
      INSERT INTO resources VALUES (7, 'v1', 'address', '10.0.0.1', 1), (9, 'v1', 'qemu', '1:2', 2);
      INSERT INTO egress (vm_id, used_bytes, observed_at_ms) VALUES ('v1', 4321, 7);`)
    const [table] = old.query<{ sql: string }, []>("SELECT sql FROM sqlite_schema WHERE name = 'vms'").all()
    old.close()
    const anew = table?.sql.replace('CREATE TABLE vms', 'CREATE TABLE vms_anew')
    const store = openStore(at.path, {
      migrations: upgradedBy(
        `${anew}; INSERT INTO vms_anew SELECT * FROM vms; DROP TABLE vms; ALTER TABLE vms_anew RENAME TO vms;`,
      ),
    })
    const { db } = store.ledger
    expect(resourcesOf(db, 'v1').map(({ seq, kind }) => [seq, kind])).toEqual([
      [9, 'qemu'],
      [7, 'address'],
    ])
    expect(egressOf(db, 'v1')).toMatchObject({ usedBytes: 4321 })
    expect(() => db.run("DELETE FROM vms WHERE id = 'v1'")).toThrow()
    store.close()
  })

  // Goal: a migration that fails halfway leaves the schema as it was before that migration.
  test('a migration that fails', () => {
    using at = place()
    openStore(at.path).close()
    const broken = upgradedBy('CREATE TABLE later (id TEXT) STRICT; INSERT INTO nowhere VALUES (1)')
    expect(faultOf(() => openStore(at.path, { migrations: broken })).code).toBe('store.corrupt')
    const store = openStore(at.path)
    expect(store.directory.db.all("SELECT name FROM sqlite_schema WHERE name = 'later'")).toEqual([])
    store.close()
  })

  // Goal: a new database is all or nothing. Half of one would pass for an older database, whose copy is kept.
  test('a new database whose last migration fails', () => {
    using at = place()
    const broken = upgradedBy('CREATE TABLE later (id TEXT) STRICT; INSERT INTO nowhere VALUES (1)')
    expect(faultOf(() => openStore(at.path, { migrations: broken })).code).toBe('store.corrupt')
    expect(inspectDatabase(at.path)).toEqual({ problem: null, unchecked: [], schema: 0 })
    openStore(at.path).close()
    expect(inspectDatabase(at.path).schema).toBe(newest)
    expect(copiesOf(at.path)).toEqual([])
  })

  // Goal: a file that is no database, and a path that cannot be, are Faults that name the path.
  test('no database', () => {
    using at = place()
    writeFileSync(
      at.path,
      'this is no database, but it is long enough to have a header of its own, so it seems to be one',
    )
    for (const [path, code] of [
      [at.path, 'store.corrupt'],
      [join(at.path, 'inside-a-file.db'), 'store.unwritable'],
    ] as const) {
      const fault = faultOf(() => openStore(path))
      expect([fault.code, fault.message.includes(path)]).toEqual([code, true])
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

  // Goal: foreign keys hold, writes reach the disk at commit, readers do not wait for the writer, and another program's
  // lock is waited for a second.
  test('pragmas', () => {
    using at = place()
    const store = openStore(at.path)
    const pragma = (name: string) =>
      Object.values(store.directory.db.get<Record<string, unknown>>(`PRAGMA ${name}`) ?? {})[0]
    expect([pragma('foreign_keys'), pragma('journal_mode'), pragma('synchronous')]).toEqual([1, 'wal', 2])
    expect(pragma('busy_timeout')).toBe(1_000)
    store.close()
  })
})

// Goal: another program with the lock delays the event loop by a second per write, stops no reader, and is
// distinct from a damaged file.
test('another program holds the lock', async () => {
  using at = place()
  const store = openStore(at.path)
  insertOrganization(store.directory.db, { id: 'o1', slug: 'acme', nowMs: 1 })
  const add = () => insertOrganization(store.directory.db, { id: 'o2', slug: 'globex', nowMs: 1 })
  {
    await using _ = await holdLock(at.path)
    for (const write of [add, () => store.directory.transact(add), () => store.ledger.transact(() => {})]) {
      // SQLite counts what it has slept; a busy machine wakes it later than that.
      const tookMs = await leastMs(4_000, () => expect(storageCodeOf(thrownBy(write))).toBe('store.busy'))
      expect(tookMs).toBeLessThan(4_000)
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
