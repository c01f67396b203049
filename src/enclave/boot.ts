// Role `init`: PID 1 of the gateway's VM. Keeps `serve` running, reaps ended processes, powers off. Effects: starts
// and signals processes, restarts the machine. guest-image/common/initrd/enclave has mounted, loaded and set
// everything that comes before.

import * as fs from 'node:fs'
import { type Clock, systemClock } from '../base/clock.ts'
import { powerOffSignal } from '../guest/power.ts'
import { collectChild, endedChild } from '../linux/libc/processes.ts'
import { restartMachine } from '../linux/libc.ts'
import { showStage } from './stage.ts'

/** A start of `serve`. */
export type ServedProcess = {
  readonly pid: number
  /** Resolves with its exit code when it has ended; 128 + signal number where a signal ended it. */
  readonly exited: Promise<number>
  readonly kill: (signal: 'SIGTERM') => void
}

/** Paths and processes of init; tests pass their own. */
export type InitSettings = {
  readonly start: () => ServedProcess
  readonly clock: Clock
  readonly showStage: (stage: string) => void
  /** Ended children of this process, orphans included, and their reaping: wait(2). */
  readonly children: { readonly ended: () => number | null; readonly collect: (pid: number) => void }
  readonly onPowerOff: (listener: () => void) => void
  readonly restartMachine: () => void
}

export const initSettings: InitSettings = {
  start: startServe,
  clock: systemClock,
  showStage,
  children: { ended: endedChild, collect: collectChild },
  onPowerOff: listener => {
    for (const signal of [powerOffSignal, 'SIGUSR1', 'SIGTERM']) process.on(signal, listener)
  },
  restartMachine,
}

const ranLongMs = 60_000
const delayFirstS = 1
const delayMaxS = 30
const endWaitMs = 5_000
/** Wakes this process seldom, because a gateway at rest should cost its host little. Orphans are rare. */
const tickMs = 10_000
/** After a full tick, which leaves ended processes. */
const busyTickMs = 1_000
/** Ended processes that are reaped in one tick. No share: processes of this VM. */
const collectedMax = 1_024
/** When memory runs out, the kernel ends others first: proc_pid_oom_score_adj(5). */
const oomScoreAdjust = '-900'

/**
 * Seconds until the next start: 1, 2, 4 … 30; 1 after a run of a minute. `delayS`: the last delay, 0 before the first.
 */
export function nextDelayS(delayS: number, ranMs: number): number {
  return ranMs >= ranLongMs ? delayFirstS : Math.min(Math.max(delayS * 2, delayFirstS), delayMaxS)
}

/** Ends with the machine: a PID 1 that throws is a kernel panic, which ends it too. */
export async function runInit(settings: InitSettings): Promise<never> {
  return new Init(settings).run()
}

class Init {
  readonly #settings: InitSettings
  #served: ServedProcess | null = null
  #isPoweringOff = false

  constructor(settings: InitSettings) {
    this.#settings = settings
  }

  async run(): Promise<never> {
    const { clock, onPowerOff, showStage } = this.#settings
    onPowerOff(() => void this.#powerOff())
    void this.#tick()
    let delayS = 0
    while (!this.#isPoweringOff) {
      const startedMs = clock.monotonicMs()
      const ended = await this.#serve()
      if (this.#isPoweringOff) break
      delayS = nextDelayS(delayS, clock.monotonicMs() - startedMs)
      showStage(`gateway ended (${ended}), next start in ${delayS} s`)
      await clock.sleep(delayS * 1_000)
    }
    // The machine ends; until it does there is nothing to do.
    return new Promise<never>(() => {})
  }

  /** Waits for its end and describes it for the console. */
  async #serve(): Promise<string> {
    try {
      this.#served = this.#settings.start()
      return `exit code ${await this.#served.exited}`
    } catch {
      // Memory that has run out, for example: the next start may find some.
      return 'not started'
    } finally {
      this.#served = null
    }
  }

  /** Orphans become children of PID 1. Bun collects those alone that it has started, so ours are left to it. */
  async #tick(): Promise<never> {
    const { children, clock } = this.#settings
    for (;;) {
      let count = 0
      for (; count < collectedMax; count += 1) {
        const pid = children.ended()
        if (pid === null || pid === this.#served?.pid) break
        children.collect(pid)
      }
      await clock.sleep(count === collectedMax ? busyTickMs : tickMs)
    }
  }

  /** Without ACPI the machine cannot be switched off. QEMU treats a reset as the end. */
  async #powerOff(): Promise<void> {
    if (this.#isPoweringOff) return
    this.#isPoweringOff = true
    const { clock, showStage, restartMachine } = this.#settings
    showStage('powering off')
    this.#served?.kill('SIGTERM')
    await Promise.race([this.#served?.exited, clock.sleep(endWaitMs)])
    restartMachine()
  }
}

/**
 * The runtime checks every second whether to collect garbage, for half a minute after any work. The host requests a
 * report every five seconds, so a gateway at rest would collect all the time. Allocations still start collections.
 */
const gcTimerMs = '10000'

/** Discards its output: the console is the host's. The log stays in memory until the host fetches it. */
function startServe(): ServedProcess {
  const child = Bun.spawn(['/usr/bin/strongroom-enclave', 'serve'], {
    stdin: 'ignore',
    stdout: 'ignore',
    stderr: 'ignore',
    env: { PATH: '/usr/sbin:/usr/bin', HOME: '/', LANG: 'C.UTF-8', BUN_GC_TIMER_INTERVAL: gcTimerMs },
    cwd: '/',
  })
  try {
    fs.writeFileSync(`/proc/${child.pid}/oom_score_adj`, oomScoreAdjust)
  } catch {
    // The process has already ended.
  }
  return child
}
