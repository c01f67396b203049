// The end of a turn of the event loop, for work that arrives many at a time: all of one turn goes on together, each
// step for one after the other, while the step's code is in the processor's caches. Effects: the event loop.

/**
 * Returns a promise for the end of this turn, when everything that was ready in it has been handed over; callers
 * continue in the order of their calls. Null if little arrived in the previous turn, because waiting would gain
 * nothing.
 */
export type TickBatch = () => Promise<void> | null

/** Work of one turn that gains more by being done together than the wait takes. */
const togetherMin = 4

export function createTickBatch(): TickBatch {
  let cameBefore = 0
  let came = 0
  let end: PromiseWithResolvers<void> | null = null
  const endTurn = () => {
    const ended = end
    cameBefore = came
    came = 0
    end = null
    ended?.resolve()
  }
  return () => {
    if (came === 0) setImmediate(endTurn)
    came += 1
    if (cameBefore < togetherMin) return null
    end ??= Promise.withResolvers()
    return end.promise
  }
}
