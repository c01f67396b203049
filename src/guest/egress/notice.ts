// Shows the owner how much of the egress limit is used, by the host's count (count.ts). Effects: a file, and the
// terminals of all sessions.

import * as fs from 'node:fs'
import { messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { resultOr } from '../../base/result-or.ts'
import type { EgressCount } from '../../contract/vm/agent.ts'
import { type Owner, writeFileAtomic } from '../../linux/files.ts'
import type { GuestPaths } from '../paths.ts'
import { gigabytes, readEgress, spentReason } from './count.ts'

export type EgressNotice = {
  /** Stores the count. The first one at or above 80, 95 and 100 % of the limit is written to all terminals. */
  readonly take: (count: EgressCount) => void
}

type NoticeDeps = {
  readonly paths: Pick<GuestPaths, 'egress' | 'terminals'>
  readonly owner: Owner
  readonly log: Logger
}

const noticePercents = [100, 95, 80] as const

export function createEgressNotice({ paths, owner, log }: NoticeDeps): EgressNotice {
  return {
    take: count => {
      const before = readEgress(paths)
      writeFileAtomic(paths.egress, JSON.stringify(count), { mode: 0o644, owner })
      const level = levelOf(count)
      if (level <= (before === null ? 0 : levelOf(before))) return
      log.info('egress notice', { level })
      writeToTerminals(paths.terminals, `\r\n*** strongroom: ${noticeOf(count, level)}\r\n`, log)
    },
  }
}

function levelOf({ usedBytes, limitBytes }: EgressCount): number {
  return noticePercents.find(percent => usedBytes * 100 >= limitBytes * percent) ?? 0
}

function noticeOf(count: EgressCount, level: number): string {
  const { usedBytes, limitBytes } = count
  if (level === 100) {
    return `${spentReason(count)}.\r\nOnly SSH from outside still works, for a small amount: copy your work away now (scp, rsync), or ask the operator to raise the limit.`
  }
  return `${level} % of this instance's egress limit is used (${gigabytes(usedBytes)} of ${gigabytes(limitBytes)}, by the host's count).\r\nWhen it is spent, only SSH from outside still works: copy your work away in good time.`
}

/** A terminal that takes nothing, because its session has stopped the output, gets no notice. */
function writeToTerminals(directory: string, text: string, log: Logger): void {
  const { O_WRONLY, O_NONBLOCK, O_NOCTTY } = fs.constants
  const names = resultOr(() => fs.readdirSync(directory), [])
  for (const name of names.filter(name => /^\d+$/.test(name))) {
    try {
      const fd = fs.openSync(`${directory}/${name}`, O_WRONLY | O_NONBLOCK | O_NOCTTY)
      try {
        fs.writeSync(fd, text)
      } finally {
        fs.closeSync(fd)
      }
    } catch (error) {
      log.info('a terminal got no notice', { terminal: name, reason: messageOf(error) })
    }
  }
}
