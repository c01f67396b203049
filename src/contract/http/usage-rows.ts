// Usage of the gateway summed by key, model and day (UTC): the query, and its response as JSON or CSV. Pure. The
// schemas of responses are in usage-rows.schema.ts.

import { iso } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { dayMs } from '../../base/time.ts'
import { LABELLED_USAGE_GROUPS, type UsageGroup } from './usage-groups.ts'
import type { UsageSums } from './usage-rows.schema.ts'
import { nanoUsdText } from './usd.ts'

/** Most rows of a response to an operator. */
export const usageRowsMax = 10_000
export const usageDaysMax = 366
/** Longest part of a client's own text that an error message repeats. */
const echoCharsMax = 32

export type UsageRows<Group extends UsageGroup = UsageGroup> = {
  from: string
  to: string
  by: Group[]
  rows: (Record<Group, string | null> & UsageSums)[]
  total: UsageSums
}

/** Days, both included. */
export type UsageDays = { readonly from: string; readonly to: string; readonly startMs: number; readonly endMs: number }

/**
 * Returns the days of a query. Throws Fault invalid_request for text that is not a date, a last day before the first,
 * or too many days.
 */
export function usageDaysOf({ from, to }: { readonly from: string; readonly to: string }): UsageDays {
  // Checked first, because `from` may be derived from it.
  const endMs = dayStartMs('to', to) + dayMs
  const startMs = dayStartMs('from', from)
  if (startMs >= endMs) throw invalidParameter('to', `${to} is before ${from}`)
  if (endMs - startMs > usageDaysMax * dayMs)
    throw invalidParameter('to', `ask for at most ${usageDaysMax} days at a time`)
  return { from, to, startMs, endMs }
}

function dayStartMs(param: string, day: string): number {
  const atMs = /^\d{4}-\d{2}-\d{2}$/.test(day) ? Date.parse(`${day}T00:00:00Z`) : Number.NaN
  // Date parses the 30th of February as a day in March.
  if (!Number.isNaN(atMs) && iso(atMs).slice(0, 10) === day) return atMs
  throw invalidParameter(param, `${echo(day)} is no day like 2026-11-30`)
}

/** Names separated by commas; empty: one row with the sums. Fault invalid_request. */
export function usageGroupsOf<Group extends string>(text: string, groups: readonly Group[]): ReadonlySet<Group> {
  const names = text === '' ? [] : text.split(',')
  return new Set(
    names.map(name => {
      const group = groups.find(kind => kind === name)
      if (group === undefined) throw invalidParameter('by', `${echo(name)} is none of ${groups.join(', ')}`)
      return group
    }),
  )
}

function echo(text: string): string {
  return JSON.stringify(text.slice(0, echoCharsMax))
}

function invalidParameter(param: string, message: string): Fault {
  return new Fault('invalid_request', message, { param })
}

export type UsageAmounts = {
  readonly requests: number
  readonly promptTokens: bigint
  readonly completionTokens: bigint
  readonly costNanoUsd: bigint
}

/** Sums as JSON; text when a sum may exceed the integers that a double holds exactly. */
export type SummedUsage = {
  readonly requests: number
  readonly promptTokens: number | string
  readonly completionTokens: number | string
  readonly costNanoUsd: number | string
}

export function usageAmountsOf({ requests, promptTokens, completionTokens, costNanoUsd }: SummedUsage): UsageAmounts {
  return {
    requests,
    promptTokens: BigInt(promptTokens),
    completionTokens: BigInt(completionTokens),
    costNanoUsd: BigInt(costNanoUsd),
  }
}

const noAmounts: UsageAmounts = { requests: 0, promptTokens: 0n, completionTokens: 0n, costNanoUsd: 0n }

/** Order of columns, and of rows. */
const ORDER = ['day', 'key', 'model', 'user', 'tags'] as const satisfies readonly UsageGroup[]

type Names<Group extends UsageGroup> = Record<Group, string | null>

