// This host's share of a fleet's budgets: the amounts that it has spent and was granted. Returns the unused part.
// Effects: through its dependencies, timers.

import type { Clock } from '../../../base/clock.ts'
import type { Logger } from '../../../base/log.ts'
import { sweep } from '../../../base/work/sweep.ts'
import { monthEndMs, monthOf } from '../../../store/directory/usage/periods.ts'
import type { MonthScope } from '../../../store/directory/usage/usage-month.query.ts'
import { unknownUse } from '../faults.ts'
import { scopeName, scopesOf } from '../month-sums.ts'
import type {
  Amounts,
  HostBudgetShares,
  LowerInVm,
  MonthSpent,
  ShareDemand,
  ShareDemands,
  Spender,
  SpenderShares,
} from '../types.ts'
import { amountsOf, NO_AMOUNTS, plus } from './amounts.ts'

/** Blocks leased from the directory of a fleet (fleet/budgets/budget-leases.ts). */
export type BudgetLeases = {
  readonly leaseOf: (scope: MonthScope) => Amounts | null
  readonly all: () => readonly (MonthScope & Amounts)[]
  readonly acquire: (
    scope: MonthScope,
    asked: () => { readonly used: Amounts; readonly need: Amounts; readonly want: Amounts },
  ) => Promise<boolean>
  readonly release: (scope: MonthScope, keep: () => Amounts | null | Promise<Amounts | null>) => Promise<void>
  readonly drop: (scope: MonthScope) => void
  readonly registerIfNew: () => Promise<void>
}

export type HostSharesDeps = {
  readonly leases: BudgetLeases
  /** Returns the usage of this host only. */
  readonly ownSpent: (spender: Spender, month: string) => MonthSpent
  readonly clock: Clock
  readonly log: Logger
  /** A budget that was unused for one to two of these intervals is returned. */
  readonly idleMs?: number
}

const defaultIdleMs = 5_000
/**
 * Budgets that are checked and returned in one turn, without a pause. No share: the next turn has the remaining
 * budgets.
 */
const releasesMax = 64
/** No share: the next turn has the remaining budgets. */
const looksMax = 100
const lookGapMs = 2

export class HostShares implements HostBudgetShares {
  readonly #deps: HostSharesDeps
  /** Null if reserved amounts are unknown, as with a gateway in a VM. */
  #reserved: ((spender: Spender) => Amounts) | null = null
  #lowerInVm: LowerInVm | null = null
  /** How much of each block was used at the last check. */
  #seen = new Map<string, string>()
  /** Used and held amounts at the last request to a VM, which gets no further request before they change. */
  #lowered = new Map<string, string>()
  /** Budgets whose shares are being returned; a VM may use none of them until the remaining amount is known. */
  readonly #lowering = new Set<string>()

  constructor(deps: HostSharesDeps) {
    this.#deps = deps
  }

  readonly follow = (reserved: ((spender: Spender) => Amounts) | null): void => {
    this.#reserved = reserved
  }

  readonly followVm = (lower: LowerInVm): void => {
    this.#lowerInVm = lower
  }

  readonly share = (spender: Spender, month: string): SpenderShares | null => {
    const { leases, ownSpent } = this.#deps
    const scopes = scopesOf(spender, month)
    const spent = ownSpent(spender, month)
    const allowed = (scope: MonthScope) =>
      this.#lowering.has(scopeName(scope)) ? NO_AMOUNTS : (leases.leaseOf(scope) ?? NO_AMOUNTS)
    return {
      key: { spent: spent.key, allowed: allowed(scopes.key) },
      organization: { spent: spent.organization, allowed: allowed(scopes.organization) },
    }
  }

  readonly raise = async (spender: Spender, month: string, asked: () => ShareDemands): Promise<boolean> => {
    const { leases, ownSpent } = this.#deps
    const scopes = scopesOf(spender, month)
    const raised = (of: keyof ShareDemands, { need, want }: ShareDemand) =>
      leases.acquire(scopes[of], () => {
        // Read again, because other requests of this scope may have run before.
        const now = asked()[of] ?? { need, want }
        const used = amountsOf(ownSpent(spender, month)[of])
        return { used, need: plus(used, now.need), want: plus(used, now.want) }
      })
    const { key, organization } = asked()
    try {
      // The organization's first, because it is shared and refused more often.
      if (organization !== null && !(await raised('organization', organization))) return false
      return key === null || (await raised('key', key))
    } catch (cause) {
      throw unknownUse(cause)
    }
  }

