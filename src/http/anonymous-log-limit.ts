// Limits the access log's lines of requests without a good key: anybody can send them, and a full journal drops lines
// that the operator needs. Those above the limit are counted. State in memory; effects: the log, a timer.

import type { Clock } from '../base/clock.ts'
import type { Logger, LogLevel } from '../base/log.ts'
import { metricsText } from '../base/prometheus.ts'
import { sweepLater } from '../base/work/sweep.ts'
import { createWindow } from './window.ts'

const linesPerMinute = 120
const reportMs = 60_000

export type AnonymousLogLimitDeps = { readonly clock: Pick<Clock, 'monotonicMs' | 'sleep'>; readonly log: Logger }

/** One for all services of the daemon. */
export class AnonymousLogLimit implements Disposable {
  readonly #deps: AnonymousLogLimitDeps
  readonly #window = createWindow()
  readonly #stopping = new AbortController()
  #logged = 0
  #leftOut = 0
  #reported = 0

  constructor(deps: AnonymousLogLimitDeps) {
    this.#deps = deps
    void this.#report(this.#stopping.signal)
  }

  [Symbol.dispose](): void {
    this.#stopping.abort()
  }

  /** The level of a line that would have this one: above the limit it is `debug`. */
  level(wanted: LogLevel): LogLevel {
    if (wanted === 'debug') return wanted
    const nowMs = this.#deps.clock.monotonicMs()
    if (this.#window.waitMs(nowMs, 1, linesPerMinute) > 0) {
      this.#leftOut += 1
      return 'debug'
    }
    this.#window.take(nowMs, 1)
    this.#logged += 1
    return wanted
  }

  /** Once a minute how many lines were left out, if any were. */
  async #report(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#deps
    await sweepLater({ clock, intervalMs: reportMs, signal }, () => {
      const leftOut = this.#leftOut - this.#reported
      this.#reported = this.#leftOut
      if (leftOut > 0) log.info('requests without a key were not logged', { left_out: leftOut })
    })
  }

  /** Prometheus text. */
  render(): string {
    return metricsText([
      {
        name: 'strongroom_requests_without_key_total',
        help: 'Requests to services A and C without a good key that the log has a line for, and those above its limit.',
        type: 'counter',
        samples: [
          { labels: { logged: 'yes' }, value: this.#logged },
          { labels: { logged: 'no' }, value: this.#leftOut },
        ],
      },
    ])
  }
}
