// The record of the last backup, in the state directory: `strongroom backup` writes it, the daemon reads it. Effects:
// that file; looks whether the nightly timer is on.

import { existsSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { type Static, Type } from '@sinclair/typebox'
import { iso } from '../base/clock.ts'
import { messageOf } from '../base/fault.ts'
import type { AdminBackups } from '../contract/admin/backups.ts'
import { checkedJson } from '../contract/check.ts'
import { Closed, OrNull } from '../contract/forms.ts'
import { writeFileAtomic } from '../linux/files.ts'
import { backupsOf } from './last.plan.ts'

export const recordName = 'backup.json'
/** Written by strongroom-backup-failed.service, which needs no working executable. */
export const unitFailureName = 'backup-unit-failed'
const unitFailureBytesMax = 200
/** The command records its own failure in better words this long before the unit ends at most. */
const sameFailureMs = 60_000
const messageCharsMax = 500
const recordBytesMax = 16_384

const BackupRecord = Closed({
  format: Type.Literal(1),
  last: OrNull(
    Closed({
      at: Type.String({ maxLength: 40 }),
      file: Type.String({ maxLength: 4_096 }),
      bytes: Type.Integer({ minimum: 0 }),
    }),
  ),
  failure: OrNull(Closed({ at: Type.String({ maxLength: 40 }), message: Type.String({ maxLength: messageCharsMax }) })),
})
export type BackupRecord = Static<typeof BackupRecord>

const NONE: BackupRecord = { format: 1, last: null, failure: null }

/** False if the record cannot be written. The backup itself is as good. */
export function noteMade(stateDir: string, last: NonNullable<BackupRecord['last']>): boolean {
  return write(stateDir, { format: 1, last, failure: null })
}

/** The last that succeeded stays on record. False if the record cannot be written. */
export function noteFailed(stateDir: string, { error, nowMs }: { error: unknown; nowMs: number }): boolean {
  const message = messageOf(error).slice(0, messageCharsMax)
  return write(stateDir, { ...readRecord(stateDir), failure: { at: iso(nowMs), message } })
}

/** A state directory that is not there is not made. */
function write(stateDir: string, record: BackupRecord): boolean {
  if (!existsSync(stateDir)) return false
  try {
    writeFileAtomic(join(stateDir, recordName), `${JSON.stringify(record)}\n`, { mode: 0o600 })
    return true
  } catch {
    return false
  }
}

/** Without a record, or with one that is none of ours, nothing is known. */
function readRecord(stateDir: string): BackupRecord {
  try {
    const file = join(stateDir, recordName)
    if (statSync(file).size > recordBytesMax) return NONE
    return checkedJson(BackupRecord, readFileSync(file), { what: recordName, code: 'internal' })
  } catch {
    return NONE
  }
}

/** scripts/systemd/strongroom-backup.timer works where it is enabled and has recipients, for that state directory. */
export type TimerFiles = { readonly enabled: string; readonly recipients: string; readonly stateDir: string }

const TIMER: TimerFiles = {
  enabled: '/etc/systemd/system/timers.target.wants/strongroom-backup.timer',
  recipients: '/etc/strongroom/backup-recipients.txt',
  stateDir: '/var/lib/strongroom',
}

export function readBackups(stateDir: string, nowMs: number, timer: TimerFiles = TIMER): AdminBackups {
  const isCovered = stateDir === timer.stateDir && existsSync(timer.enabled)
  const recipients = isCovered ? statSync(timer.recipients, { throwIfNoEntry: false }) : undefined
  const { last, failure: recorded } = readRecord(stateDir)
  const failure = newerFailure({ last, failure: recorded }, readUnitFailure(stateDir))
  return backupsOf({ last, failure, nightlySinceMs: recipients?.mtimeMs ?? null, nowMs })
}

type Failure = NonNullable<BackupRecord['failure']>

/** Null unless the unit of the nightly backup failed. An empty file is a failure, too: the disk may have been full. */
function readUnitFailure(stateDir: string): Failure | null {
  try {
    const file = join(stateDir, unitFailureName)
    const { mtimeMs, size } = statSync(file)
    const text = size > unitFailureBytesMax ? '' : readFileSync(file, 'utf8')
    const result = text.replaceAll(/[^A-Za-z0-9 /_-]/g, '').trim()
    const words = `strongroom-backup.service failed and made no backup: ${result === '' ? 'unknown reason' : result}`
    return { at: iso(Math.floor(mtimeMs)), message: words }
  } catch {
    return null
  }
}

/** The unit's failure counts if it is newer than the last backup, and not the one that the command recorded itself. */
function newerFailure(
  { last, failure }: Pick<BackupRecord, 'last' | 'failure'>,
  ofUnit: Failure | null,
): BackupRecord['failure'] {
  if (ofUnit === null) return failure
  const atMs = Date.parse(ofUnit.at)
  if (last !== null && Date.parse(last.at) >= atMs) return failure
  return failure !== null && Date.parse(failure.at) >= atMs - sameFailureMs ? failure : ofUnit
}
