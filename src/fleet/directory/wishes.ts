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
import type { Replica, Tried } from '../replica/replica.ts'
import type { RowChange } from '../replica/tables.ts'
import type { Copy } from './copy.ts'
import { type HostRow, newsAndHostsAfter, newsAndHostsIn } from './feed.ts'
import { otherHosts, placementOf } from './placement.plan.ts'
import { writesOf } from './write.ts'

export type WishesDeps = {
  readonly postgres: Postgres
  readonly hostId: string
  readonly replica: Replica
  readonly copy: Copy
  readonly platform: NonNullable<Instance['platform']>
  readonly log: Logger
}

type Wish = {
  readonly work: (tx: DirectoryDb) => unknown
  readonly settle: (outcome: Tried) => void
}

type Granted = {
  readonly outcomes: readonly Tried[]
  readonly changes: readonly RowChange[]
  readonly version: number
  readonly timeline: number
}

/**
 * In one transaction, and waiting for one.
 * No share: the next transaction has the remaining changes.
 */
const wishesPerTurnMax = 64
/**
 * No share: requests per minute of each key are limited before; beyond it 503, without a change.
 */
const wishesWaitingMax = 1_024
/** Runs of a transaction that found the copy too far behind. */
const attemptsMax = 4
const noPlaceRetryMs = 10_000

export class Wishes {
  readonly #deps: WishesDeps
  readonly #waiting: Wish[] = []
  #isGranting = false
  /** The hosts within a transaction. */
  #hosts: readonly HostRow[] = []
  #taken: Map<string, number> | null = null

  constructor(deps: WishesDeps) {
    this.#deps = deps
  }

  /** Faults: those of `work`, `fleet.unavailable`. */
  grant<T>(work: (tx: DirectoryDb) => T): Promise<T> {
    if (this.#waiting.length >= wishesWaitingMax) {
      return Promise.reject(directoryAway(new Error(`${wishesWaitingMax} changes wait already`)))
    }
    return new Promise((resolve, reject) => {
      const settle = (outcome: Tried) => (outcome.ok ? resolve(outcome.value as T) : reject(outcome.error))
      this.#waiting.push({ work, settle })
      if (!this.#isGranting) void this.#grantAll()
    })
  }

  /** The host of a new instance; only within `grant`. Fault: `fleet.unavailable`, with the condition nobody met. */
  readonly place = (tx: DirectoryDb): Pick<Instance, 'hostId' | 'platform'> => {
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

  /** Another host for an instance that its first one could not bring up; null: none has room. Only within `grant`. */
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

  /** Whether it will end its VMs: it is in the fleet and was not given up. Only within `grant`. */
  readonly has = (hostId: string): boolean => this.#hosts.some(({ id, isLost }) => id === hostId && !isLost)

  /** Null: the fleet does not have it. Only within `grant`. */
  readonly stateOf = (hostId: string): HostRow | null => this.#hosts.find(({ id }) => id === hostId) ?? null

  async #grantAll(): Promise<void> {
    this.#isGranting = true
    try {
      while (this.#waiting.length > 0) {
        const wishes: Wish[] = []
        const outcomes = await this.#grantTogether(wishes).catch((error: unknown) => {
          this.#takeInto(wishes)
          return wishes.map((): Tried => ({ ok: false, error }))
        })
        for (const [index, { settle }] of wishes.entries()) {
          settle(present(outcomes[index], 'every change has its outcome'))
        }
      }
    } finally {
      this.#isGranting = false
    }
  }

  /** Fills up with those that wait. */
  #takeInto(wishes: Wish[]): void {
    wishes.push(...this.#waiting.splice(0, wishesPerTurnMax - wishes.length))
  }

  /** `wishes`: filled once the transaction holds the counter, so that those that came while it waited go along. */
  async #grantTogether(wishes: Wish[]): Promise<readonly Tried[]> {
    const { postgres, copy, log } = this.#deps
    for (let attempt = 1; ; attempt += 1) {
      try {
        const opening = () => newsAndHostsAfter(copy.mark())
        const granted = await postgres
          .transact(async tx => this.#tryIn(tx, wishes), { opening })
          .finally(() => copy.release())
        try {
          const { changes, version, timeline } = granted
          copy.take({ kind: 'changes', changes, to: { version, timeline }, isWhole: true })
        } catch (error) {
          log.warn('a change is in the directory, but not in the copy here yet', { error })
        }
        return granted.outcomes
      } catch (error) {
        if (error instanceof NothingWritten) {
          // Acknowledges what an earlier change wrote, which a synchronous standby may not have yet.
          if (error.outcomes.some(({ ok }) => ok)) await postgres.sync(error.timeline)
          return error.outcomes
        }
        if (!(error instanceof Behind)) throw error
        if (attempt === attemptsMax) throw directoryAway(error)
        await copy.catchUpSoon()
      } finally {
        this.#hosts = []
        this.#taken = null
      }
    }
  }

  #tryIn(tx: NumberedTransaction, wishes: Wish[]): Granted {
    const { copy, replica } = this.#deps
    copy.hold()
    const { news, hosts } = newsAndHostsIn(tx.opened, copy.mark(), tx.version)
    if (!copy.take(news) || copy.mark().version !== tx.version - 1) throw new Behind('the copy is behind')
    this.#hosts = hosts
    this.#taken = null
    this.#takeInto(wishes)
    const { outcomes, changes } = replica.tryOut(wishes.map(({ work }) => work))
    const { timeline } = copy.mark()
    if (changes.length === 0) throw new NothingWritten(outcomes, timeline)
    for (const statement of writesOf(changes, { writing: 'wish', hostId: this.#deps.hostId })) tx.atCommit(statement)
    return { outcomes, changes, version: tx.version, timeline }
  }
}

class Behind extends Error {}

/** The transaction is rolled back: no version is made, and nobody is woken. */
class NothingWritten extends Error {
  readonly outcomes: readonly Tried[]
  readonly timeline: number

  constructor(outcomes: readonly Tried[], timeline: number) {
    super('nothing was written')
    this.outcomes = outcomes
    this.timeline = timeline
  }
}
