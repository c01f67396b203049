// Goal: a budget that is left out stays, null removes it, and what is shown has an amount exactly where there is one.

import { expect, test } from 'bun:test'
import type { Fault } from '../../src/base/fault.ts'
import { parseUserBudget, userBudgetText } from '../../src/contract/admin/user-budget.ts'
import {
  budgetTerms,
  budgetView,
  checkPriced,
  hasUsdBudget,
  keyBudgetTerms,
  userBudgetView,
} from '../../src/operator/budget.ts'

const before = { budgetNanoUsd: 1_500_000_000, budgetTokens: 7, shortBudgets: null }
const sums: Readonly<Record<string, number>> = { '2026-11': 12_000, '2026-11-29': 2_000, '2026-11-23/P7D': 5_000 }
const usage: Parameters<typeof budgetView>[1] = {
  nowMs: Date.UTC(2026, 10, 29, 12),
  sumOf: period => ({ costNanoUsd: sums[period] ?? -1, promptTokens: 3, completionTokens: 4 }) as never,
}

test('goal: each of the two fields by itself', () => {
  expect(budgetTerms({}, before)).toEqual(before)
  expect(budgetTerms({ budget_usd: null }, before)).toEqual({ ...before, budgetNanoUsd: null })
  expect(budgetTerms({ budget_tokens: null }, before)).toEqual({ ...before, budgetTokens: null })
  expect(budgetTerms({ budget_usd: '0.000000001', budget_tokens: 0 }, before)).toEqual({
    ...{ budgetNanoUsd: 1, budgetTokens: 0, shortBudgets: null },
  })
})

test('goal: without a fleet nothing is said of hosts; in one what they hold, where there is a budget to hold of', () => {
  const shown = {
    budget_usd: '1.500000000',
    budget_tokens: 7,
    month_cost_usd: '0.000012000',
    month_tokens: 7,
  }
  expect(budgetView(before, usage)).toEqual(shown)
  expect(budgetView(before, usage, { nanoUsd: 2_000_000_000, tokens: 5 })).toEqual({
    ...shown,
    ...{ month_held_usd: '2.000000000', month_held_tokens: 5 },
  })
  expect(budgetView(before, usage, null)).toEqual({ ...shown, month_held_usd: null, month_held_tokens: null })
  const open = budgetView({ budgetNanoUsd: null, budgetTokens: null, shortBudgets: null }, usage, {
    nanoUsd: 1,
    tokens: 1,
  })
  expect(open).toEqual({
    ...{ ...shown, budget_usd: null, budget_tokens: null },
    ...{ month_held_usd: null, month_held_tokens: null },
  })
})

test('goal: budgets of a day and of a week stand beside that of the month, each by itself', () => {
  const day = budgetTerms({ budget_day_usd: '2', budget_week_tokens: 9 }, before)
  expect(day).toEqual({
    ...before,
    shortBudgets: { day: { nanoUsd: 2_000_000_000, tokens: null }, week: { nanoUsd: null, tokens: 9 } },
  })
  expect(budgetTerms({ budget_day_usd: null }, day).shortBudgets).toEqual({ week: { nanoUsd: null, tokens: 9 } })
  expect(budgetTerms({ budget_day_usd: null, budget_week_tokens: null }, day).shortBudgets).toBeNull()
  // A Sunday: the last day of its week.
  expect(budgetView(day, usage)).toMatchObject({
    ...{ budget_day_usd: '2.000000000', budget_day_tokens: null, day_cost_usd: '0.000002000', day_tokens: 7 },
    ...{ budget_week_usd: null, budget_week_tokens: 9, week_cost_usd: '0.000005000', week_tokens: 7 },
  })
})

// Goal: the budget of each end user is set and removed as a whole, and neither it nor those of day and week change with
// the other.
test('budgets of end users', () => {
  const day = { ...before, shortBudgets: { day: { nanoUsd: 2, tokens: null } } }
  const set = keyBudgetTerms({ user_budget: { usd: '0.5', period: 'week', users_max: 9, required: true } }, day)
  const endUser = { period: 'week', nanoUsd: 500_000_000, usersMax: 9, isRequired: true }
  expect(set.shortBudgets).toEqual({ day: { nanoUsd: 2, tokens: null }, endUser } as never)
  expect(keyBudgetTerms({ budget_day_usd: null }, set).shortBudgets).toEqual({ endUser } as never)
  expect(keyBudgetTerms({ user_budget: null }, set).shortBudgets).toEqual({ day: { nanoUsd: 2, tokens: null } })
  expect(keyBudgetTerms({ user_budget: { usd: '5', period: 'day' } }, set).shortBudgets?.endUser).toEqual({
    ...{ period: 'day', nanoUsd: 5_000_000_000, usersMax: 1_000, isRequired: false },
  })
  expect(userBudgetView(set)).toEqual({
    user_budget: { usd: '0.500000000', period: 'week', users_max: 9, required: true },
  })
  expect(userBudgetView(day)).toEqual({})
})

// Goal: the one text of forms and of the command line has one meaning, and any other text none.
test('the text of a budget of end users', () => {
  expect(parseUserBudget('5/month')).toEqual({ usd: '5', period: 'month' })
  expect(parseUserBudget('0.50/day,200,required')).toEqual({
    ...{ usd: '0.50', period: 'day', users_max: 200, required: true },
  })
  expect(parseUserBudget('1/week,required')).toEqual({ usd: '1', period: 'week', required: true })
  for (const text of ['', '5', '5/year', '/day', '-5/day', '5/day,', '5/day,x', '5/day,200,', '5/day,required,200']) {
    expect([text, parseUserBudget(text)]).toEqual([text, null])
  }
  expect(userBudgetText({ usd: '0.500000000', period: 'week', users_max: 9, required: true })).toBe(
    '0.50/week,9,required',
  )
  expect(userBudgetText({ usd: '12.000000000', period: 'day', users_max: 1_000, required: false })).toBe(
    '12.00/day,1000',
  )
})

// Goal: a budget in dollars is refused wherever a model that it is for has no price, with the field and the remedy.
test('models without a price', () => {
  const unpriced = ['free-of-price']
  const param = (asked: Parameters<typeof checkPriced>[0], models: string[] | null, isWidened = false) => {
    try {
      checkPriced(asked, { models, unpriced, isWidened })
      return null
    } catch (error) {
      expect(String(error)).toContain('[[inference.prices]]')
      return (error as Fault).param
    }
  }
  for (const field of ['budget_usd', 'budget_day_usd', 'budget_week_usd'] as const) {
    expect(param({ [field]: '5' }, null)).toBe(field)
    expect(param({ [field]: null }, null)).toBeNull()
    expect(param({ [field]: '5' }, ['priced'])).toBeNull()
  }
  expect(param({ user_budget: { usd: '1', period: 'day' } }, ['free-of-price'])).toBe('user_budget')
  expect(param({ budget_tokens: 5 }, null)).toBeNull()
  expect(param({}, null, true)).toBe('models')
  expect(() => checkPriced({ budget_usd: '5' }, { models: null })).not.toThrow()
  const terms = { budgetNanoUsd: null, budgetTokens: 1, shortBudgets: null }
  expect(hasUsdBudget(terms)).toBe(false)
  expect(hasUsdBudget({ ...terms, budgetNanoUsd: 0 })).toBe(true)
  expect(hasUsdBudget({ ...terms, shortBudgets: { week: { nanoUsd: null, tokens: 1 } } })).toBe(false)
  expect(hasUsdBudget({ ...terms, shortBudgets: { week: { nanoUsd: 1, tokens: null } } })).toBe(true)
})
