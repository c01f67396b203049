// Reports whether an idle connection has unread bytes or an end that the event loop has not delivered, usually because
// the upstream closed it. Effects: poll(2).
//
// Requests of one turn of the event loop share system calls: a call polls connections ahead of the next requests. Its
// result remains valid until the turn ends, because no socket event is delivered before then.

import { haveUnread, polledMax } from '../../linux/libc/sockets.ts'
import type { Connection } from './connection.ts'

export class IdleProbe {
  /** Idle connections without unread bytes in this turn. */
  readonly #quiet = new Set<Connection>()
  /** Number of connections that the next call polls: at first, as many as the previous turn had requests. */
  #count = 1
  #requests = 0

  /** Reports on the last of the idle connections, which the next request uses if there is nothing unread. */
  hasUnread(idle: readonly Connection[]): boolean {
    const last = idle.at(-1)
    if (last === undefined) return false
    if (this.#requests === 0) setImmediate(() => this.#endTurn())
    this.#requests += 1
    if (this.#quiet.delete(last)) return false
    const polled = idle.slice(-this.#count)
    this.#count = Math.min(2 * this.#count, polledMax)
    haveUnread(polled.map(({ fd }) => fd)).forEach((isUnread, at) => {
      const connection = polled[at]
      if (!isUnread && connection !== undefined) this.#quiet.add(connection)
    })
    return !this.#quiet.delete(last)
  }

  #endTurn(): void {
    this.#quiet.clear()
    this.#count = Math.min(this.#requests, polledMax)
    this.#requests = 0
  }
}
