// Opening a database: schema, versions, transactions, and what an older or damaged file gets.

import { Database } from 'bun:sqlite'
import { describe, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { getTableConfig, type SQLiteTable } from 'drizzle-orm/sqlite-core'
import { Fault } from '../../src/base/fault.ts'
import { MIGRATIONS, openStore } from '../../src/store/db.ts'
import { gatewayKeys } from '../../src/store/directory/gateway-key.table.ts'
import { idempotency } from '../../src/store/directory/idempotency.table.ts'
import { instanceChanges, instances } from '../../src/store/directory/instance.table.ts'
import { keys } from '../../src/store/directory/key.table.ts'
import { insertOrganization, listOrganizations } from '../../src/store/directory/organization.query.ts'
import { organizations } from '../../src/store/directory/organization.table.ts'
import { usage } from '../../src/store/directory/usage.table.ts'
import { events } from '../../src/store/ledger/event.table.ts'
import { nonces } from '../../src/store/ledger/nonce.table.ts'
import { egress, resources, vms } from '../../src/store/ledger/vm.table.ts'

const TABLES: readonly SQLiteTable[] = [
  gatewayKeys,
  usage,
  nonces,
  organizations,
  keys,
  vms,
  resources,
  egress,
  instances,
  instanceChanges,
  idempotency,
  events,
]

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

describe('schema', () => {
  for (const table of TABLES) {
    const config = getTableConfig(table)
    // Goal: what the code believes of a table is what the migrations make: names, types, nullability, defaults, keys.
    test(`${config.name} is as declared`, () => {
      const store = openStore(':memory:')
      type Column = { name: string; type: string; notnull: number; dflt_value: string | null; pk: number }
      const actual = store.db.all<Column>(`PRAGMA table_info(${config.name})`)
      const keyColumns = [
        ...config.columns.filter(column => column.primary),
        ...config.primaryKeys.flatMap(key => key.columns),
      ].map(({ name }) => name)
      const declared = config.columns.map(column => ({
        name: column.name,
        type: column.getSQLType().toUpperCase(),
        notNull: column.notNull,
        default: column.default === undefined ? null : String(column.default),
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
      const indexNames = store.db
        .all<{ name: string; origin: string }>(`PRAGMA index_list(${config.name})`)
        .filter(({ origin }) => origin === 'c')
        .map(({ name }) => name)
      for (const index of config.indexes) expect(indexNames).toContain(index.config.name)
      const foreign = store.db.all<{ from: string; table: string; on_delete: string }>(
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
    const names = store.db.all<{ name: string }>(
      "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
    )
    expect(names.map(({ name }) => name).sort()).toEqual(
      [...TABLES.map(table => getTableConfig(table).name), 'meta'].sort(),
    )
    store.close()
  })

  // Goal: enumerated columns refuse in SQL what the type refuses in code.
  test('checks', () => {
    const store = openStore(':memory:')
    for (const table of TABLES) {
      const { name, columns } = getTableConfig(table)
      const [row] = store.db.all<{ sql: string }>(`SELECT sql FROM sqlite_schema WHERE name = '${name}'`)
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
    insertOrganization(first.db, { id: 'o1', slug: 'acme', nowMs: 1 })
    first.close()
    const further = [...MIGRATIONS, 'CREATE TABLE later (id TEXT PRIMARY KEY) STRICT', "INSERT INTO later VALUES ('x')"]
    for (let i = 0; i < 2; i += 1) {
      const store = openStore(at.path, further)
      expect(store.db.all('SELECT id FROM later')).toEqual([{ id: 'x' }])
      expect(listOrganizations(store.db)).toHaveLength(1)
      expect(store.hostId).toBe(first.hostId)
      store.close()
    }
    expect(faultOf(() => openStore(at.path)).code).toBe('store.newer')
  })

  // Goal: a migration that fails halfway leaves the schema as it was before that migration.
  test('a migration that fails', () => {
    using at = place()
    openStore(at.path).close()
    const broken = [...MIGRATIONS, 'CREATE TABLE later (id TEXT) STRICT; INSERT INTO nowhere VALUES (1)']
    expect(faultOf(() => openStore(at.path, broken)).code).toBe('store.corrupt')
    const store = openStore(at.path)
    expect(store.db.all("SELECT name FROM sqlite_schema WHERE name = 'later'")).toEqual([])
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
    const add = (slug: string) => insertOrganization(store.db, { id: slug, slug, nowMs: 1 })
    expect(() =>
      store.transact(tx => {
        insertOrganization(tx, { id: 'a', slug: 'a', nowMs: 1 })
        throw new Error('undo')
      }),
    ).toThrow('undo')
    expect(listOrganizations(store.db)).toEqual([])
    store.transact(tx => {
      add('b')
      expect(() =>
        tx.transaction(inner => {
          insertOrganization(inner, { id: 'c', slug: 'c', nowMs: 1 })
          throw new Error('inner')
        }),
      ).toThrow('inner')
    })
    expect(listOrganizations(store.db).map(({ slug }) => slug)).toEqual(['b'])
    store.close()
  })

  // Goal: foreign keys hold, writes reach the disk at commit, and readers do not wait for the writer.
  test('pragmas', () => {
    using at = place()
    const store = openStore(at.path)
    const pragma = (name: string) => Object.values(store.db.get<Record<string, unknown>>(`PRAGMA ${name}`) ?? {})[0]
    expect([pragma('foreign_keys'), pragma('journal_mode'), pragma('synchronous')]).toEqual([1, 'wal', 2])
    store.close()
  })
})
