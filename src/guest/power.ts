// Powers this VM off. Effects: signals init; if that fails, restarts the machine, which the host treats as its end.

import type { Clock } from '../base/clock.ts'
import { messageOf } from '../base/fault.ts'
import type { Logger } from '../base/log.ts'
import { restartMachine } from '../linux/libc.ts'

/**
 * Signal on which init powers off, for Busybox's init and for ours in the gateway's VM. Init first ends every
 * process, including this one.
 */
export const powerOffSignal = 'SIGUSR2'
const initPid = 1
const initTimeoutMs = 15_000

/** Does not return while init or the kernel works. Nothing is lost: all state is in memory. */
export async function powerOff({ clock, log }: { clock: Clock; log: Logger }): Promise<void> {
  log.info('powering off')
  try {
    process.kill(initPid, powerOffSignal)
    await clock.sleep(initTimeoutMs)
    log.warn('init does not power off')
  } catch (error) {
    log.warn('init does not respond', { reason: messageOf(error) })
  }
  restartMachine()
}
