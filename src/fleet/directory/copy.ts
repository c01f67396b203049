// Keeps this host's copy of the directory up to date. Effects: statements to PostgreSQL, SQL on the host's database.

import { assert } from '../../base/assert.ts'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { createSerial } from '../../base/work/serial.ts'
import { reasonOf } from '../failures.ts'
import type { Postgres } from '../postgres.ts'
import type { Applied, Replica, ReplicaMark } from '../replica/replica.ts'
import { type News, readNews, readSnapshot } from './feed.ts'

export type CopyDeps = {
  readonly postgres: Postgres
  readonly replica: Replica
  readonly clock: Clock
  readonly log: Logger
  /** After changes of others are here. Must not throw. */
  readonly onApplied: (applied: Applied) => void
}

/** A request waits so long for news; then it shows what is here. */
const freshWaitMs = 1_000

export class Copy {
  readonly #deps: CopyDeps
  readonly #serial = createSerial()
  /** A read of news that requests may join: it has not begun. */
  #next: Promise<void> | null = null
  /** Rows of the snapshot that is read. */
  #copiedRows = 0

  constructor(deps: CopyDeps) {
    this.#deps = deps
  }

  mark(): ReplicaMark {
    const mark = this.#deps.replica.mark()
    assert(mark !== null, 'a copy has begun')
    return mark
  }

  copiedRows(): number {
    return this.#copiedRows
  }

  /** Takes over what changed up to now. Faults: `fleet.unavailable`, `store.*`. */
  catchUp(): Promise<void> {
    this.#next ??= this.#serial.run(() => {
      this.#next = null
      return this.#read()
    })
    return this.#next
  }

  /** True: there was news. Never rejects; at once where the database is away. */
  async fresh(): Promise<boolean> {
    const { postgres, clock, log } = this.#deps
    if (!postgres.view().isReachable) return false
    const before = this.mark().version
    const waited = new AbortController()
    try {
      const read = this.catchUp().catch(error => log.debug('news were not read', { problem: reasonOf(error) }))
      await Promise.race([read, clock.sleep(freshWaitMs, waited.signal).catch(() => {})])
    } finally {
      waited.abort()
    }
    return this.mark().version !== before
  }

  /** Takes over news that were read elsewhere. False: they are not enough, catch up first. */
  take(news: News): boolean {
    if (news.kind === 'snapshot') return false
    if (news.to.version > this.mark().version || news.to.timeline !== this.mark().timeline) {
      this.#applied(this.#deps.replica.apply(news.changes, news.to))
    }
    return news.isWhole
  }

  async #read(): Promise<void> {
    for (;;) {
      const news = await readNews(this.#deps.postgres, this.mark())
      if (news.kind === 'snapshot') await this.#readSnapshot()
      else if (this.take(news)) return
    }
  }

  async #readSnapshot(): Promise<void> {
    const { replica, postgres, log } = this.#deps
    log.info('the whole directory is copied', { from_version: this.mark().version })
    // Another server, or a directory as of an earlier moment, may lack what this host reported.
    replica.reportOwn()
    await readSnapshot(postgres, {
      part: changes => this.#applied(replica.applyPart(changes)),
      end: (seen, to) => this.#applied(replica.endSnapshot(seen, to)),
    })
  }

  #applied(applied: Applied): void {
    if (applied.instances.length + applied.builds.length > 0 || applied.touchesKeys) this.#deps.onApplied(applied)
  }
}
