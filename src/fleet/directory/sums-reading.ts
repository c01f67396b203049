// Repeated readings of the sums of usage of other hosts, and the problem of a host while they fail. Effects: statements
// to PostgreSQL, SQL on the host's database.

import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { reasonOf } from '../failures.ts'
import type { Postgres } from '../postgres.ts'
import type { Outbox } from '../replica/outbox.ts'
import type { Replica } from '../replica/replica.ts'
import type { Copy } from './copy.ts'
import { readAllSums, readSums } from './sums.ts'

export type SumsReadingDeps = {
  readonly postgres: Pick<Postgres, 'query'>
  readonly replica: Pick<Replica, 'applyPart' | 'mark' | 'reportOwn'>
  readonly outbox: Pick<Outbox, 'acknowledged' | 'directoryHas' | 'isLacking' | 'forgetAcknowledged'>
  readonly copy: Pick<Copy, 'sums' | 'catchUp'>
  readonly hostId: string
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs' | 'sleep'>
  readonly log: Pick<Logger, 'warn'>
}

export type UnreadSums = { readonly problem: string; readonly sinceMs: number }

/** Failures for this long are a problem of the host, whose sums lack what others have spent. */
const unreadMs = 60_000

export class SumsReading {
  readonly #deps: SumsReadingDeps
  #failing: (UnreadSums & { readonly monotonicMs: number; readonly isLogged: boolean }) | null = null

  constructor(deps: SumsReadingDeps) {
    this.#deps = deps
  }

  /** Reads new sums. If the directory lacks reports of this host, reports everything again. Throws what it meets. */
  async read(): Promise<void> {
    try {
      await this.#read()
      this.#failing = null
    } catch (error) {
      this.#failed(error)
      throw error
    }
  }

  /** Reads all sums, in case the numbers of transactions hid one. Throws what a reading does. */
  async readAll(): Promise<void> {
    await readAllSums({ ...this.#deps, catchUp: () => this.#deps.copy.catchUp() })
  }

  /** Returns the last failure if there was no reading for a minute, with the time of the first one; otherwise null. */
  unread(): UnreadSums | null {
    const failing = this.#failing
    if (failing === null || this.#deps.clock.monotonicMs() - failing.monotonicMs < unreadMs) return null
    return { problem: failing.problem, sinceMs: failing.sinceMs }
  }

  async #read(): Promise<void> {
    const { replica, outbox, copy, clock } = this.#deps
    const acknowledged = outbox.acknowledged()
    const known = await readSums({ ...this.#deps, mark: copy.sums, catchUp: () => copy.catchUp() })
    if (known === null) return
    outbox.directoryHas(known, acknowledged)
    // Restored from a dump without later changes, which would show that.
    if (!outbox.isLacking()) return
    await replica.reportOwn(() => clock.sleep(0))
    outbox.forgetAcknowledged()
  }

  #failed(error: unknown): void {
    const { clock, log } = this.#deps
    const began = this.#failing ?? { sinceMs: clock.nowMs(), monotonicMs: clock.monotonicMs(), isLogged: false }
    this.#failing = { ...began, problem: reasonOf(error) }
    const unread = this.unread()
    if (unread === null || began.isLogged) return
    this.#failing = { ...this.#failing, isLogged: true }
    log.warn('sums of usage of other hosts have not been read for a minute', { problem: unread.problem })
  }
}
