// Tells programs of the VM, over a unix socket, what root sees of the ways into it. Effects: one socket.
//
// The first byte, whatever it is, asks; nothing else that they send means anything. The answer is one line, and whoever asked closes: where
// we closed, Bun's client could see that before it had read, and reported a reset (1.4.5, now and then on a busy machine).

import { chmodSync, rmSync } from 'node:fs'
import type { Clock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import type { LockoutFacts } from './facts.ts'

export type LockoutSocketDeps = {
  readonly path: string
  readonly gather: () => Promise<LockoutFacts>
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly log: Logger
}

/** Whoever asks within this time of another gets the same answer: looking costs a process. */
const freshMs = 1_000
const connectionsMax = 16
/** For a connection that says or reads nothing. */
const idleSeconds = 60

/** One JSON object, and LF, for each connection. Does not throw: without it only the verifier's last line is not checked. */
export function serveLockout({ path, gather, clock, log }: LockoutSocketDeps): Disposable {
  let last: { readonly atMs: number; readonly text: Promise<string> } | null = null
  let connections = 0
  const textNow = () => {
    if (last === null || clock.monotonicMs() - last.atMs >= freshMs) {
      last = { atMs: clock.monotonicMs(), text: gather().then(facts => `${JSON.stringify(facts)}\n`) }
    }
    return last.text
  }
  try {
    rmSync(path, { force: true })
    const listener = Bun.listen<{ rest: Uint8Array; asked: boolean }>({
      unix: path,
      socket: {
        open: socket => {
          connections += 1
          socket.data = { rest: new Uint8Array(0), asked: false }
          socket.timeout(idleSeconds)
          if (connections > connectionsMax) socket.end()
        },
        data: socket => {
          if (socket.data.asked) return
          socket.data.asked = true
          textNow()
            .then(text => {
              socket.data.rest = Buffer.from(text)
              drain(socket)
            })
            .catch(error => {
              log.error('lockout not looked at', { reason: messageOf(error) })
              socket.end()
            })
        },
        drain,
        timeout: socket => void socket.end(),
        close: () => {
          connections -= 1
        },
        error: () => {},
      },
    })
    chmodSync(path, 0o666)
    return { [Symbol.dispose]: () => listener.stop(true) }
  } catch (error) {
    log.error('lockout socket does not open', { reason: messageOf(error) })
    return { [Symbol.dispose]: () => {} }
  }
}

type Writing = { data: { rest: Uint8Array }; write: (bytes: Uint8Array) => number }

function drain(socket: Writing): void {
  const { rest } = socket.data
  if (rest.length === 0) return
  const written = socket.write(rest)
  if (written > 0) socket.data.rest = rest.subarray(written)
}
