// Changes by owners and the operator, several in one transaction of the directory. Each is decided on the state that
// every host has by then. Effects: statements to PostgreSQL, SQL on the host's database.
//
// The transaction locks the directory's counter from its start, so nothing changes in the meantime. It brings this
// host's copy up to date, dry-runs the changes on it, and writes the resulting rows to the directory.

import { present } from '../../base/assert.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { type DirectoryDb, type DirectoryTx, toChange } from '../../store/db.ts'
import { placesTaken } from '../../store/directory/instance.query.ts'
import { directoryAway } from '../failures.ts'
import type { NumberedTransaction, Postgres } from '../postgres.ts'
import type { Outcome, Replica } from '../replica/replica.ts'
import type { RowChange } from '../replica/tables.ts'
import type { Copy } from './copy.ts'
import { announce, changesAndHostsAfter, changesAndHostsIn, type HostRow, newestChange } from './feed.ts'
import { otherHosts, placementOf } from './placement.plan.ts'
import { writesOf } from './write.ts'

export type ChangeBatcherDeps = {
  readonly postgres: Postgres
  readonly hostId: string
  readonly replica: Replica
  readonly copy: Copy
  readonly clock: Pick<Clock, 'nowMs'>
  readonly log: Logger
}

type PendingChange = {
  readonly work: (tx: DirectoryTx) => unknown
  readonly settle: (outcome: Outcome) => void
}

type BatchResult = {
  readonly outcomes: readonly Outcome[]
  readonly changes: readonly RowChange[]
  readonly version: number
  readonly timeline: number
  /** Returns the newest change of the directory after the commit; null if the answer to it was lost. */
  readonly change: () => string | null
}

/** Limit on the changes of one transaction. No share: the next transaction has the remaining changes. */
const changesPerBatchMax = 64
/**
 * Limit on queued changes. No share: requests per minute of each key are limited before; beyond it 503, without a
 * change.
 */
const changesWaitingMax = 1_024
/** Attempts of a transaction that found the copy too far behind. */
const attemptsMax = 4

export class ChangeBatcher {
  readonly #deps: ChangeBatcherDeps
  readonly #waiting: PendingChange[] = []
  #isRunning = false

  constructor(deps: ChangeBatcherDeps) {
    this.#deps = deps
  }

