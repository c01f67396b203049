// An upgrade for tests that kill it: the real work on real files, with a service that is a database and the requests
// that it has accepted. Given again, it goes on as a host does that boots. Effects: the files of a directory.

import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { systemClock } from '../../../src/base/clock.ts'
import { ensureDir, writeFileAtomic } from '../../../src/linux/files.ts'
import { lockFile } from '../../../src/linux/lock.ts'
import { MIGRATIONS, openStore } from '../../../src/store/db.ts'
import { insertOrganization, listOrganizations } from '../../../src/store/directory/organization.query.ts'
import { type Paths, readEnd, readRecord, upgradePaths, writeRecord } from '../../../src/upgrade/record.ts'
import { supervise, type UpgradeHost } from '../../../src/upgrade/supervise.ts'
import { isAccepted } from '../../../src/upgrade/upgrade.machine.ts'
import { sampleRecord } from './record.ts'

type Migrations = typeof MIGRATIONS
type Options = { readonly later: Migrations; readonly failing: readonly string[] }

const acceptedFile = 'accepted'
/** The later executable is in its place. */
const installedFile = 'installed'

export function acceptedIn(dir: string): string[] {
  const path = join(dir, acceptedFile)
  return existsSync(path) ? readFileSync(path, 'utf8').split('\n').filter(Boolean) : []
}

export async function upgradeIn(dir: string, { later, failing }: Options): Promise<void> {
  const paths = upgradePaths(join(dir, 'state'))
  const dropIn = join(dir, 'units/strongroom.service.d/zz-upgrade.conf')
  const service = serviceIn(dir, { paths, dropIn, later })
  const host: UpgradeHost = {
    stop: async () => service.stop(),
    start: async () => service.start(),
    reload: async () => {},
    service: async () => ({ pid: 1, isRunning: service.runs(), restarts: 0 }),
    status: async () => ({ pid: 1 }),
    doctor: async () => failing,
    install: async () => {
      service.accept()
      writeFileAtomic(join(dir, installedFile), '', { mode: 0o600 })
    },
    openRouting: async () => {},
    disarm: async () => {},
  }
  ensureDir(join(dir, 'units'), { mode: 0o755 })
  ensureDir(paths.directory, { mode: 0o711 })
  service.start()
  using _ = begin(paths)
  await supervise({ paths, dropIn, host, clock: systemClock, say: () => {} })
  service.accept()
}

/** Asks, unless that was done before. */
function begin(paths: Paths): Disposable {
  if (readRecord(paths) !== null || readEnd(paths) !== null) return { [Symbol.dispose]: () => {} }
  const lock = lockFile(paths.askerLock)
  writeRecord(paths, sampleRecord(paths.stateDir))
  return lock
}

type Service = {
  readonly runs: () => boolean
  readonly start: () => void
  readonly stop: () => void
  /** A client's request: recorded, then acknowledged. Nothing on trial. */
  readonly accept: () => void
}

function serviceIn(
  dir: string,
  { paths, dropIn, later }: { paths: Paths; dropIn: string; later: Migrations },
): Service {
  let running: { readonly migrations: Migrations; readonly onTrial: boolean } | null = null
  const path = join(dir, 'state/strongroom.db')
  const accept = () => {
    if (running === null || (running.onTrial && !isAccepted(readRecord(paths)?.phase ?? 'trial'))) return
    const store = openStore(path, { migrations: running.migrations })
    const slug = `accepted-${acceptedIn(dir).length}`
    if (!listOrganizations(store.directory.db).some(found => found.slug === slug))
      insertOrganization(store.directory.db, { id: slug, slug, nowMs: 1 })
    store.close()
    appendFileSync(join(dir, acceptedFile), `${slug}\n`)
  }
  return {
    runs: () => running !== null,
    accept,
    start: () => {
      const onTrial = existsSync(dropIn)
      const isNew = onTrial || existsSync(join(dir, installedFile))
      const migrations = isNew ? later : MIGRATIONS
      openStore(path, { migrations }).close()
      running = { migrations, onTrial }
      accept()
    },
    stop: () => {
      accept()
      running = null
    },
  }
}
