// Goal: doctor passes a database only if it was read whole; damage, loss and a newer schema come with what to do.

import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { collectDatabaseFacts } from '../../../src/cli/doctor/database.driver.ts'
import { type DatabaseFacts, databaseCheck } from '../../../src/cli/doctor/database.plan.ts'
import { MIGRATIONS, openStore, schemaVersionOf } from '../../../src/store/db.ts'

const path = '/s/strongroom.db'
const read = { kind: 'read', path, sizeBytes: 1, problem: null, unchecked: [], schema: 22 } as const

const TABLE: [string, DatabaseFacts, string, string][] = [
  ['whole', read, 'PASS', 'whole, schema 22, 1 MiB'],
  ['older, which the next start upgrades', { ...read, schema: 21 }, 'PASS', 'schema 21'],
  ['newer', { ...read, schema: 23 }, 'FAIL', 'schema 23, this executable supports up to 22'],
  ['damaged', { ...read, problem: 'table keys: btree' }, 'FAIL', 'table keys: btree'],
  ['too large for the time', { ...read, unchecked: ['usage'] }, 'WARN', 'no time for usage'],
  ['not there yet', { kind: 'none', path, leftovers: [] }, 'SKIP', 'made by the first start'],
  ['lost', { kind: 'none', path, leftovers: ['ca'] }, 'FAIL', 'beside it are keys of an appliance: ca'],
  ['of others', { kind: 'unread', path, reason: 'needs root' }, 'SKIP', 'needs root'],
]

// Goal: each state of a database has its verdict.
test.each(TABLE)('a database: %s', (_name, facts, result, detail) => {
  const check = databaseCheck(facts, 22)
  expect([check.name, check.result, check.detail]).toEqual([
    'database',
    result,
    expect.stringContaining(detail),
  ] as never)
  expect(check.remedy === null).toBe(result === 'PASS' || result === 'SKIP')
})

test('goal: what is on the disk is what is judged, and looking makes nothing', () => {
  const dir = mkdtempSync(join(tmpdir(), 'strongroom-doctor-'))
  const look = () => databaseCheck(collectDatabaseFacts(dir, { isRoot: true }), schemaVersionOf(MIGRATIONS)).result
  try {
    expect(look()).toBe('SKIP')
    writeFileSync(join(dir, 'control.key'), 'x')
    expect(look()).toBe('FAIL')
    openStore(join(dir, 'strongroom.db')).close()
    expect(look()).toBe('PASS')
    writeFileSync(join(dir, 'strongroom.db'), '')
    expect(look()).toBe('FAIL')
  } finally {
    rmSync(dir, { recursive: true })
  }
})
