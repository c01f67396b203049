// Watches the budgets of keys and organizations: once 80 % of one is spent, reports it in the log, the journal and the
// status. Effects: reads the store, writes the journal.

import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import { type Family, metricsText } from '../base/prometheus.ts'
import { sweep } from '../base/work/sweep.ts'
import type { AdminStatus } from '../contract/admin/admin.ts'
import { SHORT_PERIODS } from '../contract/key-rules.ts'
import { prepareRaw, type Store } from '../store/db.ts'
import { listBudgetedGatewayKeys } from '../store/directory/gateway-key.query.ts'
import type { GatewayKey } from '../store/directory/gateway-key.table.ts'
import { listOrganizations } from '../store/directory/organization.query.ts'
import { monthOf, noUsage, periodText, shortPeriodOf } from '../store/directory/usage/periods.ts'
import { type KeySums, type MonthSum, prepareKeySums } from '../store/directory/usage/usage-month.query.ts'
import { noteEvent } from '../store/ledger/event.query.ts'

type NearBudget = NonNullable<AdminStatus['budgets_near']>[number]

export type BudgetWatchDeps = {
  readonly store: Pick<Store, 'directory' | 'ledger'>
  readonly clock: Clock
  readonly log: Logger
}

type Budgets = Pick<GatewayKey, 'budgetNanoUsd' | 'budgetTokens' | 'shortBudgets'>
type Owner = Budgets & {
  readonly organizationId: string
  readonly slug: string
  readonly prefix: string | null
  readonly name: string | null
}
/** `most`: the budget. A changed budget gets a new alert. */
type NearBudgetRow = NearBudget & { readonly organizationId: string; readonly most: number }

export const alertPercent = 80
const intervalMs = 60_000
/** Maximum number of budgets in the status. No share: limits one response; the fullest budgets come first. */
const shownMax = 100
/** Time after which other work of the thread runs. */
const turnMs = 5

export class BudgetWatch {
  readonly #deps: BudgetWatchDeps
  readonly #sumsOf: ReturnType<typeof prepareKeySums>
  readonly #notedSince: ReturnType<typeof prepareNoted>
  #near: readonly NearBudgetRow[] = []

  constructor(deps: BudgetWatchDeps) {
    this.#deps = deps
    this.#sumsOf = prepareKeySums(deps.store.directory.db)
    this.#notedSince = prepareNoted(deps.store.ledger.db)
  }

  /** Returns the budgets that are nearly spent, the fullest first. */
  near(): NearBudget[] {
    const byPercent = this.#near.toSorted((left, right) => right.percent - left.percent)
    return byPercent.slice(0, shownMax).map(({ organizationId: _, most: _2, ...shown }) => shown)
  }

