// Whether the last backup is enough. Pure.

import { iso } from '../base/clock.ts'
import { hourMs } from '../base/time.ts'
import type { AdminBackups } from '../contract/admin/backups.ts'

export type BackupFacts = Pick<AdminBackups, 'last' | 'failure'> & {
  /** Since when the timer makes one each night; null if it does not. */
  readonly nightlySinceMs: number | null
  readonly nowMs: number
}

/** Two nights without one, with the hour by which hosts differ. */
const nightlyOldMs = 50 * hourMs
/** Without the timer the time of the next one is unknown. */
const otherOldMs = 8 * 24 * hourMs

const timerRemedy =
  '`journalctl --unit strongroom-backup.service` has the reason; `systemctl start strongroom-backup` tries again'
const otherRemedy = 'make one: `strongroom help backup`, which has the timer for each night, too'

/** A failure of the command of `--to-command` begins with this. */
export const COMMAND_OF_BACKUP = 'the command of the backup'
const commandRemedy =
  'your own command (--to-command) failed: correct what its message names, or the command or its variables'
const timerCommandRemedy = `${commandRemedy} (usually in /etc/strongroom/backup.env), then \`systemctl start strongroom-backup\`; until it works, make one into a file: \`strongroom backup --recipients-file /etc/strongroom/backup-recipients.txt FILE\`; copy FILE to another machine`
const otherCommandRemedy = `${commandRemedy}, and run it again; until it works, make one into a file: \`strongroom backup --recipient age1… FILE\`; copy FILE to another machine`

export function backupsOf({ last, failure, nightlySinceMs, nowMs }: BackupFacts): AdminBackups {
  const nightly = nightlySinceMs !== null
  const known = { last, failure, nightly }
  const isCommand = failure?.message.startsWith(COMMAND_OF_BACKUP) ?? false
  const [byTimer, byOther] = isCommand ? [timerCommandRemedy, otherCommandRemedy] : [timerRemedy, otherRemedy]
  const remedy = nightly ? byTimer : byOther
  // Before the reason, which may be long: whether there is anything to restore.
  const good = last === null ? 'no backup of this host is known' : `the last good one is of ${last.at}`
  if (failure !== null) {
    const problem = `the backup of ${failure.at} failed (${good}): ${failure.message}`
    return { ...known, state: 'failed', problem, remedy }
  }
  const sinceMs = last === null ? nightlySinceMs : Date.parse(last.at)
  if (sinceMs === null) return { ...known, state: 'none', problem: null, remedy: null }
  if (nowMs - sinceMs <= (nightly ? nightlyOldMs : otherOldMs)) {
    return { ...known, state: last === null ? 'none' : 'good', problem: null, remedy: null }
  }
  const problem = last === null ? `the timer has made none since ${iso(sinceMs)}; ${good}` : good
  return { ...known, state: 'old', problem, remedy }
}
