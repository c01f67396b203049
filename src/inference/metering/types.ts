// Usage on its way from a request to the sums of the books, as the parts of the gateway hand it on. Types only.

import type { Want } from '../../contract/vm/enclave.ts'
import type { TokensSource, UsageOutcome } from '../../store/directory/usage/usage.table.ts'
import type { DayScope, DaySum } from '../../store/directory/usage/usage-day.query.ts'
import type { MonthSum } from '../../store/directory/usage/usage-month.query.ts'
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
}

export type WantOf<Kind extends Want['kind']> = Extract<Want, { kind: Kind }>

/**
 * Queries of a gateway VM to its host; answers are unchecked. Fault attest.unavailable: no answer, or too many open.
 */
export type HostQueries = {
  readonly ask: (want: Omit<WantOf<'spent'>, 'id'> | Omit<WantOf<'days'>, 'id'>, timeoutMs: number) => Promise<unknown>
}
