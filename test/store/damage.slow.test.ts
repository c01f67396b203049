// Goal: a damaged or emptied database is never taken for a healthy or a new one: at the start, in a run, from beside.

import { Database } from 'bun:sqlite'
import { afterEach, beforeEach, expect, test } from 'bun:test'
import {
  closeSync,
  existsSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { REMEDIES } from '../../src/base/remedies.ts'
import { storageCodeOf } from '../../src/base/storage-failure.ts'
import { openStore, prepareRaw } from '../../src/store/db.ts'
import { insertOrganization, listOrganizations } from '../../src/store/directory/organization.query.ts'
import { inspectDatabase } from '../../src/store/inspect.ts'
import { quickCheck } from '../../src/store/quick-check.ts'
import { databaseBytes } from '../../src/store/snapshot.ts'
import { faultOf } from '../rigs/fault-of.ts'

const pageBytes = 4_096

let dir: string
let path: string

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-damage-'))
  path = join(dir, 'strongroom.db')
})

afterEach(() => rmSync(dir, { recursive: true }))

function fill(): void {
  const store = openStore(path)
  store.directory.transact(tx => {
    for (let at = 0; at < 2_000; at += 1) insertOrganization(tx, { id: `o${at}`, slug: `org-${at}`, nowMs: 1 })
  })
  store.close()
}

/** Noise over the root page of a table. */
function overwrite(table: string): void {
  const sqlite = new Database(path)
  const root = sqlite
    .query<{ rootpage: number }, [string]>('SELECT rootpage FROM sqlite_schema WHERE name = ?')
    .get(table)
  sqlite.close()
  const fd = openSync(path, 'r+')
  writeSync(fd, new Uint8Array(pageBytes).fill(0xa5), 0, pageBytes, ((root?.rootpage ?? 0) - 1) * pageBytes)
  closeSync(fd)
}

test('goal: after a stop the file alone holds every row, whatever statements are left', () => {
  fill()
  const store = openStore(path)
  prepareRaw(store.directory.db, 'SELECT id FROM organizations').get()
  insertOrganization(store.directory.db, { id: 'later', slug: 'later', nowMs: 1 })
  store.close()
  const copy = join(dir, 'copy.db')
  writeFileSync(copy, readFileSync(path))
  const sqlite = new Database(copy, { readonly: true })
  expect(sqlite.query('SELECT count(*) AS count FROM organizations').get()).toEqual({ count: 2_001 })
  sqlite.close()
})

test('goal: one overwritten page refuses the start, names the table, and changes no byte of the database', () => {
  fill()
  overwrite('organizations')
  const before = readFileSync(path)
  const fault = faultOf(() => openStore(path))
  expect([fault.code, fault.message]).toEqual([
    'store.corrupt',
    expect.stringContaining(`${path} is damaged: table organizations`),
  ])
  expect(REMEDIES[fault.code]).toContain('strongroom help backup')
  expect(readFileSync(path).equals(before)).toBe(true)
})

test('goal: a file that was cut short is damaged', () => {
  fill()
  truncateSync(path, statSync(path).size - 3 * pageBytes)
  expect(faultOf(() => openStore(path)).code).toBe('store.corrupt')
})

// Goal: lost records are not taken for a new appliance.
test.each([
  ['no file', () => {}],
  ['an empty file', () => writeFileSync(path, '')],
  ['an empty file beside the log of what it held', () => writeFileSync(path, '')],
])('goal: %s beside keys is no new appliance, and nothing is made', (name, make) => {
  if (name.includes('log')) writeFileSync(`${path}-wal`, 'what a recovery needs')
  make()
  const before = readdirSync(dir)
  const fault = faultOf(() => openStore(path, { leftovers: ['operator-keys.txt', 'ca'] }))
  expect([fault.code, fault.message]).toEqual([
    'store.missing',
    `${path} has no records, and beside it are keys of an appliance: operator-keys.txt, ca`,
  ])
  expect(readdirSync(dir)).toEqual(before)
})

test('goal: a database without tables beside keys is refused; without keys, or with records, it opens', () => {
  const bare = new Database(path)
  bare.run('PRAGMA journal_mode = WAL')
  bare.run('CREATE TABLE gone (a TEXT) STRICT; DROP TABLE gone')
  bare.close()
  expect(statSync(path).size).toBeGreaterThan(0)
  expect(faultOf(() => openStore(path, { leftovers: ['ca'] })).code).toBe('store.missing')
  openStore(path).close()
  openStore(path, { leftovers: ['ca'] }).close()
})

