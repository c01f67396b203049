// Looks every 30 s for other firewalls of this host that drop traffic of instances, and reports each change. Effects:
// the look that it is given, the log, the journal; sleeps.

import { type Clock, pause } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { inTurns } from '../../base/work/turns.ts'
import type { Firewalls } from './foreign.driver.ts'
import { certainDrops, dropText, type FirewallSite, type ForeignDrop, foreignDrops } from './foreign.plan.ts'

export type FirewallWatchDeps = {
  /** Never rejects. */
  readonly look: () => Promise<Firewalls>
  /** The current one: the default route may change. */
  readonly site: () => FirewallSite
  /** Tables of family inet that are ours. */
  readonly own: ReadonlySet<string>
  readonly clock: Clock
  readonly log: Logger
  /** A line for the journal. */
  readonly onEvent: (kind: string, detail: Record<string, unknown>) => void
}

/** Docker or an administrator may change the rules at any time, and only changes of our own table are announced. */
const lookEveryMs = 30_000
/** Instances that become ready together share one look. */
const freshMs = 1_000

export type FirewallProblem = { readonly name: 'firewall'; readonly detail: string; readonly remedy: string }

export class FirewallWatch {
  readonly #deps: FirewallWatchDeps
  #drops: readonly ForeignDrop[] = []
  #reason: string | null = null
  #unread = ''
  #lookedMs = Number.NEGATIVE_INFINITY
  #looking: Promise<void> | null = null

  constructor(deps: FirewallWatchDeps) {
    this.#deps = deps
  }

  /** Looks until the signal is aborted. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#look()
      await pause(this.#deps.clock, lookEveryMs, signal)
    }
  }

  /** Drops that cut instances off, at most a second old, as text. Null: none for certain. Never rejects. */
  async cutOff(): Promise<string | null> {
    if (this.#deps.clock.monotonicMs() - this.#lookedMs >= freshMs) await this.#look()
    return this.#reason
  }

  /** Certain drops of instances' traffic at the last look. */
  problems(): FirewallProblem[] {
    return certainDrops(this.#drops).map(drop => ({ name: 'firewall', detail: dropText(drop), remedy: drop.remedy }))
  }

  #look(): Promise<void> {
    this.#looking ??= this.#lookOnce().finally(() => {
      this.#looking = null
    })
    return this.#looking
  }

  async #lookOnce(): Promise<void> {
    const { look, site, own, clock, log } = this.#deps
    const { chains, unread } = await look()
    this.#lookedMs = clock.monotonicMs()
    const missing = unread.join('; ')
    if (missing !== this.#unread && missing !== '')
      log.warn('not all firewalls of this host can be read', { reason: missing })
    this.#unread = missing
    this.#drops = await inTurns(foreignDrops(chains, site(), own))
    this.#report(certainDrops(this.#drops))
  }

  /** Logs and journals each change once. */
  #report(drops: readonly ForeignDrop[]): void {
    const reason = drops.map(dropText).join('; ') || null
    if (reason === this.#reason) return
    const { log, onEvent } = this.#deps
    this.#reason = reason
    if (reason === null) {
      log.info('no firewall of this host drops what instances need any more')
      onEvent('host.reachable', {})
      return
    }
    const remedy = drops.map(drop => drop.remedy)
    log.error('a firewall of this host drops what instances need: they cannot be reached', { reason, remedy })
    onEvent('host.cut_off', { reason })
  }
}
