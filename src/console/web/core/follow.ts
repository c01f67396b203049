// Follows growing text, and reconnects after it breaks off. Effects: through functions; a timer.

import { GrowingText } from './foreign.ts'
import { retryDelayMs } from './live-message.ts'
import { isAbort, problemFrom, RequestProblem } from './request.ts'

const shownCharsMax = 262_144
/** Minimum interval between two redraws. */
const drawMs = 200

/**
 * Yields the text in pieces from its start, and ends when it is complete. `isAgain`: a reconnection that no person
 * requested.
 */
export type OpenText = (signal: AbortSignal, isAgain: boolean) => AsyncIterable<string>

export type FollowHooks = {
  readonly draw: (grown: GrowingText) => void
  /** Called when the text stops growing: temporarily, or permanently if the request was rejected. */
  readonly broke: (problem: RequestProblem) => void
  readonly pause: (ms: number, signal: AbortSignal) => Promise<void>
  /** Returns a number from 0 to 1. */
  readonly random: () => number
}

/** Follows until the text is complete, the request is rejected, or `signal` is aborted. Never rejects. */
export async function follow(open: OpenText, signal: AbortSignal, hooks: FollowHooks): Promise<void> {
  const { draw, broke, pause, random } = hooks
  let isAgain = false
  for (let failures = 1; !signal.aborted; failures += 1) {
    const grown = new GrowingText(shownCharsMax)
    let timer: ReturnType<typeof setTimeout> | undefined
    const drawNow = () => {
      clearTimeout(timer)
      timer = undefined
      if (!signal.aborted) draw(grown)
    }
    try {
      for await (const piece of open(signal, isAgain)) {
        grown.add(piece)
        failures = 0
        timer ??= setTimeout(drawNow, drawMs)
      }
      return drawNow()
    } catch (error) {
      if (timer !== undefined) drawNow()
      if (signal.aborted || isAbort(error)) return
      const problem = error instanceof RequestProblem ? error : brokenOff(error)
      broke(problem)
      if (problem.status >= 400 && problem.status < 500) return
    }
    isAgain = true
    await pause(retryDelayMs(Math.max(1, failures), random()), signal)
  }
}

/** Describes a lost connection, for which the browser's own message is meaningless. */
function brokenOff(error: unknown): RequestProblem {
  if (!(error instanceof TypeError)) return problemFrom(error)
  return new RequestProblem({ code: 'unreachable', message: 'connection lost; reconnecting', status: 0 })
}
