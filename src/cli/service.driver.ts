// The running service, for commands that change its configuration: started or restarted with the new file, and waited
// for, with progress. Effects: systemctl, requests to the daemon.

import { statSync } from 'node:fs'
import { type Clock, systemClock } from '../base/clock.ts'
import { AdminStatus } from '../contract/admin/admin.ts'
import { AdminGatewayVms } from '../contract/admin/gateway-vms.ts'
import { run as runCommand } from '../linux/command.ts'
import { isUnderSystemd } from '../linux/process/scope.ts'
import { AdvisedFault } from '../terminal/exit.ts'
import { oneLine } from '../terminal/render.ts'
import type { AdminClient } from './daemon-client.ts'
import type { Run } from './operator-run.ts'
import { type GatewayVm, gatewayWait } from './service.plan.ts'

const unit = 'strongroom.service'
const systemctlTimeoutMs = 60_000
const answerTimeoutMs = 60_000
const startTimeoutMs = 120_000
const gatewayTimeoutMs = 600_000
/** A wait that goes on shows that it does, at this interval. */
const progressMs = 10_000
const pollMs = 200
const outputBytesMax = 65_536

type Options = {
  readonly client: AdminClient
  /** Path of the configuration. */
  readonly file: string
  readonly isChanged: boolean
  /** The step after the cause is corrected, for remedies. */
  readonly next: string
  readonly clock?: Pick<Clock, 'monotonicMs' | 'sleep'>
}

/** The status of a daemon that has read the file as it is now. Faults conflict, host.command_failed. */
export async function serviceWith({
  client,
  file,
  isChanged,
  next,
  clock = systemClock,
}: Options): Promise<AdminStatus> {
  const before = await statusOf(client)
  if (before !== null && !isChanged && !isOlder(before, file)) return before
  if (!isUnderSystemd()) {
    throw new AdvisedFault('conflict', 'systemd does not run here, so that the daemon cannot be restarted', {
      remedy: `start \`strongroom serve\` again yourself, then ${next}`,
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
    remedy: `see journalctl --unit=${unit}; correct what it names, then ${next}`,
  })
}

type Waiting = { readonly clock?: Pick<Clock, 'monotonicMs' | 'sleep'>; readonly unitState?: () => Promise<string> }

/** Returns the status of the daemon once it answers; null if its unit does not start now, or not in time. */
export async function startedService(
  run: Run,
  { clock = systemClock, unitState = stateOfUnit }: Waiting = {},
): Promise<AdminStatus | null> {
  const shown = progressOf(run, clock)
  for (;;) {
    const status = await statusOf(run.client())
    if (status !== null) return status
    if (!['active', 'activating', 'reloading'].includes(await unitState())) return null
    if (shown.waitedMs() > startTimeoutMs) return null
    await shown.state('the service starts')
    await clock.sleep(pollMs)
  }
}

/**
 * Waits until a VM of the gateway serves with the present configuration, and returns it; null if the gateway has no VM.
 * Fault host.command_timeout.
 */
export async function servingGateway(run: Run, { clock = systemClock }: Waiting = {}): Promise<GatewayVm | null> {
  const shown = progressOf(run, clock)
  for (;;) {
    const wait = gatewayWait(await run.client().request({ path: '/inference', response: AdminGatewayVms }))
    if (wait.kind === 'done') return wait.vm
    if (shown.waitedMs() > gatewayTimeoutMs) {
      const message = `the gateway does not serve within ${gatewayTimeoutMs / 1000} s: ${oneLine(wait.text)}`
      throw new AdvisedFault('host.command_timeout', message, {
        remedy: 'see `strongroom inference show` and `strongroom doctor`, then run the command again',
      })
    }
    await shown.state(oneLine(wait.text))
    await clock.sleep(pollMs)
  }
}

/** Prints a state when it changes, and again while it lasts. */
function progressOf(run: Run, clock: Pick<Clock, 'monotonicMs'>) {
  const startedMs = clock.monotonicMs()
  let last = { text: '', atMs: startedMs }
  const waitedMs = () => clock.monotonicMs() - startedMs
  return {
    waitedMs,
    state: async (text: string) => {
      const nowMs = clock.monotonicMs()
      if (text === last.text && nowMs - last.atMs < progressMs) return
      const waited = `${Math.round(waitedMs() / 1000)} s`
      await run.hint(text === last.text ? `  ${text} (${waited})` : `waiting: ${text}`)
      last = { text, atMs: nowMs }
    },
  }
}

async function stateOfUnit(): Promise<string> {
  if (!isUnderSystemd()) return 'inactive'
  const argv = ['systemctl', 'show', '--value', '--property=ActiveState', unit]
  const found = await runCommand(argv, { timeoutMs: systemctlTimeoutMs, outputBytesMax }).catch(() => null)
  return found?.stdout.trim() ?? 'inactive'
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
  await runCommand(['systemctl', ...words], { timeoutMs: systemctlTimeoutMs, outputBytesMax })
}
