// A gateway VM's spool and sums, and the sums of the host's books: no channel, a manual clock. Rows have one prompt
// and one completion token, at a dollar a million each. State in memory.

import { createManualClock } from '../../../scripts/rigs/clock.ts'
import type { DaySums, MonthSums } from '../../../src/contract/vm/enclave.ts'
import type { UsageRow } from '../../../src/contract/vm/enclave-responses.ts'
import type { NewHostRequest } from '../../../src/enclave/host-requests.ts'
import { createCost } from '../../../src/inference/metering/price.ts'
import { SpendCache } from '../../../src/inference/metering/spend-cache.ts'
import { UsageSpool } from '../../../src/inference/metering/spool.ts'
import { callerOf } from '../gateway/keys.ts'

export type DaysWant = Extract<NewHostRequest, { kind: 'days' }>

export type AskedOfHost = {
  readonly want: NewHostRequest
  readonly resolve: (answer: unknown) => void
  readonly reject: (error: unknown) => void
}

export const dollarPrices = (usd: string) => [
  { model: 'm', prompt_usd_per_million: usd, completion_usd_per_million: usd },
]

export function createMeteringVm() {
  const clock = createManualClock()
  const control = { cost: createCost(dollarPrices('1')) }
  const asked: AskedOfHost[] = []
  const spool: UsageSpool = new UsageSpool({
    rowsMax: 100_000,
    sign: () => new Uint8Array(64),
    clock,
    onRow: row => spent.add(row),
  })
  const hostRequests = {
    ask: (want: NewHostRequest) => {
      const { promise, resolve, reject } = Promise.withResolvers<unknown>()
      asked.push({ want, resolve, reject })
      return promise
    },
  }
  const spent = new SpendCache({ hostRequests, spool, control, clock })
  const booked: UsageRow[] = []
  let count = 0
  return {
    clock,
    control,
    asked,
    spool,
    spent,
    record: (keyPrefix = 'k1', { day = '2026-11-22', model = 'm' } = {}) => {
      count += 1
      const tokens = { prompt: 1, completion: 1 }
      void spool.record({
        id: `r${count}`,
        caller: callerOf({ keyPrefix }),
        model,
        upstream: 'far',
        tokens,
        atMs: Date.parse(`${day}T12:00Z`),
        tokensSource: 'reported',
        outcome: 'completed',
      })
    },
    /** The host writes what waits. The VM learns of it with `tellBooked`. */
    write: () => {
      const batch = spool.next()
      if (batch !== null && batch.from === booked.length) booked.push(...batch.rows)
    },
    tellBooked: () => void spool.book(booked.length),
    /** As the host answers now; sums of the month 2026-11. */
    sums: (keyPrefix: string, isShared = false): MonthSums => {
      const rows = booked.filter(row => dayOf(row).startsWith('2026-11'))
      const key = sumOf(rows.filter(row => row.keyPrefix === keyPrefix))
      return { key, organization: sumOf(rows), booked: booked.length, isShared }
    },
    /** As the host answers now: a page of so many rows. */
    days: ({ keyPrefix, from, to, after }: DaysWant, limit: number): DaySums => {
      const own = booked.filter(row => row.keyPrefix === keyPrefix && dayOf(row) >= from && dayOf(row) <= to)
      const places = Map.groupBy(own, row => `${dayOf(row)} ${row.model}`)
      const behind = [...places].filter(([name]) => after === null || name > `${after.day} ${after.model}`).sort()
      const rows = behind.slice(0, limit).map(([name, all]) => {
        const [day = '', model = ''] = name.split(' ')
        return { day, model, ...sumOf(all) }
      })
      return { rows, isLast: behind.length <= limit, booked: booked.length }
    },
  }
}

export type MeteringVm = ReturnType<typeof createMeteringVm>

function dayOf({ atMs }: UsageRow): string {
  return new Date(atMs).toISOString().slice(0, 10)
}

function sumOf({ length }: readonly UsageRow[]) {
  return { requests: length, promptTokens: length, completionTokens: length, costNanoUsd: 2_000 * length }
}
