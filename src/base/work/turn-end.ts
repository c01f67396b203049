// The end of a turn of the event loop, for work that arrives many at a time: all of one turn goes on together, each
// step for one after the other, while the step's code is in the processor's caches. Effects: the event loop.

/** Resolves when everything that was ready in this turn has been handed over. Work goes on in the order of its calls. */
export type TurnEnd = () => Promise<void>

export function createTurnEnd(): TurnEnd {
  let end: Promise<void> | null = null
  return () => {
    end ??= new Promise(resolve => {
      setImmediate(() => {
        end = null
        resolve()
      })
    })
    return end
  }
}