  /** Returns unused shares, and renews the directory's records of grants. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { leases, clock, log, idleMs = defaultIdleMs } = this.#deps
    await sweep({ clock, intervalMs: idleMs, signal }, async () => {
      try {
        await leases.registerIfNew()
        await this.releaseIdle()
      } catch (error) {
        log.debug('unused budget shares were not returned', { error })
      }
    })
  }

  /** Returns amounts that have been unused since the last check. Throws Fault `fleet.unavailable`. */
  async releaseIdle(): Promise<void> {
    const { leases, clock } = this.#deps
    const now = monthOf(clock.nowMs())
    const seen = new Map<string, string>()
    const lowered = new Map<string, string>()
    let count = 0
    for (const [index, held] of leases.all().entries()) {
      if (index % looksMax === looksMax - 1) await clock.sleep(lookGapMs)
      const used = this.#usedOf(held, held.month)
      const isOver = monthEndMs(held.month) + monthGraceMs < clock.nowMs()
      if (used === null) {
        if (isOver) leases.drop(held)
        else if (held.month === now && count < releasesMax) count += await this.#releaseOfVm(held, { seen, lowered })
        continue
      }
      const name = scopeName(held)
      const text = `${used.nanoUsd} ${used.tokens}`
      if (this.#seen.get(name) !== text || (!isOver && isAll(held, used))) {
        seen.set(name, text)
        continue
      }
      count += 1
      if (count > releasesMax) break
      await leases.release(held, () => this.#usedOf(held, held.month) ?? held)
      if (held.month >= now) continue
      // If another host has begun this month, requests that began earlier were granted in it too.
      const current = { ...held, month: now }
      if (leases.leaseOf(current) === null) await leases.release(current, () => this.#usedOf(held, now) ?? held)
      if (isOver) leases.drop(held)
    }
    this.#seen = seen
    this.#lowered = lowered
  }

  /** Returns only amounts that the VM reports as unused. Resolves to the number of requests that this took. */
  async #releaseOfVm(held: MonthScope & Amounts, { seen, lowered }: Looks): Promise<number> {
    const { leases } = this.#deps
    const lower = this.#lowerInVm
    const name = scopeName(held)
    const spent = this.#spentOf(held)
    const text = textOf(spent, held)
    seen.set(name, text)
    const isIdle = this.#seen.get(name) === text && !isAll(held, spent)
    const isAsked = this.#lowered.get(name) === text
    if (isAsked) lowered.set(name, text)
    if (lower === null || !isIdle || isAsked) return 0
    this.#lowering.add(name)
    try {
      await leases.release(held, async () => {
        const kept = await lower(held)
        // Rows that were recorded in the meantime are counted in both.
        return kept === null ? null : plus(this.#spentOf(held), kept)
      })
    } finally {
      this.#lowering.delete(name)
    }
    const after = textOf(this.#spentOf(held), leases.leaseOf(held) ?? NO_AMOUNTS)
    seen.set(name, after)
    lowered.set(name, after)
    return 1
  }

  #spentOf({ organizationId, keyPrefix, month }: MonthScope): Amounts {
    const spent = this.#deps.ownSpent({ organizationId, keyPrefix }, month)
    return amountsOf(keyPrefix === '' ? spent.organization : spent.key)
  }

  #usedOf({ organizationId, keyPrefix }: Spender, month: string): Amounts | null {
    if (this.#reserved === null) return null
    const spent = this.#deps.ownSpent({ organizationId, keyPrefix }, month)
    return plus(
      amountsOf(keyPrefix === '' ? spent.organization : spent.key),
      this.#reserved({ organizationId, keyPrefix }),
    )
  }
}

type Looks = { readonly seen: Map<string, string>; readonly lowered: Map<string, string> }

function textOf(spent: Amounts, held: Amounts): string {
  return `${spent.nanoUsd} ${spent.tokens} ${held.nanoUsd} ${held.tokens}`
}

/** Clocks of other hosts may be behind. */
const monthGraceMs = 60 * 60 * 1000

function isAll(held: Amounts, used: Amounts): boolean {
  return held.nanoUsd <= used.nanoUsd && held.tokens <= used.tokens
}
