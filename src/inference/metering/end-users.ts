// Budgets of the end users of a key, for a day, a week or a month (UTC): what each has spent and reserved. State in
// memory, lost at a restart. No I/O.
//
// End users are counted by a digest of their name, and neither name nor digest leaves this process. A client can invent
// names, so a key counts a bounded number of them. Further names share one budget, and so do requests without a name.

import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { FairSlots } from '../../base/work/fair-slots.ts'
import type { EndUserBudget } from '../../contract/key-rules.ts'
import { monthOf, shortPeriodOf } from '../../store/directory/usage/periods.ts'
import type { Caller } from '../types.ts'

/** Amounts in nano-dollars. `leave` frees the place of a name; null for a shared entry. */
type Entry = { readonly name: string; spent: number; reserved: number; readonly leave: (() => void) | null }

type KeyUsers = { readonly budget: EndUserBudget; period: string; readonly entries: Map<string, Entry> }

export type UserReservation =
  /** `release` ends the reservation and adds the real cost; further calls have no effect. */
  | { readonly ok: true; readonly release: (costNanoUsd: number) => void }
  | { readonly ok: false; readonly whose: string; readonly period: string; readonly mayFitSoon: boolean }

/**
 * Names that are counted at a time, of all keys together.
 * Share: a quarter for one organization, `usersMax` for one key.
 */
export const endUsersMax = 65_536
/** An organization may hold 1 / `organizationParts` of them. */
const organizationParts = 4
/** Names of the shared entries; no digest has their length. */
const SHARED = { unnamed: 'none', further: 'more' } as const

export class EndUsers {
  readonly #clock: Pick<Clock, 'nowMs'>
  readonly #places: FairSlots
  readonly #byKey = new Map<string, KeyUsers>()
  #day = ''

  constructor(clock: Pick<Clock, 'nowMs'>, countMax = endUsersMax) {
    this.#clock = clock
    this.#places = new FairSlots(countMax)
  }

  /** Number of names that are counted now. */
  get count(): number {
    return this.#places.count
  }

  /** Reserves an amount for the end user. Throws Fault invalid_request if the key needs one and none is given. */
  reserve(caller: Caller, endUser: string | null, nanoUsd: number): UserReservation {
    const budget = caller.budgets.endUser
    if (budget === undefined) return { ok: true, release: () => {} }
    if (endUser === null && budget.isRequired) throw unnamed()
    const { users, period } = this.#usersOf(caller, budget)
    const { entry, whose } = this.#entryOf(users, caller, endUser)
    const { spent, reserved } = entry
    if (spent + reserved + nanoUsd > budget.nanoUsd) {
      leaveUnused(users, entry)
      return { ok: false, whose, period, mayFitSoon: spent + nanoUsd <= budget.nanoUsd }
    }
    entry.reserved += nanoUsd
    let isOpen = true
    const release = (costNanoUsd: number) => {
      if (!isOpen) return
      isOpen = false
      entry.reserved -= nanoUsd
      entry.spent += costNanoUsd
      leaveUnused(users, entry)
    }
    return { ok: true, release }
  }

  #usersOf({ organizationId, keyPrefix }: Caller, budget: EndUserBudget) {
    const nowMs = this.#clock.nowMs()
    const day = shortPeriodOf('day', nowMs)
    // Every period ends at the end of a day.
    if (day !== this.#day) {
      for (const [name, users] of this.#byKey) {
        beginPeriod(users, periodOf(users.budget, nowMs))
        if (users.entries.size === 0) this.#byKey.delete(name)
      }
    }
    this.#day = day
    const name = `${organizationId}\n${keyPrefix}`
    const period = periodOf(budget, nowMs)
    const users: KeyUsers = { ...(this.#byKey.get(name) ?? { period, entries: new Map() }), budget }
    beginPeriod(users, period)
    this.#byKey.set(name, users)
    return { users, period }
  }

  #entryOf({ budget, entries }: KeyUsers, { organizationId }: Caller, endUser: string | null) {
    const name = endUser === null ? SHARED.unnamed : Bun.CryptoHasher.hash('sha256', endUser, 'base64url')
    const known = entries.get(name)
    if (known !== undefined) return { entry: known, whose: whoseOf(name) }
    const leave =
      endUser === null || namedIn(entries) >= budget.usersMax
        ? null
        : this.#places.take([{ name: organizationId, parts: organizationParts }])
    if (typeof leave === 'function') {
      const entry: Entry = { name, spent: 0, reserved: 0, leave }
      entries.set(name, entry)
      return { entry, whose: whoseOf(name) }
    }
    const shared = endUser === null ? name : SHARED.further
    const entry = entries.get(shared) ?? { name: shared, spent: 0, reserved: 0, leave: null }
    entries.set(shared, entry)
    return { entry, whose: whoseOf(shared) }
  }
}

/** Begins a new period, in which requests that still run are charged. */
function beginPeriod(users: KeyUsers, period: string): void {
  if (users.period === period) return
  users.period = period
  for (const [name, entry] of users.entries) {
    entry.spent = 0
    if (entry.reserved > 0) continue
    users.entries.delete(name)
    entry.leave?.()
  }
}

/** Removes a name without cost; otherwise a client could use up the entries of others. */
function leaveUnused({ entries }: KeyUsers, entry: Entry): void {
  if (entry.leave === null || entry.spent > 0 || entry.reserved > 0) return
  entry.leave()
  if (entries.get(entry.name) === entry) entries.delete(entry.name)
}

function namedIn(entries: KeyUsers['entries']): number {
  return entries.size - Object.values(SHARED).filter(name => entries.has(name)).length
}

function whoseOf(name: string): string {
  if (name === SHARED.unnamed) return 'all requests without an end user'
  return name === SHARED.further ? 'all end users above the limit of this key' : 'this end user'
}

function periodOf({ period }: EndUserBudget, nowMs: number): string {
  return period === 'month' ? monthOf(nowMs) : shortPeriodOf(period, nowMs)
}

function unnamed(): Fault {
  const message =
    'This key requires the end user: send `user` or `safety_identifier`, or in the Messages API `metadata.user_id`, with 1 to 256 characters and no control characters.'
  return new Fault('invalid_request', message, { param: 'user' })
}