// Goal: the daemon learns of damage from whichever statement meets it first, and all else goes on.
test.each(['drizzle', 'raw', 'transaction'] as const)('damage in a run, met by %s', how => {
  fill()
  const store = openStore(path)
  expect(store.damage()).toBeNull()
  const { db } = store.directory
  const raw = prepareRaw(db, 'SELECT * FROM organizations')
  overwrite('organizations')
  // As when the pages are read from the disk again; the log is empty, as some time after the last write.
  db.run('PRAGMA shrink_memory')
  const meet = {
    drizzle: () => listOrganizations(db),
    raw: () => raw.all(),
    transaction: () => store.directory.transact(tx => listOrganizations(tx)),
  }[how]
  expect(storageCodeOf(thrownBy(meet))).toBe('store.corrupt')
  expect(store.damage()).toContain('malformed')
  expect(db.all('SELECT count(*) AS count FROM meta')).toHaveLength(1)
  store.close()
})

test('goal: what is no damage is not noted as such', () => {
  const store = openStore(path)
  expect(() => store.directory.db.run('SELECT * FROM nowhere')).toThrow()
  insertOrganization(store.directory.db, { id: 'o', slug: 'a', nowMs: 1 })
  expect(() => store.directory.db.run('INSERT INTO organizations SELECT * FROM organizations')).toThrow()
  expect(store.damage()).toBeNull()
  store.close()
})

test('goal: from beside a running daemon damage is seen, a whole database is left as it is, and the schema is told', () => {
  fill()
  const store = openStore(path)
  const { schema, ...checked } = inspectDatabase(path)
  expect([checked, schema > 0]).toEqual([{ problem: null, unchecked: [] }, true])
  insertOrganization(store.directory.db, { id: 'later', slug: 'later', nowMs: 1 })
  store.close()
  overwrite('organizations')
  expect(inspectDatabase(path).problem).toContain('table organizations')
  writeFileSync(path, 'this is no database, but it is long enough to have a header of its own, so it seems one')
  expect(inspectDatabase(path).problem).toContain('not a database')
})

/** Changes every row in a transaction that the kill finds open, with part of it in the file already. */
const killed = (file: string) => `
  const { Database } = require('bun:sqlite')
  const db = new Database(${JSON.stringify(file)})
  db.run('PRAGMA cache_size = 1')
  db.run('BEGIN IMMEDIATE')
  db.run('UPDATE t SET a = randomblob(2000)')
  process.kill(process.pid, 'SIGKILL')
`

test('goal: a database whose writer was killed before it was one with a write-ahead log is looked at, and whole', () => {
  const sqlite = new Database(path, { create: true })
  sqlite.run('CREATE TABLE t (a)')
  for (let at = 0; at < 200; at += 1) sqlite.run('INSERT INTO t VALUES (zeroblob(2000))')
  sqlite.run('PRAGMA user_version = 7')
  sqlite.close()
  expect(Bun.spawnSync([process.execPath, '--eval', killed(path)]).signalCode).toBe('SIGKILL')
  expect(existsSync(`${path}-journal`)).toBe(true)
  expect(databaseBytes(path)).toBeGreaterThan(200 * 2000)
  expect(inspectDatabase(path)).toEqual({ problem: null, unchecked: [], schema: 7 })
  using whole = new Database(path, { readonly: true })
  expect(whole.query('SELECT count(*) AS rows FROM t WHERE a = zeroblob(2000)').get()).toEqual({ rows: 200 })
})

test('goal: the check ends when its time is over and names the tables that it left out, the largest among them', () => {
  fill()
  const sqlite = new Database(path, { readonly: true })
  const { problem, unchecked } = quickCheck(sqlite, { msMax: 0 })
  expect([problem, unchecked[0], unchecked.at(-1)]).toEqual([null, 'sqlite_schema', 'usage'])
  expect(quickCheck(sqlite)).toEqual({ problem: null, unchecked: [] })
  sqlite.close()
})

function thrownBy(work: () => unknown): unknown {
  try {
    work()
  } catch (error) {
    return error
  }
  throw new Error('nothing was thrown')
}
