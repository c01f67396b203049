// The hosts of the fleet with address and certificate, as last read by this host. Effects: statements to PostgreSQL.

import type { Clock } from '../../base/clock.ts'
import type { Postgres } from '../postgres.ts'
import { listPeers, type PeerRow } from './peers.query.ts'

export type PeerListDeps = {
  readonly postgres: Pick<Postgres, 'query'>
  readonly clock: Pick<Clock, 'monotonicMs' | 'sleep'>
}

/**
 * Minimum interval between two reads for known hosts, whatever the number of calls. A removed host may be accepted for
 * this long.
 */
const readEveryMs = 1_000
/** Minimum interval for a host that is unknown or has not published its address, because it may be new. */
const readUnknownEveryMs = 200
/** Longest wait for a read, so that a slow or unreachable database does not delay calls between known hosts. */
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
   * Returns a host; null if the fleet does not have it. While the database is unreachable, returns the last known
   * state. Never rejects.
   */
  async find(hostId: string): Promise<PeerRow | null> {
    await this.#fresh(readEveryMs)
    const known = this.#rows.get(hostId) ?? null
    if (known !== null && known.certificate !== null) return known
    await this.#fresh(readUnknownEveryMs)
    return this.#rows.get(hostId) ?? null
  }

  /** Returns all hosts. Never rejects. */
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
      // Keep the hosts from before the outage; the driver has logged the error.
    }
    this.#readAtMs = clock.monotonicMs()
  }
}
