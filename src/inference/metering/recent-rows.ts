// The rows of this VM that the host's ledger may lack when it answers a query about it. State in memory.
//
// The host's answer counts at least as many rows as were acknowledged when the query was sent. A query therefore needs
// the rows from that number on; rows that no open query needs are dropped.

import type { UsageRow } from '../../contract/vm/enclave-responses.ts'
import type { UsageSpool } from './spool.ts'

export type Question = {
  /** Returns the rows that are missing in an answer with this count of recorded rows. */
  readonly rowsAfter: (booked: number) => UsageRow[]
  /** Call it when the query is answered, or never will be. */
  readonly end: () => void
}

export class RecentRows {
  readonly #spool: Pick<UsageSpool, 'booked' | 'unbooked'>
  /** Rows from number `#first` on, without a gap. */
  #rows: UsageRow[] = []
  #first = 0
  readonly #open = new Set<{ readonly from: number }>()

  constructor(spool: Pick<UsageSpool, 'booked' | 'unbooked'>) {
    this.#spool = spool
  }

  /** Adds a recorded row. */
  add(row: UsageRow): void {
    if (this.#open.size > 0) this.#rows.push(row)
  }

  begin(): Question {
    const question = { from: this.#spool.booked }
    if (this.#open.size === 0) {
      this.#rows = this.#spool.unbooked()
      this.#first = question.from
    }
    this.#open.add(question)
    return {
      rowsAfter: booked => this.#rows.slice(Math.max(0, booked - this.#first)),
      end: () => {
        this.#open.delete(question)
        this.#forget()
      },
    }
  }

  #forget(): void {
    const needed = Math.min(...[...this.#open].map(({ from }) => from), this.#first + this.#rows.length)
    this.#rows.splice(0, needed - this.#first)
    this.#first = needed
  }
}
