// The budget of each end user as one text, in forms and on the command line: AMOUNT/PERIOD[,USERS][,required]. Pure.

import type { AdminGatewayKey } from './admin.ts'

export type UserBudget = NonNullable<AdminGatewayKey['user_budget']>

const FORM = /^([0-9]{1,6}(?:\.[0-9]{1,9})?)\/(day|week|month)(?:,([0-9]{1,6}))?(,required)?$/

/** An example for a person who wrote another form. */
export const userBudgetExample = '0.50/day,200,required'

/** Null for a text of another form. */
export function parseUserBudget(text: string): UserBudget | null {
  const [, usd, period, users, required] = FORM.exec(text) ?? []
  if (usd === undefined || period === undefined) return null
  return {
    ...{ usd, period: period as UserBudget['period'] },
    ...(users === undefined ? {} : { users_max: Number(users) }),
    ...(required === undefined ? {} : { required: true }),
  }
}

export function userBudgetText({ usd, period, users_max: users, required }: UserBudget): string {
  const amount = usd.replace(/(\.\d\d\d*?)0+$/, '$1')
  return `${amount}/${period}${users === undefined ? '' : `,${users}`}${required === true ? ',required' : ''}`
}
