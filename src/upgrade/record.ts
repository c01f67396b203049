// The record of an upgrade under way, in `upgrade/` of the state directory: one file whose phase decides everything.
// Effects: that directory.

import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Static, Type } from '@sinclair/typebox'
import { utf8 } from '../base/bytes.ts'
import { checkedJson, OneOf } from '../contract/check.ts'
import { Closed, OrNull } from '../contract/forms.ts'
import { readTextOrNull, writeFileAtomic } from '../linux/files.ts'
import { OUTCOMES, type Outcome, PHASES } from './upgrade.machine.ts'

const Version = Closed({ version: Type.String(), schema: Type.Integer({ minimum: 0 }) })

export const UpgradeRecord = Closed({
  phase: OneOf(PHASES),
  from: Version,
  to: Version,
  /** Where the executable goes once it is accepted; a package of its name is installed by dpkg. */
  target: Type.Union([
    Closed({ kind: Type.Literal('file'), path: Type.String() }),
    Closed({ kind: Type.Literal('package'), version: Type.String() }),
  ]),
  /** Words of the service behind the executable: `serve` and its options. */
  serve: Type.Array(Type.String()),
  config: OrNull(Type.String()),
  waitMs: Type.Integer({ minimum: 1 }),
  /** Why the former executable comes back; null if it does not. */
  reason: OrNull(Type.String()),
})
export type UpgradeRecord = Static<typeof UpgradeRecord>

export const UpgradeEnd = Closed({
  outcome: OneOf(OUTCOMES),
  reason: OrNull(Type.String()),
  from: Version,
  to: Version,
})
export type UpgradeEnd = Static<typeof UpgradeEnd>

export type Paths = ReturnType<typeof upgradePaths>

export function upgradePaths(stateDir: string) {
  const directory = join(stateDir, 'upgrade')
  return {
    stateDir,
    directory,
    record: join(directory, 'record.json'),
    end: join(directory, 'end.json'),
    progress: join(directory, 'progress.jsonl'),
    candidate: join(directory, 'candidate'),
    /** Does the work, and stays as the way back. */
    former: join(directory, 'former'),
    /** The database as the former executable left it. */
    database: join(directory, 'before.db'),
    package: join(directory, 'candidate.deb'),
    /** Held by the command that asked, until the upgrade has ended. */
    askerLock: join(directory, 'asker.lock'),
    /** Held by the process that does the work. */
    lock: join(directory, 'lock'),
  }
}

/** Null if no upgrade is under way. Fault internal: the file has an unknown format. */
export function readRecord(paths: Paths): UpgradeRecord | null {
  return readChecked(paths.record, UpgradeRecord)
}

export function readEnd(paths: Paths): UpgradeEnd | null {
  return readChecked(paths.end, UpgradeEnd)
}

function readChecked<S extends typeof UpgradeRecord | typeof UpgradeEnd>(path: string, schema: S): Static<S> | null {
  const text = readTextOrNull(path)
  if (text === null) return null
  return checkedJson(schema, utf8(text), { what: path, code: 'internal' })
}

/** On the disk when this returns. */
export function writeRecord(paths: Paths, record: UpgradeRecord): void {
  writeFileAtomic(paths.record, `${JSON.stringify(record, null, 2)}\n`, { mode: 0o600 })
}

export function writeEnd(paths: Paths, { from, to, reason }: UpgradeRecord, outcome: Outcome): void {
  const end: UpgradeEnd = { outcome, reason, from, to }
  writeFileAtomic(paths.end, `${JSON.stringify(end, null, 2)}\n`, { mode: 0o600 })
}

/** `isRetried`: a failure of what must succeed. */
export type Progress = { readonly atMs: number; readonly text: string; readonly isRetried?: boolean }

/** A line with its time, for the waiting command. */
export function noteProgress(paths: Paths, line: Progress): void {
  appendFileSync(paths.progress, `${JSON.stringify(line)}\n`, { mode: 0o600 })
}

/** Lines from this one on; a line that is being written is left for the next reading. */
export function progressFrom(paths: Paths, from: number): Progress[] {
  if (!existsSync(paths.progress)) return []
  const lines = readFileSync(paths.progress, 'utf8').split('\n').slice(0, -1)
  return lines.slice(from).map(line => JSON.parse(line) as Progress)
}
