// Goal: there is a way back from every migration: a whole copy from before it, named where it is needed, and a command.

import { Database } from 'bun:sqlite'
import { afterEach, beforeEach, expect, test } from 'bun:test'
import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { copiesOf } from '../../src/store/copies.ts'
import { MIGRATIONS, openStore, schemaVersionOf } from '../../src/store/db.ts'
import { insertOrganization, listOrganizations } from '../../src/store/directory/organization.query.ts'
import { inspectDatabase } from '../../src/store/inspect.ts'
import { appendAudit, listAudit } from '../../src/store/ledger/audit.query.ts'
import { appendEvent, listEvents } from '../../src/store/ledger/event.query.ts'
import { goBack, replaceDatabase } from '../../src/store/way-back.ts'
import { faultOf } from '../rigs/fault-of.ts'

const newest = schemaVersionOf(MIGRATIONS)

let dir: string
let path: string

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-copies-'))
  path = join(dir, 'strongroom.db')
})

afterEach(() => rmSync(dir, { recursive: true }))

/** A later executable, by so many schemas. */
function later(count: number): typeof MIGRATIONS {
  const more = Array.from({ length: count }, (_, index) => ({
    to: newest + 1 + index,
    sql: `CREATE TABLE later_${index} (id TEXT) STRICT`,
  }))
  return { ...MIGRATIONS, upgrades: [...MIGRATIONS.upgrades, ...more] }
}

function add(slug: string, migrations = MIGRATIONS): void {
  const store = openStore(path, { migrations })
  insertOrganization(store.directory.db, { id: slug, slug, nowMs: 1 })
  store.close()
}

function slugs(migrations = MIGRATIONS): string[] {
  const store = openStore(path, { migrations })
  const found = listOrganizations(store.directory.db).map(({ slug }) => slug)
  store.close()
  return found.toSorted()
}

test('goal: an upgrade leaves a whole copy from before it; a new database and one that needs none leave nothing', () => {
  add('acme')
  expect(slugs()).toEqual(['acme'])
  expect(copiesOf(path)).toEqual([])
  expect(slugs(later(2))).toEqual(['acme'])
  expect(copiesOf(path)).toEqual([{ path: `${path}.schema-${newest}`, schema: newest }])
  expect(inspectDatabase(`${path}.schema-${newest}`)).toEqual({ problem: null, unchecked: [], schema: newest })
})

test('goal: rows that are in the log alone are in the copy', () => {
  add('acme')
  const other = new Database(path)
  other.run('PRAGMA wal_autocheckpoint = 0')
  other.run("INSERT INTO organizations (id, slug, status, created_at_ms) VALUES ('g', 'globex', 'active', 1)")
  openStore(path, { migrations: later(1) }).close()
  other.close()
  const copy = new Database(`${path}.schema-${newest}`, { readonly: true })
  expect(copy.query('SELECT slug FROM organizations ORDER BY slug').all()).toEqual([
    { slug: 'acme' },
    { slug: 'globex' },
  ])
  copy.close()
})

test('goal: three copies are kept, the oldest go, and files of others stay', () => {
  add('acme')
  writeFileSync(`${path}.schema-x`, 'not ours')
  writeFileSync(`${path}.schema-${newest}.partial`, 'of a start that was killed')
  for (let count = 1; count <= 5; count += 1) openStore(path, { migrations: later(count) }).close()
  expect(copiesOf(path).map(({ schema }) => schema)).toEqual([newest + 4, newest + 3, newest + 2])
  expect(readFileSync(`${path}.schema-x`, 'utf8')).toBe('not ours')
})

test('goal: the older executable names the copy and the command; the command brings back what was there, and keeps the newer', () => {
  add('acme')
  add('globex', later(1))
  const { code, message } = faultOf(() => openStore(path))
  expect(code).toBe('store.newer')
  expect(message).toContain(`the copy from before the upgrade is ${path}.schema-${newest}: \`strongroom downgrade\``)
  const { copy, setAside } = goBack(path)
  expect([copy.schema, setAside]).toEqual([newest, `${path}.set-aside-${newest + 1}`])
  expect(slugs()).toEqual(['acme'])
  const newer = new Database(setAside ?? '', { readonly: true })
  expect(newer.query('SELECT slug FROM organizations ORDER BY slug').all()).toHaveLength(2)
  newer.close()
  expect(faultOf(() => goBack(path)).code).toBe('conflict')
  // And forward again.
  expect(slugs(later(1))).toEqual(['acme'])
})

test('goal: the way back keeps the events and commands since the upgrade, by the columns that both know', () => {
  const note = (kind: string, migrations?: Parameters<typeof later>[0]) => {
    const store = openStore(path, migrations === undefined ? {} : { migrations: later(migrations) })
    appendEvent(store.ledger.db, { nowMs: 1, kind, subject: 's', detail: { kind } })
    const who = { uid: 0, gid: 0, pid: 1, actor: 'root', role: 'admin', socket: 'admin' } as const
    appendAudit(store.ledger.db, { ...who, atMs: 1, operation: kind, arguments: {}, result: 'ok', refused: false })
    store.close()
  }
  note('before')
  note('after', 1)
  const newer = new Database(path)
  newer.run('ALTER TABLE events ADD COLUMN more TEXT')
  newer.run("INSERT INTO events (at_ms, kind, subject, detail, more) VALUES (2, 'last', 's', '{}', 'x')")
  newer.close()
  // A run that was killed has left these.
  writeFileSync(`${path}.partial`, 'half')
  writeFileSync(`${path}.partial-journal`, 'half')
  expect(goBack(path).kept).toBe(3)
  const store = openStore(path)
  expect(listEvents(store.ledger.db, { limit: 9 }).map(({ kind }) => kind)).toEqual(['last', 'after', 'before'])
  const asked = { after: null, sinceMs: null, actor: null, limit: 9 }
  expect(listAudit(store.ledger.db, asked).map(({ operation }) => operation)).toEqual(['before', 'after'])
  store.close()
  expect(existsSync(`${path}.partial-journal`)).toBe(false)
})

test('goal: without a copy, or with a damaged one, nothing is changed and no command is promised', () => {
  add('acme', later(1))
  const before = readFileSync(path)
  expect(faultOf(() => openStore(path)).message).toEndWith('nothing was changed')
  expect(faultOf(() => goBack(path)).code).toBe('not_found')
  writeFileSync(
    `${path}.schema-${newest}`,
    'this is no database, but it is long enough to have a header, so it seems one',
  )
  expect(faultOf(() => goBack(path)).code).toBe('store.corrupt')
  expect(readFileSync(path).equals(before)).toBe(true)
})

test('goal: a copy that is put back is not changed by the log of the database that it replaces', () => {
  add('acme')
  const copy = join(dir, 'before.db')
  copyFileSync(path, copy)
  const writer = new Database(path)
  writer.run('PRAGMA journal_mode = WAL')
  for (let at = 0; at < 20; at += 1)
    writer.run('INSERT INTO meta (name, value) VALUES (?, ?)', [`later-${at}`, 'x'.repeat(999)])
  // As a killed daemon leaves them: the rows are in the log alone.
  const [main, log] = [readFileSync(path), readFileSync(`${path}-wal`)]
  writer.close()
  writeFileSync(path, main)
  writeFileSync(`${path}-wal`, log)
  replaceDatabase(path, copy)
  expect(existsSync(`${path}-wal`)).toBe(false)
  const after = new Database(path)
  expect(after.query("SELECT count(*) AS count FROM meta WHERE name LIKE 'later-%'").get()).toEqual({ count: 0 })
  after.close()
  expect(slugs()).toEqual(['acme'])
})
