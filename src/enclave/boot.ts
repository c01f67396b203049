// Role `init`: PID 1 of the gateway's VM. Keeps `serve` running, collects what has ended, powers off. Effects: starts and signals processes,
// restarts the machine. What has to be mounted, loaded and set before there is a program of ours, guest-image/common/initrd/enclave has done.

import * as fs from 'node:fs'
import { type Clock, systemClock } from '../base/clock.ts'
import { messageOf } from '../base/fault.ts'
import { keepBounded, openProgramLog } from '../guest/log-file.ts'
import type { Owner } from '../linux/files.ts'
import { collectChild, endedChild, restartMachine } from '../linux/libc.ts'
import { enclavePaths } from './paths.ts'
import { powerOffSignal } from './power.ts'
import { showStage } from './stage.ts'

/** What init runs on; tests give it a program and a directory of their own. */
export type InitSettings = {
  readonly argv: readonly [string, ...string[]]
  readonly env: Readonly<Record<string, string>>
  readonly logDir: string
  readonly owner: Owner
  readonly clock: Clock
  readonly showStage: (stage: string) => void
  /** Children of this process that have ended, ours and those of others, and their collection: wait(2). */
  readonly children: { readonly ended: () => number | null; readonly collect: (pid: number) => void }
  /** When memory runs out, the kernel ends others first: proc_pid_oom_score_adj(5). */
  readonly protect: (pid: number) => void
  readonly onPowerOff: (listener: () => void) => void
  readonly restartMachine: () => void
}

export const initSettings: InitSettings = {
  argv: ['/usr/bin/strongroom-enclave', 'serve'],
  env: { PATH: '/usr/sbin:/usr/bin', HOME: '/', LANG: 'C.UTF-8' },
  logDir: enclavePaths('').logDir,
  owner: { uid: 0, gid: 0 },
  clock: systemClock,
  showStage,
  children: { ended: endedChild, collect: collectChild },
  protect: pid => {
    try {
      fs.writeFileSync(`/proc/${pid}/oom_score_adj`, '-900')
    } catch {
      // It has ended already.
    }
  },
  onPowerOff: listener => {
    for (const signal of [powerOffSignal, 'SIGUSR1', 'SIGTERM']) process.on(signal, listener)
  },
  restartMachine,
}

/** What it printed, of this start; what it has to say otherwise is in its own log. */
const outputLog = 'serve-output'
const ranLongMs = 60_000
const delayFirstS = 1
const delayMaxS = 30
const endWaitMs = 5_000
const tickMs = 1_000
/** Ended processes that are collected at one tick. */
const collectedMax = 1_024

/** Seconds until the next start: 1, 2, 4 … 30, and from 1 again after a run of a minute. */
export function nextDelayS(delayS: number, ranMs: number): number {
  return ranMs >= ranLongMs ? delayFirstS : Math.min(delayS * 2, delayMaxS)
}

/** Ends with the machine: a PID 1 that throws is a kernel panic, which ends it too. */
export async function runInit(settings: InitSettings): Promise<never> {
  return new Init(settings).run()
}

class Init {
  readonly #settings: InitSettings
  #child: Bun.Subprocess | null = null
  #isPoweringOff = false

  constructor(settings: InitSettings) {
    this.#settings = settings
  }

  async run(): Promise<never> {
    const { clock, onPowerOff, showStage } = this.#settings
    onPowerOff(() => void this.#powerOff())
    void this.#tick()
    let delayS = delayFirstS
    for (;;) {
      const startedMs = clock.monotonicMs()
      await this.#serve()
      // The machine ends; until it does there is nothing to do.
      if (this.#isPoweringOff) return new Promise<never>(() => {})
      showStage(`gateway ended, next start in ${delayS} s`)
      await clock.sleep(delayS * 1_000)
      delayS = nextDelayS(delayS, clock.monotonicMs() - startedMs - delayS * 1_000)
    }
  }

  async #serve(): Promise<void> {
    const { argv, env, logDir, owner, protect } = this.#settings
    fs.rmSync(`${logDir}/${outputLog}.log`, { force: true })
    const output = openProgramLog(logDir, outputLog, owner)
    try {
      const child = Bun.spawn([...argv], { stdin: 'ignore', stdout: output, stderr: output, env, cwd: '/' })
      this.#child = child
      protect(child.pid)
      await child.exited
    } catch (error) {
      // Memory that has run out, for example: the next start may find some.
      fs.writeSync(output, `${messageOf(error)}\n`)
    } finally {
      this.#child = null
      fs.closeSync(output)
    }
  }

  /** Orphans become children of PID 1. Bun collects those alone that it has started, so ours are left to it. */
  async #tick(): Promise<never> {
    const { children, clock, logDir } = this.#settings
    for (;;) {
      for (let count = 0; count < collectedMax; count += 1) {
        const pid = children.ended()
        if (pid === null || pid === this.#child?.pid) break
        children.collect(pid)
      }
      keepBounded(logDir, outputLog)
      await clock.sleep(tickMs)
    }
  }

  /** There is no ACPI to switch the machine off with. QEMU takes a reset for the end. */
  async #powerOff(): Promise<void> {
    if (this.#isPoweringOff) return
    this.#isPoweringOff = true
    const { clock, showStage } = this.#settings
    showStage('powering off')
    this.#child?.kill('SIGTERM')
    await Promise.race([this.#child?.exited, clock.sleep(endWaitMs)])
    this.#settings.restartMachine()
  }
}
