// Busy loops beside a test run, so that its tests get little of the processors. Effects: processes.

import { availableParallelism } from 'node:os'

const loopsPerProcessor = 4

export type BusyLoops = Disposable & { readonly pids: readonly number[] }

export type BusyLoopOptions = {
  /** Default: four for each processor. */
  readonly count?: number
  /** Default: this process. The loops end with it. */
  readonly watchedPid?: number
  /** The loops end after this time in any case. */
  readonly secondsMax: number
}

/** Starts the loops. They end at `[Symbol.dispose]`, with the watched process, or after `secondsMax`. */
export function startBusyLoops({ count, watchedPid, secondsMax }: BusyLoopOptions): BusyLoops {
  const loop = `while kill -0 ${watchedPid ?? process.pid} 2>/dev/null; do :; done`
  const children = Array.from({ length: count ?? loopsPerProcessor * availableParallelism() }, () =>
    Bun.spawn(['timeout', '--kill-after=1', String(secondsMax), 'sh', '-c', loop], {
      stdio: ['ignore', 'ignore', 'ignore'],
    }),
  )
  return {
    pids: children.map(({ pid }) => pid),
    [Symbol.dispose]: () => {
      // timeout(1) hands the signal on to its loop.
      for (const child of children) child.kill('SIGTERM')
    },
  }
}
