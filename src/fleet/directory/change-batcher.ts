// Changes that owners and the operator ask for: several in one transaction of the directory, each decided on what every
// host knows by then. Effects: statements to PostgreSQL, SQL on the host's database.
//
// The transaction holds the directory's counter from its start, so nothing changes meanwhile: the copy here is brought
// up to date, the changes are tried on it, and the rows that they would write are what the directory gets.

import { present } from '../../base/assert.ts'
import type { Logger } from '../../base/log.ts'
import { UnavailableFault } from '../../http/limited.ts'
import type { DirectoryDb } from '../../store/db.ts'
import { placesTaken } from '../../store/directory/instance.query.ts'
import type { Instance } from '../../store/directory/instance.table.ts'
import { directoryAway } from '../failures.ts'
import type { NumberedTransaction, Postgres } from '../postgres.ts'
import type { Outcome, Replica } from '../replica/replica.ts'
import type { RowChange } from '../replica/tables.ts'
import type { Copy } from './copy.ts'
import { changesAndHostsAfter, changesAndHostsIn, type HostRow } from './feed.ts'
import { otherHosts, placementOf } from './placement.plan.ts'
import { writesOf } from './write.ts'

export type ChangeBatcherDeps = {
  readonly postgres: Postgres
  readonly hostId: string
  readonly replica: Replica
  readonly copy: Copy
  readonly platform: NonNullable<Instance['platform']>
  readonly log: Logger
}

type PendingChange = {
  readonly work: (tx: DirectoryDb) => unknown
  readonly settle: (outcome: Outcome) => void
}

type BatchResult = {
  readonly outcomes: readonly Outcome[]
  readonly changes: readonly RowChange[]
  readonly version: number
  readonly timeline: number
}

/**
 * In one transaction, and waiting for one.
 * No share: the next transaction has the remaining changes.
 */
const changesPerBatchMax = 64
/**
 * No share: requests per minute of each key are limited before; beyond it 503, without a change.
 */
const changesWaitingMax = 1_024
/** Runs of a transaction that found the copy too far behind. */
const attemptsMax = 4
const noPlaceRetryMs = 10_000

export class ChangeBatcher {
  readonly #deps: ChangeBatcherDeps
  readonly #waiting: PendingChange[] = []
  #isRunning = false
  /** The hosts within a transaction. */
  #hosts: readonly HostRow[] = []
  #taken: Map<string, number> | null = null

  constructor(deps: ChangeBatcherDeps) {
    this.#deps = deps
  }

