// The hosts of the fleet with address and certificate, as this host last read them. Effects: statements to PostgreSQL.

import type { Clock } from '../../base/clock.ts'
import type { Postgres } from '../postgres.ts'
import { listPeers, type PeerRow } from './peers.query.ts'

export type PeerListDeps = {
  readonly postgres: Pick<Postgres, 'query'>
  readonly clock: Pick<Clock, 'monotonicMs' | 'sleep'>
}

/** A host that was removed is refused this long after; so often at most is the database asked, however many call. */
const readEveryMs = 1_000
/** For a host that is not known, or has not published itself: it may be new. */
const readUnknownEveryMs = 200
/** A database that is slower, or away, does not hold up calls between hosts that know each other. */
const waitMs = 500

export class PeerList {
  readonly #deps: PeerListDeps
  #rows: ReadonlyMap<string, PeerRow> = new Map()
  #readAtMs = Number.NEGATIVE_INFINITY
  #reading: Promise<void> | null = null

  constructor(deps: PeerListDeps) {
    this.#deps = deps
  }

  /**
   * Null if the fleet does not have it. While the database does not answer, returns the last known state. Never
   * rejects.
   */
  async find(hostId: string): Promise<PeerRow | null> {
    await this.#fresh(readEveryMs)
    const known = this.#rows.get(hostId) ?? null
    if (known !== null && known.certificate !== null) return known
    await this.#fresh(readUnknownEveryMs)
    return this.#rows.get(hostId) ?? null
  }

  /** Never rejects. */
  async all(): Promise<readonly PeerRow[]> {
    await this.#fresh(readEveryMs)
    return [...this.#rows.values()]
  }

  async #fresh(everyMs: number): Promise<void> {
    const { clock } = this.#deps
    if (clock.monotonicMs() - this.#readAtMs < everyMs) return
    this.#reading ??= this.#read().finally(() => {
      this.#reading = null
    })
    if (this.#readAtMs === Number.NEGATIVE_INFINITY) await this.#reading
    else await Promise.race([this.#reading, clock.sleep(waitMs)])
  }

  async #read(): Promise<void> {
    const { postgres, clock } = this.#deps
    try {
      const rows = await listPeers(postgres)
      this.#rows = new Map(rows.map(row => [row.hostId, row]))
    } catch {
      // Hosts from before the database went away still are hosts; the driver has said what is wrong.
    }
    this.#readAtMs = clock.monotonicMs()
  }
}
