// A later executable than this repository's: another version, one more migration, and faults that a test asks for.
// Effects: builds it in a directory of this process below `dist/later`, which the process removes at its end.
//
// The faults are read from a file, so that one executable shows them all: `crash` and `hang` at the start of the
// daemon, `migration`, and `canary` for the doctor once the daemon is on trial.

import { cpSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { MIGRATIONS, schemaVersionOf } from '../../../src/store/db.ts'
import { buildExecutable } from '../../build/executable.ts'
import { applianceRecipe } from '../../build/recipes.ts'

const repo = resolve(import.meta.dir, '../../..')

export const laterVersion = '0.2.0'
export const laterSchema = schemaVersionOf(MIGRATIONS) + 1
/** Seen by the service too: its /tmp is its own. */
export const faultFile = '/run/strongroom-later-fault'
export const LATER_FAULTS = ['crash', 'hang', 'migration', 'canary'] as const
export type LaterFault = (typeof LATER_FAULTS)[number]

/** Its path. */
export async function laterExecutable(): Promise<string> {
  // Tests run beside each other.
  const outDir = join(repo, `dist/later/${process.pid}`)
  process.on('exit', () => rmSync(outDir, { recursive: true, force: true }))
  const tree = join(outDir, 'tree')
  rmSync(tree, { recursive: true, force: true })
  mkdirSync(tree, { recursive: true })
  for (const name of ['src', 'package.json', 'bun.lock', 'tsconfig.json', 'scripts/lib/bun.lock.json'])
    cpSync(join(repo, name), join(tree, name), { recursive: true })
  symlinkSync(join(repo, 'node_modules'), join(tree, 'node_modules'))
  edit(join(tree, 'package.json'), /"version": "[^"]+"/, `"version": "${laterVersion}"`)
  edit(
    join(tree, 'src/store/db.ts'),
    /upgrades: \[([^\]]*)\],?\s*\}/,
    `upgrades: [$1, { to: ${laterSchema}, sql: (globalThis as { laterSql?: string }).laterSql ?? 'CREATE TABLE later (id TEXT PRIMARY KEY) STRICT' }] }`,
  )
  edit(join(tree, 'src/main.ts'), /\nconst failedExitCode/, `\n${FAULTS}\nconst failedExitCode`)
  const { path } = await buildExecutable(applianceRecipe, { repo: tree, outDir, force: false })
  return path
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