  /** Faults: those of `work`, `fleet.unavailable`. */
  submit<T>(work: (tx: DirectoryDb) => T): Promise<T> {
    if (this.#waiting.length >= changesWaitingMax) {
      return Promise.reject(directoryAway(new Error(`${changesWaitingMax} changes wait already`)))
    }
    return new Promise((resolve, reject) => {
      const settle = (outcome: Outcome) => (outcome.ok ? resolve(outcome.value as T) : reject(outcome.error))
      this.#waiting.push({ work, settle })
      if (!this.#isRunning) void this.#runBatches()
    })
  }

  /** Returns the host of a new instance; only within `submit`. Fault fleet.unavailable: no host met a condition. */
  readonly placeInstance = (tx: DirectoryDb): Pick<Instance, 'hostId' | 'platform'> => {
    const { platform } = this.#deps
    this.#taken ??= placesTaken(tx)
    const taken = this.#taken
    const placement = placementOf(this.#hosts, { platform, taken })
    if (placement.kind === 'refused') {
      const message = `No host of this fleet can take the instance: ${placement.reason}. Nothing was created; send the request again later.`
      throw new UnavailableFault(message, noPlaceRetryMs, { code: 'fleet.unavailable' })
    }
    const { hostId } = placement
    taken.set(hostId, (taken.get(hostId) ?? 0) + 1)
    return { hostId, platform }
  }

  /** Another host for an instance that its first one could not bring up; null: none has room. Only within `submit`. */
  readonly placeElsewhere = (
    tx: DirectoryDb,
    { hostId, platform }: Pick<Instance, 'hostId' | 'platform'>,
  ): string | null => {
    this.#taken ??= placesTaken(tx)
    const taken = this.#taken
    const wanted = { platform: platform ?? this.#deps.platform, taken }
    const placement = placementOf(otherHosts(this.#hosts, hostId), wanted)
    if (placement.kind === 'refused') return null
    taken.set(placement.hostId, (taken.get(placement.hostId) ?? 0) + 1)
    return placement.hostId
  }

  /** Whether it will end its VMs: it is in the fleet and was not given up. Only within `submit`. */
  readonly hasHost = (hostId: string): boolean => this.#hosts.some(({ id, isLost }) => id === hostId && !isLost)

  /** Null: the fleet does not have it. Only within `submit`. */
  readonly hostState = (hostId: string): HostRow | null => this.#hosts.find(({ id }) => id === hostId) ?? null

  async #runBatches(): Promise<void> {
    this.#isRunning = true
    try {
      while (this.#waiting.length > 0) {
        const batch: PendingChange[] = []
        const outcomes = await this.#runBatch(batch).catch((error: unknown) => {
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

  /** Fills up with those that wait. */
  #fillBatch(batch: PendingChange[]): void {
    batch.push(...this.#waiting.splice(0, changesPerBatchMax - batch.length))
  }

  /** `batch`: filled once the transaction holds the counter, so that those that came while it waited go along. */
  async #runBatch(batch: PendingChange[]): Promise<readonly Outcome[]> {
    const { postgres, copy, log } = this.#deps
    for (let attempt = 1; ; attempt += 1) {
      try {
        const opening = () => changesAndHostsAfter(copy.mark())
        const result = await postgres
          .transact(async tx => this.#applyIn(tx, batch), { opening })
          .finally(() => copy.release())
        try {
          const { changes, version, timeline } = result
          copy.take({ kind: 'changes', changes, to: { version, timeline }, isWhole: true })
        } catch (error) {
          log.warn('a change is in the directory, but not in the copy here yet', { error })
        }
        return result.outcomes
      } catch (error) {
        if (error instanceof NoChanges) {
          // Acknowledges what an earlier change wrote, which a synchronous standby may not have yet.
          if (error.outcomes.some(({ ok }) => ok)) await postgres.sync(error.timeline)
          return error.outcomes
        }
        if (!(error instanceof StaleReplica)) throw error
        if (attempt === attemptsMax) throw directoryAway(error)
        await copy.catchUpSoon()
      } finally {
        this.#hosts = []
        this.#taken = null
      }
    }
  }

  #applyIn(tx: NumberedTransaction, batch: PendingChange[]): BatchResult {
    const { copy, replica } = this.#deps
    copy.hold()
    const { changeSet, hosts } = changesAndHostsIn(tx.opened, copy.mark(), tx.version)
    if (!copy.take(changeSet) || copy.mark().version !== tx.version - 1) throw new StaleReplica('the copy is behind')
    this.#hosts = hosts
    this.#taken = null
    this.#fillBatch(batch)
    const { outcomes, changes } = replica.dryRun(batch.map(({ work }) => work))
    const { timeline } = copy.mark()
    if (changes.length === 0) throw new NoChanges(outcomes, timeline)
    for (const statement of writesOf(changes, { writing: 'wish', hostId: this.#deps.hostId })) tx.atCommit(statement)
    return { outcomes, changes, version: tx.version, timeline }
  }
}

class StaleReplica extends Error {}

/** The transaction is rolled back: no version is made, and nobody is woken. */
class NoChanges extends Error {
  readonly outcomes: readonly Outcome[]
  readonly timeline: number

  constructor(outcomes: readonly Outcome[], timeline: number) {
    super('nothing was written')
    this.outcomes = outcomes
    this.timeline = timeline
  }
}
