// Limits, models, expiry and budget of a gateway key: as typed, as a request, and as options of the command line. Pure.

import type { AdminGatewayKey, AdminGatewayKeyCreate, AdminGatewayKeySet } from '../../../../contract/admin/admin.ts'
import { parseUserBudget, type UserBudget, userBudgetText } from '../../../../contract/admin/user-budget.ts'
import type { CommandOptions } from '../../core/command.ts'

/** The typed values. Empty means the configured limit, all models, no expiry, no budget. */
export type Terms = {
  readonly requests_per_minute: string
  readonly tokens_per_minute: string
  readonly concurrency_max: string
  readonly expires_at: string
  readonly models: string
  readonly aliases: string
  readonly budget_usd: string
  readonly budget_tokens: string
  readonly budget_day_usd: string
  readonly budget_day_tokens: string
  readonly budget_week_usd: string
  readonly budget_week_tokens: string
  /** In the command line's format. */
  readonly user_budget: string
}

/** Returns the terms of a key; those of a key with nothing set if null. */
export function termsOf(key: AdminGatewayKey | null): Terms {
  const text = (value: number | string | null | undefined) => (value == null ? '' : String(value))
  return {
    requests_per_minute: text(key?.requests_per_minute),
    tokens_per_minute: text(key?.tokens_per_minute),
    concurrency_max: text(key?.concurrency_max),
    expires_at: text(key?.expires_at).slice(0, 10),
    models: (key?.models ?? []).join(','),
    aliases: (key?.aliases ?? []).map(({ name, model }) => `${name}=${model}`).join(','),
    budget_usd: text(key?.budget_usd),
    budget_tokens: text(key?.budget_tokens),
    budget_day_usd: text(key?.budget_day_usd),
    budget_day_tokens: text(key?.budget_day_tokens),
    budget_week_usd: text(key?.budget_week_usd),
    budget_week_tokens: text(key?.budget_week_tokens),
    user_budget: key?.user_budget == null ? '' : userBudgetText(key.user_budget),
  }
}

export function bodyOf(terms: Terms): AdminGatewayKeyCreate {
  const count = (text: string) => (text === '' ? null : Number(text))
  const usd = (text: string) => (text === '' ? null : text)
  const aliases = listOf(terms.aliases).map(pair => {
    const at = pair.indexOf('=')
    return { name: pair.slice(0, Math.max(0, at)), model: pair.slice(at + 1) }
  })
  return {
    requests_per_minute: count(terms.requests_per_minute),
    tokens_per_minute: count(terms.tokens_per_minute),
    concurrency_max: count(terms.concurrency_max),
    expires_at: terms.expires_at === '' ? null : `${terms.expires_at}T00:00:00.000Z`,
    models: terms.models === '' ? null : listOf(terms.models),
    aliases: aliases.length === 0 ? null : aliases,
    budget_usd: usd(terms.budget_usd),
    budget_tokens: count(terms.budget_tokens),
    budget_day_usd: usd(terms.budget_day_usd),
    budget_day_tokens: count(terms.budget_day_tokens),
    budget_week_usd: usd(terms.budget_week_usd),
    budget_week_tokens: count(terms.budget_week_tokens),
    user_budget: userBudgetOf(terms.user_budget),
  }
}

/** Parses a budget. Passes text of another form to the server as the amount, so that the server rejects it. */
function userBudgetOf(text: string): UserBudget | null {
  return text === '' ? null : (parseUserBudget(text) ?? { usd: text, period: 'month' })
}

/** Returns the fields that differ. The others stay unchanged, including an expiry with a time of day. */
export function changesOf(after: Terms, before: Terms): AdminGatewayKeySet {
  const all = Object.entries(bodyOf(after))
  return Object.fromEntries(all.filter(([name]) => after[name as keyof Terms] !== before[name as keyof Terms]))
}

function listOf(text: string): string[] {
  return text
    .split(',')
    .map(name => name.trim())
    .filter(name => name !== '')
}

/** Name of each option, and its value for an empty field. */
const OPTIONS = {
  requests_per_minute: ['requests-per-minute', 'default'],
  tokens_per_minute: ['tokens-per-minute', 'default'],
  concurrency_max: ['concurrency', 'default'],
  expires_at: ['expires', 'never'],
  models: ['models', 'all'],
  aliases: ['alias', null],
  budget_usd: ['budget-usd', 'none'],
  budget_tokens: ['budget-tokens', 'none'],
  budget_day_usd: ['budget-day-usd', 'none'],
  budget_day_tokens: ['budget-day-tokens', 'none'],
  budget_week_usd: ['budget-week-usd', 'none'],
  budget_week_tokens: ['budget-week-tokens', 'none'],
  user_budget: ['user-budget', 'none'],
} as const satisfies Record<keyof Terms, readonly [option: string, empty: string | null]>

/** Returns the options that change `before` to `after`. */
export function optionsOf(after: Terms, before: Terms): CommandOptions {
  const names = Object.keys(OPTIONS) as (keyof Terms)[]
  const changed = names.filter(name => after[name] !== before[name])
  return Object.fromEntries(
    changed.map(name => {
      const [option, empty] = OPTIONS[name]
      if (after[name] !== '') return [option, name === 'aliases' ? listOf(after.aliases) : after[name]]
      return empty === null ? ['no-aliases', true] : [option, empty]
    }),
  )
}