  render(): string {
    const samples = [{ labels: {}, value: this.#near.length }]
    const help = `Budgets of which at least ${alertPercent} % are spent.`
    const family: Family = { name: 'strongroom_budgets_near', help, type: 'gauge', samples }
    return metricsText([family])
  }

  /** Checks now and once a minute until the signal is aborted. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#deps
    await sweep({ clock, intervalMs, signal }, async () => {
      try {
        await this.#look(signal)
      } catch (error) {
        if (!signal.aborted) log.error('budgets were not looked at', { error })
      }
    })
  }

  async #look(signal: AbortSignal): Promise<void> {
    const { store, clock } = this.#deps
    const nowMs = clock.nowMs()
    const turn = createTurn(signal)
    const keys = Map.groupBy(listBudgetedGatewayKeys(store.directory.db), key => key.organizationId)
    await turn()
    const known = new Set(this.#near.map(nameOf))
    const found: NearBudgetRow[] = []
    const fresh = new Map<string, readonly NearBudgetRow[]>()
    for (const organization of listOrganizations(store.directory.db)) {
      const { id: organizationId, slug } = organization
      const owners: Owner[] = [organization, ...(keys.get(organizationId) ?? [])].map(row => ({
        ...budgetsOf(row),
        ...{
          organizationId,
          slug,
          ...('prefix' in row ? { prefix: row.prefix, name: row.name } : { prefix: null, name: null }),
        },
      }))
      const near: NearBudgetRow[] = []
      for (const { period, budgetOf } of periodsAt(nowMs)) {
        const withBudget = owners.filter(owner => hasBound(budgetOf(owner)))
        if (withBudget.length === 0) continue
        const sums = this.#sumsOf({ organizationId, month: period })
        await turn()
        for (const owner of withBudget) {
          near.push(...nearOf(owner, { period, budget: budgetOf(owner), sums }))
          await turn()
        }
      }
      found.push(...near)
      const added = near.filter(item => !known.has(nameOf(item)))
      if (added.length > 0) fresh.set(organizationId, added)
    }
    this.#near = found
    for (const [organizationId, added] of fresh) {
      const noted = this.#notedSince(organizationId, sinceOf(nowMs))
      await turn()
      for (const near of added) {
        if (!noted.has(nameOf(near))) this.#alert(near)
        await turn()
      }
    }
  }

  #alert({ organizationId, percent, ...near }: NearBudgetRow): void {
    const { store, clock, log } = this.#deps
    const detail = { ...near, percent }
    log.warn(`a budget is ${alertPercent} % spent`, detail)
    noteEvent(store.ledger.db, log, { nowMs: clock.nowMs(), kind: alertKind, subject: organizationId, detail })
  }
}

type Bounds = { readonly nanoUsd: number | null; readonly tokens: number | null }
type PeriodBudgets = { readonly period: string; readonly budgetOf: (owner: Budgets) => Bounds | undefined }

/** Returns the month, the day and the week of a time. */
function periodsAt(nowMs: number): readonly PeriodBudgets[] {
  return [
    {
      period: monthOf(nowMs),
      budgetOf: ({ budgetNanoUsd, budgetTokens }) => ({ nanoUsd: budgetNanoUsd, tokens: budgetTokens }),
    },
    ...SHORT_PERIODS.map(kind => ({
      period: shortPeriodOf(kind, nowMs),
      budgetOf: ({ shortBudgets }: Budgets) => shortBudgets?.[kind],
    })),
  ]
}

/** Returns when the first of the periods of a time began; older entries are about other periods. */
function sinceOf(nowMs: number): number {
  return Math.min(Date.parse(`${monthOf(nowMs)}-01`), Date.parse(shortPeriodOf('week', nowMs).slice(0, 10)))
}

function hasBound(budget: Bounds | undefined): boolean {
  return budget !== undefined && (budget.nanoUsd !== null || budget.tokens !== null)
}

function budgetsOf({ budgetNanoUsd, budgetTokens, shortBudgets }: Budgets): Budgets {
  return { budgetNanoUsd, budgetTokens, shortBudgets }
}

function nearOf(
  { organizationId, slug, prefix, name }: Owner,
  { period, budget, sums }: { readonly period: string; readonly budget: Bounds | undefined; readonly sums: KeySums },
): NearBudgetRow[] {
  const spent = amountsOf(sums.get(prefix ?? '') ?? noUsage)
  return (['nanoUsd', 'tokens'] as const).flatMap((kind): NearBudgetRow[] => {
    const most = budget?.[kind] ?? null
    // A budget of 0 allows no spending.
    const percent = most === null || most === 0 ? 0 : Math.floor((100 * spent[kind]) / most)
    if (most === null || percent < alertPercent) return []
    const named = name === null ? {} : { key_name: name }
    const shown = { organization: slug, key: prefix, ...named, period: periodText(period), percent }
    return [{ ...shown, kind: kind === 'tokens' ? 'tokens' : 'usd', organizationId, most }]
  })
}

/** Lets other work of the thread run if `turnMs` have passed since it last did. Rejects once the signal is aborted. */
function createTurn(signal: AbortSignal): () => Promise<void> {
  let sinceMs = performance.now()
  return async () => {
    if (performance.now() - sinceMs < turnMs) return
    await new Promise<void>(resolve => setImmediate(resolve))
    signal.throwIfAborted()
    sinceMs = performance.now()
  }
}

/**
 * Returns a function for the names of the alerts in an organization's journal since a time, including those before a
 * restart.
 */
function prepareNoted(db: Store['ledger']['db']): (organizationId: string, sinceMs: number) => ReadonlySet<string> {
  const details = prepareRaw<{ detail: string }>(
    db,
    'SELECT detail FROM events WHERE subject = ? AND kind = ? AND at_ms >= ?',
  )
  return (organizationId, sinceMs) =>
    new Set(
      details
        .all(organizationId, alertKind, sinceMs)
        .map(({ detail }) => nameOf({ organizationId, ...JSON.parse(detail) })),
    )
}

const alertKind = 'budget.near'

function nameOf(near: { readonly [name: string]: unknown }): string {
  return JSON.stringify([near.organizationId, near.key, near.period, near.kind, near.most])
}

function amountsOf({ costNanoUsd, promptTokens, completionTokens }: MonthSum) {
  return { nanoUsd: costNanoUsd, tokens: promptTokens + completionTokens }
}
