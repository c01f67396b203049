// Work that is done one after the other, in the order in which it was asked for. No I/O.

export type Serial = {
  /** Runs `work` when all that was asked for before has ended. Its failure is the caller's alone; the next still runs. */
  readonly run: <T>(work: () => Promise<T>) => Promise<T>
  /** How many run or wait. */
  readonly size: () => number
}

export function createSerial(): Serial {
  let last: Promise<unknown> = Promise.resolve()
  let size = 0
  return {
    run: work => {
      size += 1
      const turn = last.then(work).finally(() => {
        size -= 1
      })
      last = turn.catch(() => {})
      return turn
    },
    size: () => size,
  }
}
