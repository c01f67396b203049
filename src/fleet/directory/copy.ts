// Keeps this host's copy of the directory up to date. Effects: statements to PostgreSQL, SQL on the host's database.

import { assert } from '../../base/assert.ts'
import type { Clock } from '../../base/clock.ts'
import { systemErrorCode } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { dayMs } from '../../base/time.ts'
import { createSerial } from '../../base/work/serial.ts'
import type { LocalDirectory } from '../../store/db.ts'
import { directoryAway, reasonOf } from '../failures.ts'
import type { Postgres } from '../postgres.ts'
import { LocalRows } from '../replica/local-rows.ts'
import type { AppliedChanges, Replica, ReplicaMark } from '../replica/replica.ts'
import { SumsMark } from '../replica/sums-mark.ts'
import { Checksums } from './checksums.ts'
import { type ChangeSet, hasMoreChanges, readChangeSet } from './feed.ts'
import { copyWhole } from './full-copy.ts'

export type CopyDeps = {
  readonly directory: Pick<LocalDirectory, 'db'>
  readonly postgres: Postgres
  readonly replica: Replica
  readonly clock: Clock
  readonly log: Logger
  /** Called after changes of other hosts have been applied. Must not throw. */
  readonly onApplied: (applied: AppliedChanges) => void
  readonly waits?: CopyWaits
}

export type CopyWaits = {
  /** How long a request waits for changes before it uses the current copy. */
  readonly freshMs: number
  /** How long a change waits for a copy that is behind. */
  readonly soonMs: number
}

export type Synced = {
  /** Whether changes of other hosts were applied. */
  readonly isChanged: boolean
  /** Whether the copy had all changes. If not, an object that it lacks may exist. */
  readonly isCurrent: boolean
}

export type CopyContradiction = {
  readonly problem: string
  readonly sinceMs: number
  /** Whether the directory was copied; otherwise a copy of the same day had not mended the difference. */
  readonly isCopied: boolean
}

/** Least time between two full copies because of changes that do not apply. */
const copyAgainMs = 60_000
/** How long such a full copy is a problem of the host. */
const contradictionShownMs = dayMs
/** Least time between two full copies because of checksums. */
const checkedCopyEveryMs = dayMs

export const defaultWaits: CopyWaits = { freshMs: 1_000, soonMs: 3_000 }

export class Copy {
  readonly #deps: CopyDeps
  readonly #serial = createSerial()
  /** A queued read of changes that requests may join, because it has not begun. */
  #next: Promise<void> | null = null
  readonly #local: LocalRows
  readonly sums: SumsMark
  readonly #checksums: Checksums
  #contradiction: (CopyContradiction & { readonly monotonicMs: number }) | null = null
  /** When the last full copy because of checksums was complete; null before the first. */
  #checkedCopyMs: number | null = null
  /** Applied changes to report at `release`; null if they are reported at once. */
  #held: AppliedChanges[] | null = null

  constructor(deps: CopyDeps) {
    this.#deps = deps
    this.#local = new LocalRows(deps.directory.db)
    this.sums = new SumsMark(deps.directory.db)
    this.#checksums = new Checksums(deps.directory.db)
  }

  mark(): ReplicaMark {
    const mark = this.#deps.replica.mark()
    assert(mark !== null, 'a copy has begun')
    return mark
  }

  /** Applies changes up to now, but waits no longer than for one statement. Faults: as `catchUp`. */
  async catchUpSoon(): Promise<void> {
    const { clock, waits: { soonMs } = defaultWaits } = this.#deps
    const waited = new AbortController()
    const late = clock.sleep(soonMs, waited.signal).then(
      () => Promise.reject(directoryAway(new Error('the whole directory is being copied to this host'))),
      () => {},
    )
    const read = this.catchUp()
    read.catch(() => {})
    try {
      await Promise.race([read, late])
    } finally {
      waited.abort()
    }
  }

