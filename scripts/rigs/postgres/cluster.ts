// The files of a new PostgreSQL server. Making them takes longer than most tests, so each machine makes them once, for
// all clones: below STRONGROOM_CACHE, under a hash of all that they depend on. Effects: files, processes.

import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
} from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { systemErrorCode } from '../../../src/base/fault.ts'
import { FLEET_MIGRATIONS } from '../../../src/fleet/migrations.ts'
import { command, giveToServer, isRoot, ownerRole, program, serverUid } from './programs.ts'

const initdb = [
  program('initdb'),
  '--no-sync',
  '--auth=trust',
  `--username=${ownerRole}`,
  '--encoding=UTF8',
  '--locale=C',
]

/** Changed with `fill`, which the hash does not cover. */
const form = 1

/** Files that no test has copied for so long are removed. */
const unusedMs = 7 * 24 * 3_600_000

/** Copies them to `data`. `fill` adds what every server has; it gets the parent folder of the server's files. */
export async function copyCluster(data: string, fill: (directory: string) => Promise<void>): Promise<void> {
  const made = join(cacheDir(), key())
  if (!existsSync(made)) await make(made, fill)
  const now = new Date()
  utimesSync(made, now, now)
  await command(['cp', '--archive', '--reflink=auto', join(made, 'data'), data])
}

function cacheDir(): string {
  const fallback = isRoot ? '/var/cache/strongroom' : join(homedir(), '.cache/strongroom')
  return join(process.env.STRONGROOM_CACHE ?? fallback, 'postgres')
}

function key(): string {
  const { size, mtimeMs } = statSync(program('postgres'))
  const inputs = { form, initdb, serverUid, server: [size, mtimeMs], migrations: FLEET_MIGRATIONS }
  return new Bun.CryptoHasher('sha256').update(JSON.stringify(inputs)).digest('hex').slice(0, 32)
}

/** In a folder of its own, which gets its name once it is whole: of two that make the same, one is too late. */
async function make(to: string, fill: (directory: string) => Promise<void>): Promise<void> {
  const parent = cacheDir()
  mkdirSync(parent, { recursive: true })
  for (const name of readdirSync(parent)) {
    const path = join(parent, name)
    const usedMs = statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Date.now()
    if (Date.now() - usedMs > unusedMs) rmSync(path, { recursive: true, force: true })
  }
  const directory = mkdtempSync(join(parent, '.new-'))
  try {
    chmodSync(directory, 0o755)
    giveToServer(directory)
    await command([...initdb, `--pgdata=${join(directory, 'data')}`])
    await fill(directory)
    renameSync(directory, to)
  } catch (error) {
    if (!['ENOTEMPTY', 'EEXIST'].includes(systemErrorCode(error) ?? '')) throw error
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}
