// Long work in short turns: a generator that yields wherever other work may go on. Effects: yields the thread.

/** Work that may pause at each yield. */
export type Turns<Result> = Generator<void, Result, void>

/**
 * Runs generators to their ends, many at a time: one of them gets a turn, in order, then everything else of this
 * thread.
 */
export function createCooperativeQueue(): <Result>(work: Turns<Result>) => Promise<Result> {
  const waiting: (() => void)[] = []
  const next = () => {
    waiting.shift()?.()
    if (waiting.length > 0) setImmediate(next)
  }
  return async work => {
    for (;;) {
      const { done, value } = work.next()
      if (done === true) return value
      await new Promise<void>(resolve => {
        waiting.push(resolve)
        if (waiting.length === 1) setImmediate(next)
      })
    }
  }
}
