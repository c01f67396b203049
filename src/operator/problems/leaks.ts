// Searches leaks every few minutes: what the host has and the ledger does not list, twice in a row, or the reverse.
// Effects: the search that is passed in; sleeps.

import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { sweepLater } from '../../base/work/sweep.ts'
import type { AdminLeak } from '../../contract/admin/admin.ts'
import type { FoundProblem } from '../../contract/admin/problems.ts'

export type LeakWatchDeps = {
  readonly find: () => Promise<readonly AdminLeak[]>
  readonly clock: Clock
  readonly log: Logger
}

/** A search reads the state of kernel and disk for each VM. */
const intervalMs = 300_000

export class LeakWatch {
  readonly #deps: LeakWatchDeps
  /** Leaks of the last search. */
  #last: ReadonlySet<string> = new Set()
  /** Leaks of the last two searches. */
  #leaks: readonly AdminLeak[] = []
  #sinceMs: number | null = null

  constructor(deps: LeakWatchDeps) {
    this.#deps = deps
  }

  /** Searches until the signal is aborted. The first search waits, because VMs start with the daemon. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#deps
    await sweepLater({ clock, intervalMs, signal }, async () => {
      try {
        await this.look()
      } catch (error) {
        if (!signal.aborted) log.warn('leaks were not searched', { error })
      }
    })
  }

  /** VMs that are being made or ended show up in one search, so a leak is what two in a row have found. */
  async look(): Promise<void> {
    const found = await this.#deps.find()
    this.#leaks = found.filter(leak => this.#last.has(nameOf(leak)))
    this.#last = new Set(found.map(nameOf))
    this.#sinceMs = this.#leaks.length === 0 ? null : (this.#sinceMs ?? this.#deps.clock.nowMs())
  }

  problems(): FoundProblem[] {
    const [first] = this.#leaks
    if (first === undefined) return []
    const kinds = [...Map.groupBy(this.#leaks, ({ kind }) => kind)].map(([kind, all]) => `${all.length} ${kind}`)
    const detail = `the ledger and this host differ: ${kinds.join(', ')}; the first is ${first.name}: ${first.detail}`
    const remedy = 'run `strongroom doctor --leaks`, which names each with its remedy'
    return [{ name: 'leaks', subject: null, severity: 'warning', sinceMs: this.#sinceMs, detail, remedy }]
  }
}

function nameOf({ kind, name, detail }: AdminLeak): string {
  return JSON.stringify([kind, name, detail])
}