  /** Applies changes up to now. Faults: `fleet.unavailable`, `store.*`. */
  catchUp(): Promise<void> {
    this.#next ??= this.#serial.run(() => {
      this.#next = null
      return this.#read()
    })
    return this.#next
  }

  /** Applies changes. Never rejects; resolves at once if the database is unreachable. */
  async sync(): Promise<Synced> {
    const { postgres, clock, log, waits: { freshMs } = defaultWaits } = this.#deps
    if (!postgres.view().isReachable) return { isChanged: false, isCurrent: false }
    const before = this.mark().version
    const waited = new AbortController()
    let isCurrent = false
    try {
      const read = this.catchUp().then(
        () => {
          isCurrent = true
        },
        error => log.debug('changes were not read', { problem: reasonOf(error) }),
      )
      await Promise.race([read, clock.sleep(freshMs, waited.signal).catch(() => {})])
    } finally {
      waited.abort()
    }
    return { isChanged: this.mark().version !== before, isCurrent }
  }

  /** Applies changes that were read elsewhere. Returns false if earlier changes are missing; then catch up first. */
  take(changeSet: ChangeSet): boolean {
    if (changeSet.kind === 'snapshot' || this.#isInterrupted()) return false
    if (changeSet.to.version > this.mark().version || changeSet.to.timeline !== this.mark().timeline) {
      this.#applied(this.#deps.replica.apply(changeSet.changes, changeSet.to))
    }
    return changeSet.isWhole
  }

  /** Defers reports of applied changes from now on, because all other hosts wait for this host's open transaction. */
  hold(): void {
    this.#held ??= []
  }

  release(): void {
    const held = this.#held ?? []
    this.#held = null
    for (const applied of held) this.#deps.onApplied(applied)
  }

  /** A copy was interrupted. Changes before its rows would undo these until all are applied: it goes on first. */
  #isInterrupted(): boolean {
    return this.#deps.replica.progress.read()?.toVersion === null
  }

  async #read(): Promise<void> {
    const { postgres } = this.#deps
    for (let page = 1; ; page += 1) {
      const changeSet = await readChangeSet(postgres, () => this.mark())
      if (changeSet.kind === 'snapshot') {
        if (changeSet.isOtherHistory) {
          this.#deps.log.warn('the directory has another history than the copy here, as after a restore: it is copied')
        }
        await this.#copyWhole()
      } else if (this.#isInterrupted()) {
        await this.#copyWhole({ isSameHistory: true })
      } else if (page === 2 && !changeSet.isWhole && (await this.#isCopyLess())) {
        this.#deps.log.info('the directory is copied, because it has fewer rows than changes since the last one here')
        await this.#copyWhole({ isSameHistory: true })
      } else if (await this.#takeOrCopy(changeSet)) return
    }
  }

  /** Reports whether a copy costs less than the changes that are left. False, too, if they cannot be counted. */
  async #isCopyLess(): Promise<boolean> {
    try {
      return await hasMoreChanges(this.#deps.postgres, this.mark(), this.#local.count())
    } catch (error) {
      this.#deps.log.debug('changes were not counted, and are applied', { problem: reasonOf(error) })
      return false
    }
  }

  /** Applies changes. If the rows here contradict them, copies the directory, at most once a minute. */
  async #takeOrCopy(changeSet: ChangeSet): Promise<boolean> {
    const { clock, log } = this.#deps
    try {
      return this.take(changeSet)
    } catch (error) {
      if (systemErrorCode(error)?.startsWith('SQLITE_CONSTRAINT') !== true) throw error
      const nowMs = clock.monotonicMs()
      const isRecent = this.#contradiction !== null && nowMs - this.#contradiction.monotonicMs < copyAgainMs
      if (isRecent) throw error
      this.#contradiction = { problem: reasonOf(error), sinceMs: clock.nowMs(), isCopied: true, monotonicMs: nowMs }
      log.error('the copy of the directory contradicts a change of it: the directory is copied', { error })
      await this.#copyWhole()
      return false
    }
  }

  /**
   * Compares the copy with the directory. If they differ, copies the directory, at most once a day: a person looks at
   * what a copy does not mend. Fault `fleet.unavailable`.
   */
  async check(signal: AbortSignal): Promise<void> {
    const { postgres, clock, log } = this.#deps
    const names = await this.#checksums.differing({ postgres, clock, log, catchUp: () => this.catchUp(), signal })
    if (names.length === 0) return
    const problem = `its checksum of ${names.join(', ')} differs from the directory's`
    const nowMs = clock.monotonicMs()
    const isCopied = this.#checkedCopyMs === null || nowMs - this.#checkedCopyMs > checkedCopyEveryMs
    const sinceMs = this.contradiction()?.sinceMs ?? clock.nowMs()
    this.#contradiction = { problem, sinceMs, isCopied, monotonicMs: nowMs }
    log.error('the copy of the directory differs from it', { tables: names.join(', '), is_copied: isCopied })
    if (!isCopied) return
    await this.#serial.run(() => this.#copyWhole())
    this.#checkedCopyMs = nowMs
  }

  /** Returns how the copy was wrong the last time; null if not within a day. */
  contradiction(): CopyContradiction | null {
    const found = this.#contradiction
    if (found === null || this.#deps.clock.monotonicMs() - found.monotonicMs > contradictionShownMs) return null
    const { problem, sinceMs, isCopied } = found
    return { problem, sinceMs, isCopied }
  }

  async #copyWhole({ isSameHistory = false } = {}): Promise<void> {
    const { replica } = this.#deps
    const onApplied = (applied: AppliedChanges) => this.#applied(applied)
    const { progress } = replica
    await copyWhole({ ...this.#deps, progress, sums: this.sums, local: this.#local, onApplied, isSameHistory })
  }

  #applied(applied: AppliedChanges): void {
    if (applied.instances.length + applied.builds.length === 0 && !applied.touchesKeys) return
    if (this.#held === null) this.#deps.onApplied(applied)
    else this.#held.push(applied)
  }
}
