// This host's part of the budgets of a fleet: what it has spent itself, and what it was granted. Gives back what is not
// used. Effects: through its dependencies, timers.

import type { Clock } from '../../../base/clock.ts'
import type { Logger } from '../../../base/log.ts'
import { sweep } from '../../../base/work/sweep.ts'
import { type MonthScope, monthEndMs, monthOf } from '../../../store/directory/usage/usage-month.query.ts'
import { unknownUse } from '../faults.ts'
import { scopeName, scopesOf } from '../month-sums.ts'
import type { Amounts, BudgetShares, MonthSpent, ShareAsked, SharesAsked, Spender, SpenderShares } from '../types.ts'
import { amountsOf, NO_AMOUNTS, plus } from './amounts.ts'

/** Blocks that are leased from the directory of a fleet (fleet/books/allowances.ts). */
export type Allowances = {
  readonly of: (scope: MonthScope) => Amounts | null
  readonly all: () => readonly (MonthScope & Amounts)[]
  readonly raise: (
    scope: MonthScope,
    asked: () => { readonly used: Amounts; readonly need: Amounts; readonly want: Amounts },
  ) => Promise<boolean>
  readonly giveBack: (scope: MonthScope, keep: () => Amounts) => Promise<void>
  readonly drop: (scope: MonthScope) => void
  readonly enterIfNew: () => Promise<void>
}

export type HostSharesDeps = {
  readonly allowances: Allowances
  /** Spent by this host. */
  readonly ownSpent: (spender: Spender, month: string) => MonthSpent
  readonly clock: Clock
  readonly log: Logger
}

/** A budget that was not used for one to two of these is given back. */
const idleMs = 5_000
/** Budgets that are given back in one turn, and looked at without a pause. */
const giveBacksMax = 64
const looksMax = 100
const lookGapMs = 2

export class HostShares implements BudgetShares {
  readonly #deps: HostSharesDeps
  /** Null: nobody says what is reserved, as with a gateway in its VM. */
  #reserved: ((spender: Spender) => Amounts) | null = null
  /** How much of each block was used at the last look. */
  #seen = new Map<string, string>()

  constructor(deps: HostSharesDeps) {
    this.#deps = deps
  }

  readonly follow = (reserved: ((spender: Spender) => Amounts) | null): void => {
    this.#reserved = reserved
  }

  readonly share = (spender: Spender, month: string): SpenderShares | null => {
    const { allowances, ownSpent } = this.#deps
    const scopes = scopesOf(spender, month)
    const [key, organization] = [allowances.of(scopes.key), allowances.of(scopes.organization)]
    const spent = ownSpent(spender, month)
    return {
      key: { spent: spent.key, allowed: key ?? NO_AMOUNTS },
      organization: { spent: spent.organization, allowed: organization ?? NO_AMOUNTS },
    }
  }

  readonly raise = async (spender: Spender, month: string, asked: () => SharesAsked): Promise<boolean> => {
    const { allowances, ownSpent } = this.#deps
    const scopes = scopesOf(spender, month)
    const raised = (of: keyof SharesAsked, { need, want }: ShareAsked) =>
      allowances.raise(scopes[of], () => {
        // Read again: others of this scope had their turn before.
        const now = asked()[of] ?? { need, want }
        const used = amountsOf(ownSpent(spender, month)[of])
        return { used, need: plus(used, now.need), want: plus(used, now.want) }
      })
    const { key, organization } = asked()
    try {
      // The organization's first: it is the one that is shared, and refused more often.
      if (organization !== null && !(await raised('organization', organization))) return false
      return key === null || (await raised('key', key))
    } catch (cause) {
      throw unknownUse(cause)
    }
  }

  /** Gives back what is not used, and keeps the directory's notes of what was granted. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { allowances, clock, log } = this.#deps
    await sweep({ clock, intervalMs: idleMs, signal }, async () => {
      try {
        await allowances.enterIfNew()
        await this.giveBackIdle()
      } catch (error) {
        log.debug('what is not used of budgets was not given back', { error })
      }
    })
  }

  /** One look: what was not used since the last one is given back. Fault: `fleet.unavailable`. */
  async giveBackIdle(): Promise<void> {
    const { allowances, clock } = this.#deps
    const now = monthOf(clock.nowMs())
    const seen = new Map<string, string>()
    let count = 0
    for (const [index, held] of allowances.all().entries()) {
      if (index % looksMax === looksMax - 1) await clock.sleep(lookGapMs)
      const used = this.#usedOf(held, held.month)
      const isOver = monthEndMs(held.month) + monthGraceMs < clock.nowMs()
      // In a VM: what it holds for itself it never gives back while the month lasts.
      if (used === null) {
        if (isOver) allowances.drop(held)
        continue
      }
      const name = scopeName(held)
      const text = `${used.nanoUsd} ${used.tokens}`
      if (this.#seen.get(name) !== text || (!isOver && isAll(held, used))) {
        seen.set(name, text)
        continue
      }
      count += 1
      if (count > giveBacksMax) break
      await allowances.giveBack(held, () => this.#usedOf(held, held.month) ?? held)
      if (held.month >= now) continue
      // Requests that began then were granted in this month, too, where another host has begun it.
      const current = { ...held, month: now }
      if (allowances.of(current) === null) await allowances.giveBack(current, () => this.#usedOf(held, now) ?? held)
      if (isOver) allowances.drop(held)
    }
    this.#seen = seen
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

/** Clocks of other hosts may be behind. */
const monthGraceMs = 60 * 60 * 1000

function isAll(held: Amounts, used: Amounts): boolean {
  return held.nanoUsd <= used.nanoUsd && held.tokens <= used.tokens
}