/** Exact sums of the rows added to it. */
export class UsageTable<Group extends UsageGroup> {
  readonly #by: ReadonlySet<Group>
  /** All that a row names. */
  readonly #groups: readonly Group[]
  readonly #rowsMax: number
  readonly #rows = new Map<string, { readonly names: Names<Group>; amounts: UsageAmounts }>()
  #total = noAmounts

  constructor(options: {
    readonly by: ReadonlySet<Group>
    readonly groups: readonly Group[]
    readonly rowsMax: number
  }) {
    this.#by = options.by
    this.#groups = ORDER.filter((group): group is Group & (typeof ORDER)[number] => isOneOf(options.groups, group))
    this.#rowsMax = options.rowsMax
  }

  /**
   * Adds amounts to the row of their group. Throws Fault invalid_request if there are more rows than one response
   * holds.
   */
  add(of: Readonly<Names<Group>>, amounts: UsageAmounts): void {
    const cells = this.#groups.map(group => [group, this.#by.has(group) ? of[group] : null] as const)
    const id = JSON.stringify(cells.map(([, name]) => name))
    const row = this.#rows.get(id)
    if (row !== undefined) row.amounts = sumOf(row.amounts, amounts)
    else if (this.#rows.size < this.#rowsMax) {
      this.#rows.set(id, { names: Object.fromEntries(cells) as Names<Group>, amounts })
    } else throw tooManyUsageRows(this.#rowsMax)
    this.#total = sumOf(this.#total, amounts)
  }

  view({ from, to }: UsageDays): UsageRows<Group> {
    const rows = [...this.#rows].sort(([text], [other]) => (text < other ? -1 : 1))
    return {
      from,
      to,
      by: LABELLED_USAGE_GROUPS.filter((group): group is Group & UsageGroup => isOneOf([...this.#by], group)),
      rows: rows.map(([, { names, amounts }]) => ({ ...names, ...usageSumsView(amounts) })),
      total: usageSumsView(this.#total),
    }
  }
}

function isOneOf<Group extends UsageGroup>(groups: readonly Group[], name: UsageGroup): name is Group {
  return groups.some(group => group === name)
}

export function tooManyUsageRows(max: number): Fault {
  return invalidParameter('by', `these are more than ${max} rows; ask for fewer days, or by less`)
}

function sumOf(amounts: UsageAmounts, other: UsageAmounts): UsageAmounts {
  return {
    requests: amounts.requests + other.requests,
    promptTokens: amounts.promptTokens + other.promptTokens,
    completionTokens: amounts.completionTokens + other.completionTokens,
    costNanoUsd: amounts.costNanoUsd + other.costNanoUsd,
  }
}

export function usageSumsView({ requests, promptTokens, completionTokens, costNanoUsd }: UsageAmounts): UsageSums {
  return {
    requests,
    prompt_tokens: Number(promptTokens),
    completion_tokens: Number(completionTokens),
    cost_usd: nanoUsdText(costNanoUsd),
  }
}

const COLUMNS = ['requests', 'prompt_tokens', 'completion_tokens', 'cost_usd'] as const

/** RFC 4180, with a header line and the requested columns. Spreadsheets read no cell as a formula. */
export function usageCsv<Group extends UsageGroup>({ by, rows }: Pick<UsageRows<Group>, 'by' | 'rows'>): string {
  const names = [...ORDER.filter(name => isOneOf(by, name)), ...COLUMNS]
  return [names, ...rows.map(row => names.map(name => csvCell(row[name])))]
    .map(line => `${line.join(',')}\r\n`)
    .join('')
}

/** Puts an apostrophe before text that spreadsheets would read as a formula; it marks the cell as text. */
export function csvCell(value: string | number | null): string {
  const text = String(value ?? '')
  const harmless = /^[=+\-@\t\r\n]/.test(text.trimStart()) || /^[\t\r\n]/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(harmless) || harmless !== harmless.trim() ? `"${harmless.replaceAll('"', '""')}"` : harmless
}
