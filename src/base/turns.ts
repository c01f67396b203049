// Long work in short turns: a generator that yields wherever other work may go on. Effects: `inTurns` gives the thread away in between.

/** Work that may be left at each yield. */
export type Turns<Result> = Generator<void, Result, void>

/** To its end, with other work of this thread after each turn. */
export async function inTurns<Result>(work: Turns<Result>): Promise<Result> {
  for (;;) {
    const { done, value } = work.next()
    if (done === true) return value
    await new Promise<void>(resolve => setImmediate(resolve))
  }
}

/** To its end at once, where nobody else waits. */
export function atOnce<Result>(work: Turns<Result>): Result {
  for (;;) {
    const { done, value } = work.next()
    if (done === true) return value
  }
}