  /** Runs a change. Faults: those of `work`, `fleet.unavailable`. */
  submit<T>(work: (tx: DirectoryTx) => T): Promise<T> {
    if (this.#waiting.length >= changesWaitingMax) {
      return Promise.reject(directoryAway(new Error(`${changesWaitingMax} changes wait already`)))
    }
    return new Promise((resolve, reject) => {
      const settle = (outcome: Outcome) => (outcome.ok ? resolve(outcome.value as T) : reject(outcome.error))
      this.#waiting.push({ work, settle })
      if (!this.#isRunning) void this.#runBatches()
    })
  }

  async #runBatches(): Promise<void> {
    this.#isRunning = true
    try {
      while (this.#waiting.length > 0) {
        const batch: PendingChange[] = []
        const outcomes = await this.#runBatch(batch).catch((error: unknown) => {
          if (isRefused(error)) return this.#runEach(batch)
          this.#fillBatch(batch)
          return batch.map((): Outcome => ({ ok: false, error }))
        })
        for (const [index, { settle }] of batch.entries()) {
          settle(present(outcomes[index], 'every change has its outcome'))
        }
      }
    } finally {
      this.#isRunning = false
    }
  }

  /** Runs the changes one by one, because the directory rejected one of them. */
  async #runEach(batch: readonly PendingChange[]): Promise<Outcome[]> {
    const outcomes: Outcome[] = []
    for (const change of batch) {
      const own = await this.#runBatch([change], { takesMore: false }).catch((error: unknown) => [
        { ok: false, error } as const,
      ])
      outcomes.push(...own)
    }
    return outcomes
  }

  /** Fills the batch with queued changes. */
  #fillBatch(batch: PendingChange[]): void {
    batch.push(...this.#waiting.splice(0, changesPerBatchMax - batch.length))
  }

  /**
   * Runs a batch. `takesMore`: fills the batch after the transaction has locked the counter, to include changes that
   * arrived while it waited.
   */
  async #runBatch(batch: PendingChange[], { takesMore } = { takesMore: true }): Promise<readonly Outcome[]> {
    const { postgres, copy, log } = this.#deps
    for (let attempt = 1; ; attempt += 1) {
      try {
        const opening = () => changesAndHostsAfter(copy.mark())
        const result = await postgres
          .transact(async tx => this.#applyIn(tx, batch, takesMore), { isQuiet: true, opening })
          .finally(() => copy.release())
        try {
          const { changes, version, timeline } = result
          const change = result.change()
          if (change === null) await copy.catchUpSoon()
          else copy.take({ kind: 'changes', changes, to: { version, timeline, change }, isWhole: true })
        } catch (error) {
          log.warn('a change is in the directory, but not in the copy here yet', { error })
        }
        return result.outcomes
      } catch (error) {
        if (error instanceof NoChanges) {
          // Confirms what an earlier change wrote, which a synchronous standby may not have yet.
          if (error.outcomes.some(({ ok }) => ok)) await postgres.sync(error.timeline)
          return error.outcomes
        }
        if (!(error instanceof StaleReplica)) throw error
        if (attempt === attemptsMax) throw directoryAway(error)
        await copy.catchUpSoon()
      }
    }
  }

  #applyIn(tx: NumberedTransaction, batch: PendingChange[], takesMore: boolean): BatchResult {
    const { copy, replica, clock } = this.#deps
    copy.hold()
    const { changeSet, hosts } = changesAndHostsIn(tx.opened, copy.mark(), tx.version)
    if (!copy.take(changeSet) || copy.mark().version !== tx.version - 1) throw new StaleReplica('the copy is behind')
    if (takesMore) this.#fillBatch(batch)
    const hostsOf = batchHosts(hosts)
    const works = batch.map(
      ({ work }) =>
        (rows: DirectoryDb) =>
          work(toChange(rows, { nowMs: clock.nowMs(), hosts: hostsOf(rows) })),
    )
    const { outcomes, changes } = replica.dryRun(works)
    const { timeline } = copy.mark()
    if (changes.length === 0) throw new NoChanges(outcomes, timeline)
    for (const statement of writesOf(changes, { writing: 'wish', hostId: this.#deps.hostId })) tx.atCommit(statement)
    tx.atCommit(announce(tx.version, changes))
    let change: string | null = null
    tx.atCommit(newestChange, ([row]) => {
      change = typeof row?.change === 'string' ? row.change : null
    })
    return { outcomes, changes, version: tx.version, timeline, change: () => change }
  }
}

/**
 * Returns the hosts as the changes of one batch see them: an instance placed by one change counts for the next ones.
 */
function batchHosts(hosts: readonly HostRow[]): (rows: DirectoryDb) => DirectoryTx['hosts'] {
  let taken: Map<string, number> | null = null
  return rows => ({
    find: hostId => hosts.find(({ id }) => id === hostId) ?? null,
    place: ({ platform, except }) => {
      taken ??= placesTaken(rows)
      const eligible = except === undefined ? hosts : otherHosts(hosts, except)
      const placement = placementOf(eligible, { platform, taken })
      if (placement.kind === 'placed') taken.set(placement.hostId, (taken.get(placement.hostId) ?? 0) + 1)
      return placement
    },
  })
}

/** Reports whether the directory rejected a change of the batch. It has then made none of them. */
function isRefused(error: unknown): boolean {
  return error instanceof Fault && error.code === 'fleet.build_newer'
}

class StaleReplica extends Error {}

/** Rolls the transaction back, so that no version is created and no host is notified. */
class NoChanges extends Error {
  readonly outcomes: readonly Outcome[]
  readonly timeline: number

  constructor(outcomes: readonly Outcome[], timeline: number) {
    super('nothing was written')
    this.outcomes = outcomes
    this.timeline = timeline
  }
}
