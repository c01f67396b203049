// Keeps an eye on what other firewalls of this host drop, so that no instance is cut off in silence. Effects: through the look that it is given,
// the log, the journal; sleeps.

import { type Clock, pause } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { inTurns } from '../../base/work/turns.ts'
import type { Firewalls } from './foreign.driver.ts'
import { certainDrops, dropText, type FirewallSite, type ForeignDrop, foreignDrops } from './foreign.plan.ts'

export type FirewallWatchDeps = {
  /** Never rejects. */
  readonly look: () => Promise<Firewalls>
  /** As it is now: the default route may change. */
  readonly site: () => FirewallSite
  /** Tables of family inet that are ours. */
  readonly own: ReadonlySet<string>
  readonly clock: Clock
  readonly log: Logger
  /** A line for the journal. */
  readonly onEvent: (kind: string, detail: Record<string, unknown>) => void
}

/** Docker or an administrator may change the rules at any time; nothing but our own table is announced to us. */
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

  /** Looks again and again until the signal is aborted. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#look()
      await pause(this.#deps.clock, lookEveryMs, signal)
    }
  }

  /** Why clients outside do not reach instances, looked at just now; null: nothing is known to keep them. Never rejects. */
  async cutOff(): Promise<string | null> {
    if (this.#deps.clock.monotonicMs() - this.#lookedMs >= freshMs) await this.#look()
    return this.#reason
  }

  /** What instances need and was dropped for certain at the last look. */
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
    this.#tell(certainDrops(this.#drops).map(dropText).join('; ') || null)
  }

  /** Once for each change. */
  #tell(reason: string | null): void {
    if (reason === this.#reason) return
    const { log, onEvent } = this.#deps
    this.#reason = reason
    if (reason === null) {
      log.info('no firewall of this host drops what instances need any more')
      onEvent('host.reachable', {})
      return
    }
    const remedy = certainDrops(this.#drops).map(drop => drop.remedy)
    log.error('a firewall of this host drops what instances need: they cannot be reached', { reason, remedy })
    onEvent('host.cut_off', { reason })
  }
}
