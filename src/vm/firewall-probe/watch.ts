// Checks every 30 s whether other firewalls of this host drop traffic of instances, and reports each change. Effects:
// the check that is passed in, the log, the journal; sleeps.

import { type Clock, pause } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import type { Config } from '../../config/schema.ts'
import { droppedRemedy, droppedText } from './dropping-chain.plan.ts'
import type { ProbeLook } from './probe.driver.ts'
import type { Need } from './probe.plan.ts'

export type FirewallWatchDeps = {
  readonly config: Pick<Config, 'network'>
  /** Probes the firewalls. Never rejects. */
  readonly look: () => Promise<ProbeLook>
  readonly clock: Clock
  readonly log: Logger
  /** Writes a line to the journal. */
  readonly onEvent: (kind: string, detail: Record<string, unknown>) => void
}

/** Docker or an administrator may change the rules at any time, and only changes of our own table are announced. */
const lookEveryMs = 30_000
/**
 * Instances that become ready together share one check, because rules that limit packets by time must not count many.
 */
const freshMs = 5_000

export type FirewallProblem = { readonly name: 'firewall'; readonly detail: string; readonly remedy: string }

export class FirewallWatch {
  readonly #deps: FirewallWatchDeps
  #dropped: readonly Need[] = []
  #chains: ProbeLook['chains']
  #reason: string | null = null
  /** The names of the dropped packets that were reported. */
  #reported = ''
  #unknown: string | null = null
  #lookedMs = Number.NEGATIVE_INFINITY
  #looking: Promise<void> | null = null

  constructor(deps: FirewallWatchDeps) {
    this.#deps = deps
  }

  /** Checks until the signal is aborted. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#look()
      await pause(this.#deps.clock, lookEveryMs, signal)
    }
  }

  /** Returns the dropped packets of instances, as text and at most 5 s old. Null if there are none. Never rejects. */
  async cutOff(): Promise<string | null> {
    if (this.#deps.clock.monotonicMs() - this.#lookedMs >= freshMs) await this.#look()
    return this.#reason
  }

  /** Returns the problems found by the last check. */
  problems(): FirewallProblem[] {
    if (this.#reason === null) return []
    const remedy = droppedRemedy(this.#dropped, this.#deps.config, this.#chains)
    return [{ name: 'firewall', detail: this.#reason, remedy }]
  }

  /** Returns the number of kinds of packets that are dropped. */
  droppedCount(): number {
    return this.#dropped.length
  }

  #look(): Promise<void> {
    this.#looking ??= this.#lookOnce().finally(() => {
      this.#looking = null
    })
    return this.#looking
  }

  async #lookOnce(): Promise<void> {
    const { look, clock, log } = this.#deps
    const { dropped, chains, unknown } = await look()
    this.#lookedMs = clock.monotonicMs()
    if (unknown !== this.#unknown && unknown !== null)
      log.warn('whether other firewalls let instances through is not known', { reason: unknown })
    this.#unknown = unknown
    // A list of rules that fails once changes no report.
    this.#chains = chains ?? this.#chains
    this.#dropped = dropped.filter(({ kind }) => kind === 'instances')
    this.#report()
  }

  /** Logs and journals each change of the dropped packets once. */
  #report(): void {
    const reason = droppedText(this.#dropped, this.#chains)
    this.#reason = reason
    const names = droppedText(this.#dropped) ?? ''
    if (names === this.#reported) return
    this.#reported = names
    const { config, log, onEvent } = this.#deps
    if (reason === null) {
      log.info('no firewall of this host drops what instances need any more')
      onEvent('host.reachable', {})
      return
    }
    const remedy = droppedRemedy(this.#dropped, config, this.#chains)
    log.error('a firewall of this host drops what instances need: they cannot be reached', { reason, remedy })
    onEvent('host.cut_off', { reason })
  }
}
