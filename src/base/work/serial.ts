// Work that runs one piece after the other, in the order of the calls. No I/O.

export type Serial = {
  /** Runs `work` after all earlier work. If it fails, only this caller sees it, and the next work still runs. */
  readonly run: <T>(work: () => Promise<T>) => Promise<T>
  /** How many pieces of work run or wait. */
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
