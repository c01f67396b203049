// Tells programs of the VM, over a unix socket, what root sees of the ways into it. Effects: one socket.
//
// The first byte, whatever it is, asks; nothing else that they send means anything.

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
