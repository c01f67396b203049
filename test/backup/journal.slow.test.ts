// Usage that the database lacks when a backup is made: the rows of the usage journal.

import { Database } from 'bun:sqlite'
import { afterEach, beforeEach, expect, test } from 'bun:test'
import { generateKeyPairSync } from 'node:crypto'
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeBackup } from '../../src/backup/backup.ts'
import { restoreBackup } from '../../src/backup/restore.ts'
import { newIdentity } from '../../src/backup/seal.ts'
import { defaultConfig } from '../../src/config/load.ts'
import { usageJournalFile } from '../../src/host/state-files.ts'
import { readJournalFor } from '../../src/inference/metering/journal/copy.ts'
import { UsageJournal } from '../../src/inference/metering/journal/journal.ts'
import { openStore } from '../../src/store/db.ts'
import { insertOrganization } from '../../src/store/directory/organization.query.ts'
import { prepareUsageAppend } from '../../src/store/directory/usage/usage.query.ts'
import { type Usage, usage } from '../../src/store/directory/usage/usage.table.ts'
import { prepareMonthSum } from '../../src/store/directory/usage/usage-month.query.ts'

const nowMs = Date.UTC(2026, 10, 25, 3)

let dir: string
let state: string
let file: string

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-backup-'))
  state = join(dir, 'state')
  file = join(dir, 'backup.age')
  mkdirSync(state)
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-384' })
  writeFileSync(join(state, 'operator-key.pem'), privateKey.export({ format: 'pem', type: 'pkcs8' }), { mode: 0o600 })
})

afterEach(() => rmSync(dir, { recursive: true }))

const row = (id: string, at: number): Usage => ({
  ...{
    id,
    atMs: nowMs + at,
    organizationId: 'o1',
    keyPrefix: 'gk_live',
    instanceId: null,
    model: 'm',
    upstream: 'u',
  },
  ...{ promptTokens: 5, completionTokens: 2, cachedTokens: 0, costNanoUsd: 10, outcome: 'completed' as const },
  ...{ tokensSource: 'reported' as const, endUser: null, tags: null },
})

// Goal: usage that waits for the database is in a backup, once: rows of a daemon that was killed, and rows that the
// database has already although the journal does not know it. Rows of a deleted organization cost only themselves.
test('the usage journal', async () => {
  const { identity, recipient } = await newIdentity()
  writeFileSync(join(dir, 'strongroom.toml'), '')
  const loaded = { config: defaultConfig(), file: join(dir, 'strongroom.toml'), warnings: [] }
  const store = openStore(join(state, 'strongroom.db'))
  insertOrganization(store.directory.db, { id: 'o1', slug: 'acme', nowMs: 1 })
  const journalPath = join(state, usageJournalFile)
  const journal = new UsageJournal(journalPath)
  const append = prepareUsageAppend(store.directory.db)
  const rows = ['booked', 'both', 'waiting', 'gone'].map(row)
  const places = rows.map((item, at) => journal.append(at === 3 ? { ...item, organizationId: 'deleted' } : item))
  append(rows.slice(0, 2))
  journal.release(places[1] ?? -1)
  journal.close()
  store.close()
  await makeBackup(file, {
    ...{
      stateDir: state,
      loaded,
      seal: { recipients: [recipient] },
      isSigned: true,
      nowMs,
      readJournal: readJournalFor,
    },
  })
  // Later rows of this machine are not those of the restored one.
  const later = new UsageJournal(journalPath)
  later.append(row('later', 9))
  later.close()
  await restoreBackup(file, {
    ...{ stateDir: state, key: { identities: [identity] }, operatorKey: 'any', outside: null, setAside: true, nowMs },
    keys: { kind: 'keep', revoke: [] },
  })
  expect(existsSync(journalPath)).toBe(false)
  const restored = openStore(join(state, 'strongroom.db'))
  const { db } = restored.directory
  const ids = db.select({ id: usage.id }).from(usage).all()
  expect(ids.map(({ id }) => id).toSorted()).toEqual(['booked', 'both', 'waiting'])
  const sum = prepareMonthSum(db)({ organizationId: 'o1', keyPrefix: 'gk_live', month: '2026-11' })
  expect(sum).toEqual({ requests: 3, promptTokens: 15, completionTokens: 6, costNanoUsd: 30 })
  restored.close()
})

// Goal: a backup without rows that are only in the log beside the copy is no backup: it fails, and says why.
test('rows that do not reach the copy', () => {
  const copy = join(dir, 'copy.db')
  const other = openStore(copy)
  insertOrganization(other.directory.db, { id: 'o1', slug: 'acme', nowMs: 1 })
  const from = mkdtempSync(join(dir, 'from-'))
  const journal = new UsageJournal(join(from, usageJournalFile))
  journal.append(row('waiting', 0))
  journal.close()
  const addRows = readJournalFor(from)
  // While another connection reads, none moves the log into the file.
  const reader = new Database(copy, { readonly: true })
  reader.run('BEGIN')
  reader.query('SELECT count(*) FROM organizations').get()
  expect(() => addRows(copy)).toThrow('-wal')
  reader.close()
  other.close()
  addRows(copy)
})
