// Usage on its way from a request to the sums of the books, as the parts of the gateway hand it on. Types only.

import type { HostRequest } from '../../contract/vm/enclave.ts'
import type { TokensSource, UsageOutcome } from '../../store/directory/usage/usage.table.ts'
import type { DayScope, DaySum } from '../../store/directory/usage/usage-day.query.ts'
import type { MonthScope, MonthSum } from '../../store/directory/usage/usage-month.query.ts'
import type { Caller, Tokens } from '../types.ts'
import type { UsageLabels } from './labels.ts'

export type UsageRecord = {
  /** The gateway's request id: writing it again changes nothing. */
  readonly id: string
  readonly atMs: number
  readonly caller: Spender & Pick<Caller, 'instanceId'>
  readonly model: string
  readonly upstream: string
  readonly tokens: Tokens
  readonly tokensSource: TokensSource
  readonly outcome: UsageOutcome
  /** Left out: none. */
  readonly labels?: UsageLabels
}

/**
 * Appends to the ledger. Never throws; failures are logged and counted. In a VM the promise resolves in bounded time,
 * once the record is safe from a crash of this process.
 */
export type RecordUsage = (record: UsageRecord) => void | Promise<void>

export type MeteringCounts = {
  readonly written: number
  /** Refused by the store, or the queue was full. Each was logged. */
  readonly lost: number
  readonly waiting: number
}

/** A key and its organization: usage is summed for both. */
export type Spender = Pick<Caller, 'organizationId' | 'keyPrefix'>

/** Usage of a key and of its organization in one calendar month (UTC). */
export type MonthSpent = { readonly key: MonthSum; readonly organization: MonthSum }

/** The sums of the books plus the rows recorded here that the books lack. `month`: as 2026-11. */
export type SpentSource = {
  /** The sums now. Null: call `load` first. */
  readonly spent: (spender: Spender, month: string) => MonthSpent | null
  /** Afterwards `spent` has the sums, at least for a while. Fault metering_unavailable. */
  readonly load: (spender: Spender, month: string) => Promise<void>
  /** By day (UTC), then model, in pages. Faults: invalid_request (too many rows), metering_unavailable. */
  readonly days: (scope: DayScope) => AsyncIterable<readonly DaySum[]>
  /** Null: budgets are this host's alone, and the sums are what counts. */
  readonly shares: BudgetShares | null
}

export type Amounts = { readonly nanoUsd: number; readonly tokens: number }

/** In a fleet: how much of the budgets of a month this host may use. */
export type BudgetShares = {
  /** Share of this host now. Null: nothing is known, call `raise` first. */
  readonly share: (spender: Spender, month: string) => SpenderShares | null
  /**
   * Asks for more, where `asked` needs more than there is. False: the budgets have no room for it now. Fault
   * metering_unavailable: nothing is known of their room.
   */
  readonly raise: (spender: Spender, month: string, asked: () => ShareDemands) => Promise<boolean>
  /** Reservations by key, or with an empty key of an organization, counted in every month. Null: nobody here knows. */
  readonly follow: (reserved: ((spender: Spender) => Amounts) | null) => void
}

/**
 * Has the gateway VM count on nothing of a budget of a month before it has asked again. Returns what it keeps beside
 * what is booked. Null: nobody knows, so nothing may be taken from it. Never rejects.
 */
export type LowerInVm = (scope: MonthScope) => Promise<Amounts | null>

/** As a host has them. */
export type HostBudgetShares = BudgetShares & {
  /** The gateway is in VMs: `lower` asks the one that serves. */
  readonly followVm: (lower: LowerInVm) => void
}

/** `spent`: of this host. `allowed`: spent and reserved together. */
export type Share = { readonly spent: MonthSum; readonly allowed: Amounts }
export type SpenderShares = { readonly key: Share; readonly organization: Share }

/** Beside what is spent: reservations, with the request that has to fit (`need`), and with all that wait (`want`). */
export type ShareDemand = { readonly need: Amounts; readonly want: Amounts }
/** Null: there is no such budget. */
export type ShareDemands = { readonly key: ShareDemand | null; readonly organization: ShareDemand | null }

export type HostRequestOf<Kind extends HostRequest['kind']> = Extract<HostRequest, { kind: Kind }>

/**
 * Queries of a gateway VM to its host; answers are unchecked. Fault attest.unavailable: no answer, or too many open.
 */
export type HostQueries = {
  readonly ask: (
    want: Omit<HostRequestOf<'spent'>, 'id'> | Omit<HostRequestOf<'days'>, 'id'>,
    timeoutMs: number,
  ) => Promise<unknown>
}
