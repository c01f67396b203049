// A program for tests that kill it: `program.ts WORK DIRECTORY` makes or restores a backup, migrates a database, goes
// back, or upgrades. Effects: the files of DIRECTORY.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { makeBackup } from '../../../src/backup/backup.ts'
import { restoreBackup } from '../../../src/backup/restore.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import { MIGRATIONS, openStore, schemaVersionOf } from '../../../src/store/db.ts'
import { goBack } from '../../../src/store/way-back.ts'
import { upgradeIn } from '../upgrade/program.ts'

const nowMs = Date.UTC(2026, 10, 25)

/** A later executable. */
export const LATER: typeof MIGRATIONS = {
  ...MIGRATIONS,
  upgrades: [
    ...MIGRATIONS.upgrades,
    { to: schemaVersionOf(MIGRATIONS) + 1, sql: 'CREATE TABLE later (id TEXT PRIMARY KEY) STRICT' },
  ],
}

export const WORKS = {
  backup: (dir: string) =>
    makeBackup(join(dir, 'backup.age'), {
      stateDir: join(dir, 'state'),
      loaded: { config: defaultConfig(), file: join(dir, 'strongroom.toml'), warnings: [] },
      seal: { recipients: [readFileSync(join(dir, 'recipient'), 'utf8')] },
      isSigned: true,
      nowMs,
    }),
  restore: (dir: string) => restore(dir, { setAside: false }),
  'restore over': (dir: string) => restore(dir, { setAside: true }),
  migration: async (dir: string) => openStore(join(dir, 'state/strongroom.db'), { migrations: LATER }).close(),
  downgrade: async (dir: string) => void goBack(join(dir, 'state/strongroom.db')),
  upgrade: (dir: string) => upgradeIn(dir, { later: LATER, failing: [] }),
  'upgrade that fails': (dir: string) => upgradeIn(dir, { later: LATER, failing: ['canary: as the test wants it'] }),
} satisfies Record<string, (dir: string) => Promise<unknown>>

function restore(dir: string, { setAside }: { readonly setAside: boolean }) {
  return restoreBackup(join(dir, 'backup.age'), {
    stateDir: join(dir, 'new'),
    key: { identities: [readFileSync(join(dir, 'identity'), 'utf8')] },
    operatorKey: Uint8Array.fromHex(readFileSync(join(dir, 'operator-key'), 'utf8')),
    keys: { kind: 'keep', revoke: [] },
    outside: { configurationFile: readFileSync(join(dir, 'configuration'), 'utf8'), directories: [], paths: [] },
    setAside,
    nowMs,
  })
}

if (import.meta.main) {
  const [name = '', dir = ''] = process.argv.slice(2)
  const work = Object.entries(WORKS).find(([known]) => known === name)?.[1]
  if (work === undefined) throw new Error(`no such work: ${name}`)
  await work(dir)
}
