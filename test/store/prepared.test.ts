// Statements that are prepared, and queries that are built, once for each database.

import { Database } from 'bun:sqlite'
import { expect, test } from 'bun:test'
import { builtOnce, type DirectoryDb, openStore } from '../../src/store/db.ts'
import { insertOrganization, organizationById } from '../../src/store/directory/organization.query.ts'
import { keepPrepared } from '../../src/store/prepared.ts'

// Goal: a text is read once, however often it runs; texts without end take no memory without end.
test('keeps the statements that are used', () => {
  const sqlite = new Database(':memory:')
  keepPrepared(sqlite)
  const often = sqlite.prepare('SELECT 1 AS n')
  const early = sqlite.prepare('SELECT 2 AS n')
  for (let n = 0; n < 600; n += 1) {
    expect(sqlite.prepare(`SELECT ${n} + 10 AS n`).get()).toEqual({ n: n + 10 })
    expect(sqlite.prepare('SELECT 1 AS n')).toBe(often)
  }
  expect(sqlite.prepare('SELECT 2 AS n')).not.toBe(early)
})

// Goal: a kept statement reads what is there now, also after the schema has changed and after a rollback.
test('a kept statement follows the database', () => {
  const sqlite = new Database(':memory:')
  keepPrepared(sqlite)
  const read = () => sqlite.prepare('SELECT * FROM t').all()
  sqlite.run('CREATE TABLE t (a)')
  sqlite.run('INSERT INTO t VALUES (1)')
  expect(read()).toEqual([{ a: 1 }])
  sqlite.run('ALTER TABLE t ADD COLUMN b DEFAULT 2')
  expect(read()).toEqual([{ a: 1, b: 2 }])
  const undone = sqlite.transaction(() => {
    sqlite.run('DELETE FROM t')
    expect(read()).toEqual([])
    throw new Error('undone')
  })
  expect(undone).toThrow('undone')
  expect(read()).toEqual([{ a: 1, b: 2 }])
})

// Goal: one database never reads another one; within a transaction the query sees what that has written.
test('a query is built once for each database', () => {
  let built = 0
  const query = builtOnce((db: DirectoryDb) => {
    built += 1
    return { db }
  })
  const [first, other] = [openStore(':memory:'), openStore(':memory:')]
  const add = (db: DirectoryDb, slug: string) => insertOrganization(db, { id: 'o', slug, nowMs: 0 })
  add(other.directory.db, 'other')
  first.directory.transact(tx => {
    expect(organizationById(tx, 'o')).toBeNull()
    add(tx, 'one')
    expect(organizationById(tx, 'o')?.slug).toBe('one')
    expect(tx.transaction(inner => query(inner))).toBe(query(tx))
  })
  expect(query(first.directory.db)).not.toBe(query(other.directory.db))
  expect(built).toBe(2)
  expect([first, other].map(({ directory }) => organizationById(directory.db, 'o')?.slug)).toEqual(['one', 'other'])
  first.close()
  other.close()
})
