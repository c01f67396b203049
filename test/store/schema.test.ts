// The schema of a new database against the migrations: both ways end the same.

import { Database } from 'bun:sqlite'
import { expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { schemaFile, schemaFileText } from '../../scripts/lib/store-schema.ts'
import { MIGRATIONS, openStore } from '../../src/store/db.ts'

type Row = { readonly type: string; readonly name: string; readonly tbl_name: string; readonly sql: string | null }

/** The schema with its version, and how many rows each table has, but for the host's id. */
function contentOf(path: string) {
  const sqlite = new Database(path, { readonly: true })
  const schema = sqlite.query<Row, []>('SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name').all()
  const version = sqlite.query<{ user_version: number }, []>('PRAGMA user_version').get()?.user_version
  const tables = schema.filter(({ type, name }) => type === 'table' && name !== 'sqlite_sequence')
  const rows = tables.map(({ name }) => [name, sqlite.query(`SELECT * FROM "${name}"`).values().length])
  sqlite.close()
  return { schema, version, rows }
}

// Goal: a new database is the one that every step of an upgrade leads to, to the letter, and holds nothing else.
test.each([0, 1, 2, 10, MIGRATIONS.length - 1])('a database of schema %d becomes what a new one is', version => {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-schema-'))
  try {
    const [fresh, upgraded] = [join(directory, 'fresh.db'), join(directory, 'upgraded.db')]
    openStore(fresh).close()
    const old = new Database(upgraded)
    for (const migration of MIGRATIONS.slice(0, version)) old.run(migration)
    old.run(`PRAGMA user_version = ${version}`)
    old.close()
    // A copy of the list takes the steps one by one also from an empty database.
    openStore(upgraded, [...MIGRATIONS]).close()
    const content = contentOf(fresh)
    expect(contentOf(upgraded)).toEqual(content)
    expect(content.version).toBe(MIGRATIONS.length)
    expect(content.rows.filter(([, count]) => count !== 0)).toEqual([['meta', 1]])
  } finally {
    rmSync(directory, { recursive: true })
  }
})

// Goal: a migration cannot be added without the schema of new databases.
test('the file of the schema is what the migrations leave', () => {
  const text = readFileSync(resolve(import.meta.dir, '../..', schemaFile), 'utf8')
  expect({ text, update: 'bun scripts/store-schema.ts --write' }).toEqual({
    text: schemaFileText(),
    update: 'bun scripts/store-schema.ts --write',
  })
})
