// Usage of the gateway summed by key, model and day (UTC): the query, and its response as JSON or CSV. Pure.

import { type Static, Type } from '@sinclair/typebox'
import { iso } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { OneOf } from '../check.ts'
import { Closed, OrNull } from '../forms.ts'
import { nanoUsdText } from './usd.ts'

const Count = Type.Integer({ minimum: 0 })
const TextOrNull = OrNull(Type.String())

export const USAGE_GROUPS = ['key', 'model', 'day'] as const
export type UsageGroup = (typeof USAGE_GROUPS)[number]

/** Most rows of a response to an operator. */
export const usageRowsMax = 10_000
export const usageDaysMax = 366
const dayMs = 86_400_000
/** Longest part of a client's own text that an error message repeats. */
const echoCharsMax = 32

export const UsageSums = Closed({
  requests: Count,
  prompt_tokens: Count,
  completion_tokens: Count,
  cost_usd: Type.String({ pattern: '^[0-9]+\\.[0-9]{9}$', description: 'Exact, as a decimal.' }),
})
export type UsageSums = Static<typeof UsageSums>

/** Properties of a response with rows. */
export const usageRows = {
  from: Type.String({ description: 'First day in UTC, like 2026-11-01.' }),
  to: Type.String({ description: 'Last day in UTC; it is included.' }),
  by: Type.Array(OneOf(USAGE_GROUPS)),
  rows: Type.Array(Closed({ day: TextOrNull, key: TextOrNull, model: TextOrNull, ...UsageSums.properties }), {
    description: 'By day, key and model. What was not asked for is null.',
  }),
  total: UsageSums,
}
const UsageRows = Closed(usageRows)
export type UsageRows = Static<typeof UsageRows>

/** Days, both included. */
export type UsageDays = { readonly from: string; readonly to: string; readonly startMs: number; readonly endMs: number }

/** Fault invalid_request: text that is no date, the last day before the first, or too many days. */
export function usageDaysOf({ from, to }: { readonly from: string; readonly to: string }): UsageDays {
  // Checked first, because `from` may be derived from it.
  const endMs = dayStartMs('to', to) + dayMs
  const startMs = dayStartMs('from', from)
  if (startMs >= endMs) throw refusal('to', `${to} is before ${from}`)
  if (endMs - startMs > usageDaysMax * dayMs) throw refusal('to', `ask for at most ${usageDaysMax} days at a time`)
  return { from, to, startMs, endMs }
}

function dayStartMs(param: string, day: string): number {
  const atMs = /^\d{4}-\d{2}-\d{2}$/.test(day) ? Date.parse(`${day}T00:00:00Z`) : Number.NaN
  // Date parses the 30th of February as a day in March.
  if (!Number.isNaN(atMs) && iso(atMs).slice(0, 10) === day) return atMs
  throw refusal(param, `${echo(day)} is no day like 2026-11-30`)
}

/** Names separated by commas; empty: one row with the sums. Fault invalid_request. */
export function usageGroupsOf(text: string): ReadonlySet<UsageGroup> {
  const names = text === '' ? [] : text.split(',')
  return new Set(
    names.map(name => {
      const group = USAGE_GROUPS.find(kind => kind === name)
      if (group === undefined) throw refusal('by', `${echo(name)} is none of ${USAGE_GROUPS.join(', ')}`)
      return group
    }),
  )
}

function echo(text: string): string {
  return JSON.stringify(text.slice(0, echoCharsMax))
}

function refusal(param: string, message: string): Fault {
  return new Fault('invalid_request', message, { param })
}

/** Each row names the groups that it is summed by. */
export type UsageGroupNames = Readonly<Record<UsageGroup, string | null>>
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

/** Exact sums of the rows added to it. */
export class UsageTable {
  readonly #by: ReadonlySet<UsageGroup>
  readonly #rowsMax: number
  readonly #groups = new Map<string, { readonly names: UsageGroupNames; amounts: UsageAmounts }>()
  #total = noAmounts

  constructor({ by, rowsMax }: { readonly by: ReadonlySet<UsageGroup>; readonly rowsMax: number }) {
    this.#by = by
    this.#rowsMax = rowsMax
  }

  /** Fault invalid_request: more rows than one response holds. */
  add(of: UsageGroupNames, amounts: UsageAmounts): void {
    const names = { day: this.#named('day', of), key: this.#named('key', of), model: this.#named('model', of) }
    const id = JSON.stringify([names.day, names.key, names.model])
    const group = this.#groups.get(id)
    if (group !== undefined) group.amounts = sumOf(group.amounts, amounts)
    else if (this.#groups.size < this.#rowsMax) this.#groups.set(id, { names, amounts })
    else throw tooManyUsageRows(this.#rowsMax)
    this.#total = sumOf(this.#total, amounts)
  }

  view({ from, to }: UsageDays): UsageRows {
    const groups = [...this.#groups].sort(([text], [other]) => (text < other ? -1 : 1))
    return {
      from,
      to,
      by: USAGE_GROUPS.filter(group => this.#by.has(group)),
      rows: groups.map(([, { names, amounts }]) => ({ ...names, ...usageSumsView(amounts) })),
      total: usageSumsView(this.#total),
    }
  }

  #named(group: UsageGroup, names: UsageGroupNames): string | null {
    return this.#by.has(group) ? names[group] : null
  }
}

export function tooManyUsageRows(max: number): Fault {
  return refusal('by', `these are more than ${max} rows; ask for fewer days, or by less`)
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
export function usageCsv({ by, rows }: Pick<UsageRows, 'by' | 'rows'>): string {
  const names = [...(['day', 'key', 'model'] as const).filter(name => by.includes(name)), ...COLUMNS]
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
