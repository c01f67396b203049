// Time that the machine withheld from this process, for bounds that are about its own work and waiting. Effects: a
// timer.

const everyMs = 5
/** Timers come a little late anyway. */
const lateMsMax = 20

export type Withheld = Disposable & {
  /** Since the beginning: in which it was due and neither ran nor waited. */
  readonly ms: () => number
}

export function watchWithheld(): Withheld {
  let withheldMs = 0
  let lastMs = performance.now()
  let used = threadCpuMs()
  const look = () => {
    const nowMs = performance.now()
    const cpuMs = threadCpuMs()
    const lateMs = nowMs - lastMs - everyMs - (cpuMs - used)
    if (lateMs > lateMsMax) withheldMs += lateMs
    lastMs = nowMs
    used = cpuMs
  }
  const timer = setInterval(look, everyMs)
  return {
    ms: () => {
      look()
      return withheldMs
    },
    [Symbol.dispose]: () => clearInterval(timer),
  }
}

/** The types of the runtime lack it. */
type WithThreads = { readonly threadCpuUsage: () => { readonly user: number; readonly system: number } }

/** Processor time of this thread so far. */
export function threadCpuMs(): number {
  const { user, system } = (process as unknown as WithThreads).threadCpuUsage()
  return (user + system) / 1_000
}
