// Serves the facts about the ways into this VM to its programs, over a unix socket. Effects: one socket.
//
// Any first byte is a request; all further bytes are ignored.

import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { serveLines } from '../line-server.ts'
import type { LockoutFacts } from './facts.ts'

type LockoutSocketDeps = {
  readonly path: string
  readonly gather: () => Promise<LockoutFacts>
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly log: Logger
}

/** Requests within this time share an answer, because gathering starts a process. */
const freshMs = 1_000

/** Does not throw: without it only the verifier's last line is not checked. */
export function serveLockout({ path, gather, clock, log }: LockoutSocketDeps): Disposable {
  let last: { readonly atMs: number; readonly facts: Promise<LockoutFacts> } | null = null
  const answer = () => {
    if (last === null || clock.monotonicMs() - last.atMs >= freshMs) {
      last = { atMs: clock.monotonicMs(), facts: gather() }
    }
    return last.facts
  }
  return serveLines({ path, what: 'lockout socket', requestBytesMax: 1, answer, log })
}
