// Usage on its way from a request to the sums of the ledger, as the parts of the gateway pass it on. Types only.

import type { HostRequest } from '../../contract/vm/enclave-responses.ts'
import type { TokensSource, UsageOutcome } from '../../store/directory/usage/usage.table.ts'
import type { DayScope, DaySum } from '../../store/directory/usage/usage-day.query.ts'
import type { MonthScope, MonthSum } from '../../store/directory/usage/usage-month.query.ts'
import type { Caller, Tokens } from '../types.ts'
import type { UsageLabels } from './labels.ts'

export type UsageRecord = {
  /** The gateway's request id. Writing a record again changes nothing. */
  readonly id: string
  readonly atMs: number
  readonly caller: Spender & Pick<Caller, 'instanceId'>
  readonly model: string
  readonly upstream: string
  readonly tokens: Tokens
  readonly tokensSource: TokensSource
  readonly outcome: UsageOutcome
  /** Default: no labels. */
  readonly labels?: UsageLabels
}

/**
 * Appends to the ledger. Never throws; failures are logged and counted. In a VM the promise resolves in bounded time,
 * once the record is safe from a crash of this process.
 */
export type RecordUsage = (record: UsageRecord) => void | Promise<void>

export type MeteringCounts = {
  readonly written: number
  /** Number of records that the store refused or the full queue dropped. Each was logged. */
  readonly lost: number
  readonly waiting: number
}

/** A key and its organization: usage is summed for both. */
export type Spender = Pick<Caller, 'organizationId' | 'keyPrefix'>

/** Usage of a key and of its organization in one calendar month (UTC). */
export type MonthSpent = { readonly key: MonthSum; readonly organization: MonthSum }

/** The sums of the ledger plus the rows recorded here that the ledger lacks. `month`: such as 2026-11. */
export type SpentSource = {
  /** Returns the current sums. Null if `load` must be called first. */
  readonly spent: (spender: Spender, month: string) => MonthSpent | null
  /** Loads the sums; afterwards `spent` has them, at least for a while. Throws Fault metering_unavailable. */
  readonly load: (spender: Spender, month: string) => Promise<void>
  /**
   * Returns usage by day (UTC), then model, in pages. Faults: invalid_request (too many rows), metering_unavailable.
   */
  readonly days: (scope: DayScope) => AsyncIterable<readonly DaySum[]>
  /** Null if budgets belong only to this host; then only the sums count. */
  readonly shares: BudgetShares | null
}

export type Amounts = { readonly nanoUsd: number; readonly tokens: number }

/** In a fleet: how much of the budgets of a month this host may use. */
export type BudgetShares = {
  /** Returns the current share of this host. Null if it is unknown and `raise` must be called first. */
  readonly share: (spender: Spender, month: string) => SpenderShares | null
  /**
   * Requests more if `asked` needs more than the share has. Returns false if the budgets have no room now. Fault
   * metering_unavailable if their room is unknown.
   */
  readonly raise: (spender: Spender, month: string, asked: () => ShareDemands) => Promise<boolean>
  /**
   * Sets the source of reservations, by key, or by organization under an empty key; counted in every month. Null if
   * they are unknown here.
   */
  readonly follow: (reserved: ((spender: Spender) => Amounts) | null) => void
}

/**
 * Makes the gateway VM drop its share of a month's budget until it requests one again. Returns what the VM keeps in
 * addition to recorded usage. Null if that is unknown, so nothing may be taken from it. Never rejects.
 */
export type LowerInVm = (scope: MonthScope) => Promise<Amounts | null>

/** Budget shares of a host. */
export type HostBudgetShares = BudgetShares & {
  /** Called when the gateway runs in VMs: `lower` calls the serving one. */
  readonly followVm: (lower: LowerInVm) => void
}

/** `spent`: by this host. `allowed`: spent and reserved together. */
export type Share = { readonly spent: MonthSum; readonly allowed: Amounts }
export type SpenderShares = { readonly key: Share; readonly organization: Share }

/**
 * Amounts in addition to the spent ones: reservations plus the request that must fit (`need`), or plus all waiting
 * requests (`want`).
 */
export type ShareDemand = { readonly need: Amounts; readonly want: Amounts }
/** Null means that there is no such budget. */
export type ShareDemands = { readonly key: ShareDemand | null; readonly organization: ShareDemand | null }

export type HostRequestOf<Kind extends HostRequest['kind']> = Extract<HostRequest, { kind: Kind }>

/**
 * Queries of a gateway VM to its host. Answers are unchecked. Throws Fault attest.unavailable if there is no answer, or
 * too many queries are open.
 */
export type HostQueries = {
  readonly ask: (
    want: Omit<HostRequestOf<'spent'>, 'id'> | Omit<HostRequestOf<'days'>, 'id'>,
    timeoutMs: number,
  ) => Promise<unknown>
}
