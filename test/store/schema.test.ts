// New databases and upgraded ones end with the same schema, and upgrades keep every row. Real database files.

import { Database } from 'bun:sqlite'
import { expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { MIGRATIONS, openStore, schemaVersionOf } from '../../src/store/db.ts'
import { attestationOf, storeAttestation } from '../../src/store/directory/attestation.query.ts'
import { egressOf } from '../../src/store/ledger/egress.query.ts'
import { recordResource, resourcesOf } from '../../src/store/ledger/resource.query.ts'
import { insertVm, openVm, vmById } from '../../src/store/ledger/vm.query.ts'

type Row = { readonly type: string; readonly name: string; readonly tbl_name: string; readonly sql: string | null }

const schema21 = readFileSync(resolve(import.meta.dir, '../vectors/store/schema-21.sql'), 'utf8')

/** The step to schema 22 as executables before the first release had it. */
const schema22 = `
ALTER TABLE builds ADD COLUMN fetch_ca_sha256 TEXT;
ALTER TABLE builds ADD COLUMN crates_mirror TEXT;
PRAGMA user_version = 22;
`

function place(): { path: string } & Disposable {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-schema-'))
  return { path: join(directory, 'strongroom.db'), [Symbol.dispose]: () => rmSync(directory, { recursive: true }) }
}

function contentOf(path: string) {
  const sqlite = new Database(path, { readonly: true })
  const schema = sqlite.query<Row, []>('SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name').all()
  const version = sqlite.query<{ user_version: number }, []>('PRAGMA user_version').get()?.user_version
  const tables = schema.filter(({ type }) => type === 'table').map(({ name }) => name)
  const rows = new Map(tables.map(name => [name, sqlite.query<object, []>(`SELECT * FROM "${name}"`).all()]))
  sqlite.close()
  return { schema, version, rows }
}

function upgradeFrom(...statements: readonly string[]) {
  using at = place()
  const old = new Database(at.path)
  for (const sql of statements) old.run(sql)
  old.close()
  const before = contentOf(at.path)
  openStore(at.path).close()
  return { before, after: contentOf(at.path) }
}

function newDatabase() {
  using at = place()
  openStore(at.path).close()
  return contentOf(at.path)
}

test('goal: a new database has the newest schema and no row but the id of its host', () => {
  const { version, rows } = newDatabase()
  expect(version).toBe(schemaVersionOf(MIGRATIONS))
  expect([...rows].filter(([, found]) => found.length !== 0).map(([name, found]) => [name, found.length])).toEqual([
    ['meta', 1],
  ])
})

// Goal: an older database gets exactly the schema of a new one and keeps every row; the newest schema opens unchanged.
test.each([
  [21, [schema21]],
  [22, [schema21, schema22]],
])('a database of schema %d', (version, made) => {
  const { before, after } = upgradeFrom(...made)
  const fresh = newDatabase()
  expect(before.version).toBe(version)
  expect([after.version, after.schema]).toEqual([fresh.version, fresh.schema])
  for (const [name, found] of before.rows) {
    expect(found.length).toBeGreaterThan(0)
    expect([name, after.rows.get(name)]).toMatchObject([name, found])
  }
  if (version === fresh.version) expect(after).toEqual(before)
})

test('goal: VMs and instances of schema 21 go on: resources join, attestations are replaced, records go with what they belong to', () => {
  using at = place()
  const old = new Database(at.path)
  old.run(schema21)
  old.close()
  const store = openStore(at.path)
  const [directory, ledger] = [store.directory.db, store.ledger.db]
  const counts = 'SELECT sum(record_count) AS records, sum(living_count) AS living FROM organizations'
  const living = "count(*) FILTER (WHERE status <> 'terminated')"
  expect(directory.all(counts)).toEqual(directory.all(`SELECT count(*) AS records, ${living} AS living FROM instances`))
  expect(directory.all(counts)).not.toEqual([{ records: 0, living: 0 }])
  expect(store.hostId).toBe('01932f00-0000-7000-8000-000000000001')

  recordResource(ledger, { vmId: 'v1', kind: 'tpm', name: '3:4', nowMs: 3 })
  expect(resourcesOf(ledger, 'v1').map(({ seq, kind }) => [seq, kind])).toEqual([
    [10, 'tpm'],
    [9, 'qemu'],
    [8, 'uid'],
    [7, 'address'],
  ])
  expect([openVm(ledger, { id: 'v1', nowMs: 9 }), openVm(ledger, { id: 'v9', nowMs: 9 })]).toEqual([true, false])
  expect([vmById(ledger, 'v1')?.openedAtMs, vmById(ledger, 'v3')?.openedAtMs]).toEqual([4, null])
  expect(egressOf(ledger, 'v1')).toMatchObject({ usedBytes: 4321, rescueBytes: 5 })
  insertVm(ledger, { hostId: 'h', image: 'instance', vcpus: 1, memoryMib: 512, nowMs: 9, id: 'v4' })
  expect(vmById(ledger, 'v4')).toMatchObject({ network: 'world', workload: null, modelDisk: null })

  const attestation = { instanceId: 'i1', nonce: 'm'.repeat(43), sshHostKey: 'C', attestedAtMs: 8, document: '{}' }
  storeAttestation(directory, attestation)
  expect(attestationOf(directory, 'i1')).toEqual(attestation)
  directory.run("DELETE FROM instances WHERE id = 'i1'")
  expect(attestationOf(directory, 'i1')).toBeNull()
  expect(directory.all('SELECT * FROM instance_changes')).toEqual([])
  expect(directory.all("SELECT instance_id FROM gateway_keys WHERE prefix = 'sgk_a'")).toEqual([{ instance_id: null }])
  store.close()
})

test('goal: upgrades follow each other without a gap, and none leads past what a new database gets', () => {
  const { initial, upgrades } = MIGRATIONS
  const versions = upgrades.map(({ to }) => to)
  expect(versions).toEqual(versions.map((_, index) => 22 + index))
  expect(versions).toContain(initial.to)
  expect(schemaVersionOf(MIGRATIONS)).toBe(versions.at(-1) ?? 0)
})
