// The running service, for `strongroom init`: started or restarted with the new file, and waited for. Effects:
// systemctl, requests to the daemon.

import { statSync } from 'node:fs'
import { type Clock, systemClock } from '../../base/clock.ts'
import { AdminStatus } from '../../contract/admin/admin.ts'
import { run } from '../../linux/command.ts'
import { isUnderSystemd } from '../../linux/process/scope.ts'
import { AdvisedFault } from '../../terminal/exit.ts'
import type { AdminClient } from '../daemon-client.ts'

const unit = 'strongroom.service'
const systemctlTimeoutMs = 60_000
const answerTimeoutMs = 60_000
const pollMs = 200
const outputBytesMax = 65_536

type Options = {
  readonly client: AdminClient
  /** Path of the configuration. */
  readonly file: string
  readonly isChanged: boolean
  readonly clock?: Pick<Clock, 'monotonicMs' | 'sleep'>
}

/** The status of a daemon that has read the file as it is now. Faults conflict, host.command_failed. */
export async function serviceWith({ client, file, isChanged, clock = systemClock }: Options): Promise<AdminStatus> {
  const before = await statusOf(client)
  if (before !== null && !isChanged && !isOlder(before, file)) return before
  if (!isUnderSystemd()) {
    throw new AdvisedFault('conflict', 'systemd does not run here, so that the daemon cannot be restarted', {
      remedy: 'start `strongroom serve` again yourself, then run `strongroom init` once more',
    })
  }
  await systemctl('enable', unit)
  // Earlier failures of the unit do not count.
  await systemctl('reset-failed', unit).catch(() => {})
  await systemctl('restart', unit)
  const startedMs = clock.monotonicMs()
  while (clock.monotonicMs() - startedMs < answerTimeoutMs) {
    const status = await statusOf(client)
    if (status !== null && status.pid !== before?.pid) return status
    await clock.sleep(pollMs)
  }
  throw new AdvisedFault('host.command_failed', `the service does not answer within ${answerTimeoutMs / 1000} s`, {
    remedy: `see journalctl --unit=${unit}; correct what it names, then run \`strongroom init\` again`,
  })
}

/** The file was written after the daemon read it. */
function isOlder(status: AdminStatus, file: string): boolean {
  const found = statSync(file, { throwIfNoEntry: false })
  return found !== undefined && found.mtimeMs > Date.parse(status.started_at)
}

/** Null if none answers. */
async function statusOf(client: AdminClient): Promise<AdminStatus | null> {
  return await client.request({ path: '/status', response: AdminStatus }).catch(() => null)
}

async function systemctl(...words: string[]): Promise<void> {
  await run(['systemctl', ...words], { timeoutMs: systemctlTimeoutMs, outputBytesMax })
}
