// Limits on builds without a key: how many one network may start per day and run at a time, out of the quota for all
// strangers. State in memory, lost at a restart; the total over all anonymous callers is counted on disk.

import type { Clock } from '../base/clock.ts'
import { dayMs } from '../base/time.ts'
import { shareOf } from '../base/work/fair-slots.ts'
import { LimitedFault } from '../http/limited.ts'
import { networkQuotas } from './shares.plan.ts'
import type { BuildsSettings } from './types.ts'

export type AnonymousCallersDeps = {
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly settings: Pick<BuildsSettings, 'perDayMax' | 'perOrganizationMax'>
  readonly isLiving: (buildId: string) => boolean
}

type AnonymousBuild = { readonly buildId: string; readonly networks: ReadonlySet<string>; readonly atMs: number }

/** Retry-After if it is unknown when a slot becomes free. */
export const busyRetryMs = 15_000

export class AnonymousCallers {
  readonly #deps: AnonymousCallersDeps
  /** Builds of the last day, oldest first; at most the daily quota of all strangers. */
  #begun: AnonymousBuild[] = []

  constructor(deps: AnonymousCallersDeps) {
    this.#deps = deps
  }

  /** Throws Fault rate_limited if the networks of this address have used up their quota. */
  check(address: string): void {
    const { clock, settings, isLiving } = this.#deps
    const nowMs = clock.monotonicMs()
    this.#begun = this.#begun.filter(({ atMs }) => nowMs - atMs < dayMs)
    for (const { name, parts } of networkQuotas(address)) {
      const own = this.#begun.filter(({ networks }) => networks.has(name))
      const perDay = shareOf(settings.perDayMax, parts)
      const first = own.at(-perDay)
      if (first !== undefined && own.length >= perDay) {
        const message = `Your network has reached its limit of ${perDay} builds within 24 hours.`
        throw new LimitedFault(message, first.atMs + dayMs - nowMs)
      }
      const living = shareOf(settings.perOrganizationMax, parts)
      if (own.filter(({ buildId }) => isLiving(buildId)).length >= living) {
        throw new LimitedFault(
          `Your network has reached its limit of ${living} unfinished builds; wait for one to finish.`,
          busyRetryMs,
        )
      }
    }
  }

  note(buildId: string, address: string): void {
    const networks = new Set(networkQuotas(address).map(({ name }) => name))
    this.#begun.push({ buildId, networks, atMs: this.#deps.clock.monotonicMs() })
  }
}
