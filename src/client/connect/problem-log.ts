// Logs rejected requests to standard error, with a limit, because any program of the machine can cause them. Effects:
// through its deps.

import type { Clock } from '../../base/clock.ts'
import { iso } from '../../base/clock.ts'
import { harmlessLine } from '../../base/harmless.ts'
import type { LogFields } from '../../base/log.ts'

const windowMs = 60_000
/** Lines per minute. No share: all programs of the machine cause the same lines. */
export const problemLinesMax = 60

type ProblemLogDeps = { readonly write: (line: string) => void; readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'> }

/** Creates a logger that writes a path and a reason, neither of which contains prompts or keys. */
export function createProblemLog({ write, clock }: ProblemLogDeps): (what: string, fields?: LogFields) => void {
  let windowEndMs = Number.NEGATIVE_INFINITY
  let count = 0
  return (what, { path, reason } = {}) => {
    const nowMs = clock.monotonicMs()
    if (nowMs >= windowEndMs) {
      windowEndMs = nowMs + windowMs
      count = 0
    }
    count += 1
    if (count > problemLinesMax) return
    const isLast = count === problemLinesMax
    const at = typeof path === 'string' ? ` ${path}` : ''
    const more = isLast ? '; further lines of this minute are left out' : ''
    write(`${iso(clock.nowMs())} ${harmlessLine(`${what}${at}: ${String(reason)}${more}`)}\n`)
  }
}
