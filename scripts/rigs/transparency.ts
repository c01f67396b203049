// A transparency log over a store of its own, for tests of what is put into it and of what serves it. Effects: a
// temporary directory.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import { openEd25519Key } from '../../src/host/ed25519-key.ts'
import { openStore, type Store } from '../../src/store/db.ts'
import { TransparencyLog, type TransparencyLogDeps } from '../../src/transparency/log.ts'

export type LogBench = Disposable & {
  readonly directory: string
  readonly store: Store
  readonly log: TransparencyLog
  /** `kind` of each event of the log. */
  readonly events: string[]
  /** Another log object on the same files, as after a restart. */
  readonly reopened: (changes?: Partial<TransparencyLogDeps>) => TransparencyLog
}

/** It has begun unless `begins` is false. `directory`: in this one, which is not removed in the end. */
export function openLogBench({
  begins = true,
  directory: given,
  ...changes
}: Partial<TransparencyLogDeps> & { readonly begins?: boolean; readonly directory?: string } = {}): LogBench {
  const directory = given ?? mkdtempSync(join(tmpdir(), 'srt-log-'))
  const store = openStore(join(directory, 'strongroom.db'))
  const events: string[] = []
  const reopened = (again: Partial<TransparencyLogDeps> = {}) =>
    new TransparencyLog({
      ledger: store.ledger,
      key: openEd25519Key(join(directory, 'log-key.pem'), { what: 'key', remedy: 'mend it' }),
      name: 'agents.example',
      headFile: join(directory, 'log-head.txt'),
      witnesses: [],
      clock: systemClock,
      random: systemRandom,
      log: silentLogger,
      onEvent: kind => void events.push(kind),
      ...changes,
      ...again,
    })
  const log = reopened()
  if (begins) log.begin()
  return {
    directory,
    store,
    log,
    events,
    reopened,
    [Symbol.dispose]: () => {
      store.close()
      if (given === undefined) rmSync(directory, { recursive: true })
    },
  }
}

/** For tests that do not look at the log. */
export const nobodyLogs = {
  publish: () => {},
  logRoutes: [],
} as const
