// A later executable than this repository's: another version, one more migration of SQLite and of a fleet's directory,
// and faults that a test asks for.
// Effects: builds it below `dist/later`, where the next test of the same sources finds it; writes the changed sources
// into a directory of this process, which it removes at its end.
//
// The faults are read from a file, so that one executable shows them all: `crash` and `hang` at the start of the
// daemon, `migration`, and `canary` for the doctor once the daemon is on trial.

import { cpSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { FleetMigration } from '../../../src/fleet/migrations/migration.ts'
import { FLEET_MIGRATIONS, newestOf } from '../../../src/fleet/migrations.ts'
import { MIGRATIONS, schemaVersionOf } from '../../../src/store/db.ts'
import { buildExecutable } from '../../build/executable.ts'
import { applianceRecipe } from '../../build/recipes.ts'

const repo = resolve(import.meta.dir, '../../..')

const versionOf = (releases: number) => `0.${1 + releases}.0`
export const laterVersion = versionOf(1)
export const laterSchema = schemaVersionOf(MIGRATIONS) + 1
/** Seen by the service too: its /tmp is its own. */
export const faultFile = '/run/strongroom-later-fault'
export const LATER_FAULTS = ['crash', 'hang', 'migration', 'canary'] as const
export type LaterFault = (typeof LATER_FAULTS)[number]

/** The schema of a fleet's directory that it brings. */
export const laterFleetSchema = newestOf() + 1

/** Its path. `releases`: by how many it is later; each has a step more of a fleet's directory. */
export async function laterExecutable({ releases = 1 } = {}): Promise<string> {
  // Tests run beside each other. Both may build: each renames the same bytes to one place.
  const outDir = join(repo, `dist/later/${releases}`)
  const tree = join(repo, `dist/later/tree-${process.pid}-${releases}`)
  process.on('exit', () => rmSync(tree, { recursive: true, force: true }))
  rmSync(tree, { recursive: true, force: true })
  mkdirSync(tree, { recursive: true })
  for (const name of ['src', 'package.json', 'bun.lock', 'tsconfig.json', 'scripts/lib/bun.lock.json'])
    cpSync(join(repo, name), join(tree, name), { recursive: true })
  symlinkSync(join(repo, 'node_modules'), join(tree, 'node_modules'))
  edit(join(tree, 'package.json'), /"version": "[^"]+"/, `"version": "${versionOf(releases)}"`)
  edit(
    join(tree, 'src/store/db.ts'),
    /upgrades: \[([^\]]*)\],?\s*\}/,
    `upgrades: [$1, { to: ${laterSchema}, sql: (globalThis as { laterSql?: string }).laterSql ?? '${LATER_SQLITE}' }] }`,
  )
  edit(
    join(tree, 'src/fleet/migrations.ts'),
    /(FLEET_MIGRATIONS: readonly FleetMigration\[\] = \[[^\]]*?),?\s*\]/,
    `$1, ...${JSON.stringify(fleetStepsOf(releases))}]`,
  )
  const tables = join(tree, 'src/fleet/replica/tables.ts')
  edit(
    tables,
    /REPLICA_TABLES: readonly ReplicaTable\[\] = \[/,
    "$&{ name: 'later_things', key: ['id'], hostMay: [], columns: texts('fixed', 'id') },",
  )
  edit(tables, /texts\('attempt', 'host_id'\),/, "$&{ name: 'later', type: 'integer', merge: 'wish', otherwise: 7 },")
  edit(join(tree, 'src/main.ts'), /\nconst failedExitCode/, `\n${FAULTS}\nconst failedExitCode`)
  const { path } = await buildExecutable(applianceRecipe, { repo: tree, outDir, force: false })
  return path
}

/** The same table and column in both databases. */
const LATER_SQLITE = [
  'CREATE TABLE later_things (id TEXT PRIMARY KEY) STRICT',
  'ALTER TABLE instances ADD COLUMN later INTEGER NOT NULL DEFAULT 7',
].join('; ')

/** Adds what hosts of the release before need not know. Rows that were there before the trigger are in no news. */
function fleetStepsOf(releases: number): FleetMigration[] {
  const release = FLEET_MIGRATIONS.at(-1)?.release ?? 0
  return Array.from({ length: releases }, (_, at) => ({
    to: laterFleetSchema + at,
    release: release + 1 + at,
    name: `later ${1 + at}`,
    sql:
      at > 0
        ? `CREATE TABLE later_still_${at} (id text PRIMARY KEY)`
        : `CREATE TABLE later_things (id text PRIMARY KEY);
           INSERT INTO later_things VALUES ('first');
           CREATE TRIGGER record_change AFTER INSERT OR UPDATE OR DELETE ON later_things
             FOR EACH ROW EXECUTE FUNCTION record_change('id');
           ALTER TABLE instances ADD COLUMN later bigint NOT NULL DEFAULT 7`,
  }))
}

const FAULTS = `
import { existsSync as faultIsThere, readFileSync as readFault } from 'node:fs'
const laterFault = faultIsThere('${faultFile}') ? readFault('${faultFile}', 'utf8').trim() : ''
const isServing = process.argv[2] === 'serve'
if (laterFault === 'crash' && isServing) process.exit(1)
if (laterFault === 'hang' && isServing) for (;;) Bun.sleepSync(1_000)
if (laterFault === 'migration' && isServing) Object.assign(globalThis, { laterSql: 'CREATE TABLE broken (' })
const trialRecord = '/var/lib/strongroom/upgrade/record.json'
if (laterFault === 'canary' && process.argv[2] === 'doctor' && faultIsThere(trialRecord) && readFault(trialRecord, 'utf8').includes('"phase": "trial"')) {
  process.stdout.write(JSON.stringify({ ok: false, checks: [{ name: 'canary', result: 'FAIL', detail: 'as the test wants it' }] }))
  process.exit(1)
}
`

function edit(file: string, from: RegExp, to: string): void {
  const before = readFileSync(file, 'utf8')
  const after = before.replace(from, to)
  if (after === before) throw new Error(`${file}: nothing there to edit`)
  writeFileSync(file, after)
}
