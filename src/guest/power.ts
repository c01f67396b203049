// Powers this VM off. Effects: asks init, then the kernel.

import type { Clock } from '../base/clock.ts'
import { messageOf } from '../base/fault.ts'
import type { Logger } from '../base/log.ts'
import { run } from '../linux/command.ts'

/** Busybox's init powers off at SIGUSR2. It ends every process first, this one too. */
const initPid = 1
const initSignal = 'SIGUSR2'
const initTimeoutMs = 15_000
const commandBounds = { timeoutMs: 10_000, outputBytesMax: 65_536 } as const

/** Does not return while init or the kernel works. Nothing is lost: all state is in memory. */
export async function powerOff({ clock, log }: { clock: Clock; log: Logger }): Promise<void> {
  log.info('powering off')
  try {
    process.kill(initPid, initSignal)
    await clock.sleep(initTimeoutMs)
    log.warn('init does not power off')
  } catch (error) {
    log.warn('init cannot be asked', { reason: messageOf(error) })
  }
  await run(['busybox', 'reboot', '-n', '-f'], commandBounds)
}
