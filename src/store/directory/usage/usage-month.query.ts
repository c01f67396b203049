// Sums of usage by calendar month, day or week (UTC), of a key or of an organization, over all hosts. Effects: SQL.
// State in memory: sums of organizations for days and weeks.

import { sql } from 'drizzle-orm'
import { iso } from '../../../base/clock.ts'
import { dayMs } from '../../../base/time.ts'
import { type DirectoryDb, prepareRaw } from '../../db.ts'
import { daysOf, noUsage, periodEndMs } from './periods.ts'
import { type UsageMonth, usageMonths } from './usage-month.table.ts'

/** The sum of a key, or of an organization, in a month or a shorter period. */
export type MonthScope = {
  readonly organizationId: string
  /** Empty: all keys of the organization. */
  readonly keyPrefix: string
  /** A month as 2026-11, a day as 2026-11-30, a week by its Monday as 2026-11-30/P7D. */
  readonly month: string
}

export type MonthSum = Pick<UsageMonth, 'requests' | 'promptTokens' | 'completionTokens' | 'costNanoUsd'>

/**
 * Over all hosts. Prepared once, and raw: admission needs it for each request of a key with a budget. A sum stops at
 * the largest integer that a double holds exactly.
 */
export function prepareMonthSum(db: DirectoryDb): (scope: MonthScope) => MonthSum {
  const sum = (column: string) => `min(${Number.MAX_SAFE_INTEGER}, coalesce(sum(${column}), 0))`
  const query = prepareRaw<MonthSum>(
    db,
    `SELECT ${sum('requests')} AS requests, ${sum('prompt_tokens')} AS promptTokens,
       ${sum('completion_tokens')} AS completionTokens, ${sum('cost_nano_usd')} AS costNanoUsd
     FROM usage_months WHERE organization_id = ? AND month = ? AND key_prefix = ?`,
  )
  const ofKeyDays = prepareRaw<MonthSum>(
    db,
    `SELECT ${sum('requests')} AS requests, ${sum('prompt_tokens')} AS promptTokens,
       ${sum('completion_tokens')} AS completionTokens, ${sum('cost_nano_usd')} AS costNanoUsd
     FROM usage_days WHERE organization_id = ? AND key_prefix = ? AND day BETWEEN ? AND ?`,
  )
  const ofOrganizationDays = prepareDaysSum(db)
  return ({ organizationId, month, keyPrefix }) => {
    const days = daysOf(month)
    if (days === null) return query.get(organizationId, month, keyPrefix) ?? noUsage
    const [from, to] = [days.from, lastDayOf(month)]
    if (keyPrefix === '') return ofOrganizationDays({ organizationId, from, to })
    return ofKeyDays.get(organizationId, keyPrefix, from, to) ?? noUsage
  }
}

const thisHost = "(SELECT value FROM meta WHERE name = 'host_id')"

/** SQL: `host_id` of this host's new sums. In a fleet, each start of the daemon has sums of its own. */
export const ownHost = `(${thisHost} || coalesce((SELECT generation FROM replica), ''))`

/** SQL: whether a sum is of a host, by default this one. A slash and the generation may follow the host's id. */
export function isSumOf(host: string = thisHost): string {
  return `(host_id = ${host} OR (host_id > ${host} || '/' AND host_id < ${host} || '0'))`
}

/** Days as 2026-11-30, both included. */
export type OrganizationDays = { readonly organizationId: string; readonly from: string; readonly to: string }

/** Exact as of one moment: a single statement reads all of it. */
type CachedMonthSum = MonthSum & {
  /** Newest row of `usage`; 0 if there is none. */
  readonly mark: number
  /** This host's requests in the months of the days. */
  readonly own: number
  /** Text that changes with the sums of other hosts; null if there are none. */
  readonly others: string | null
}

/** `inMonths`: how many of the new rows `own` counts. */
type Appended = CachedMonthSum & { readonly inMonths: number }

type Cached = CachedMonthSum & { readonly readMs: number }

/** How long a sum is cached that other hosts add to. */
const othersMs = 2_000
/**
 * With more new rows than this, the days are summed again.
 * No share: limits the new rows of one sum.
 */
const appendedMax = 20_000
/** No share: when full, sums are computed again. */
const cachedMax = 16_384

const maxAmount = Number.MAX_SAFE_INTEGER
const AMOUNTS = ['requests', 'promptTokens', 'completionTokens', 'costNanoUsd'] as const

const months = `usage_months WHERE organization_id = ?1 AND month IN (substr(?2, 1, 7), substr(?3, 1, 7)) AND key_prefix = ''`
const others = ['host_id', 'month', 'requests', 'prompt_tokens', 'completion_tokens', 'cost_nano_usd'].join(
  " || ' ' || ",
)
const marks = `(SELECT coalesce(max(rowid), 0) FROM usage) AS mark,
  (SELECT coalesce(sum(requests), 0) FROM ${months} AND ${isSumOf()}) AS own,
  (SELECT group_concat(${others}) FROM ${months} AND NOT ${isSumOf()}) AS others`

/** SQL: the day of a row, as usage-sums.query.ts has it. */
const dayOfRow = `coalesce(strftime('%Y-%m-%d', at_ms / 1000, 'unixepoch'), '9999-12-31')`

/**
 * The sum of an organization in a day or a week, over all hosts. An organization may have tens of thousands of rows in
 * `usage_days` for a week, and admission reads the sum for each request, so the rows are summed once. Later reads add
 * only the rows that this host has appended to `usage` since: one transaction writes a row there and its sums. Sums of
 * other hosts arrive without such rows, so `usage_months` shows their changes. A copy may bring their days later than
 * their months, so a sum with other hosts in it is also computed again after `othersMs`. A sum stops at the largest
 * integer that a double holds exactly.
 */
export function prepareDaysSum(
  db: DirectoryDb,
  nowMs: () => number = () => performance.now(),
): (scope: OrganizationDays) => MonthSum {
  const sum = (column: string) => `min(${maxAmount}, coalesce(sum(${column}), 0))`
  const ofDays = prepareRaw<CachedMonthSum>(
    db,
    `SELECT ${sum('requests')} AS requests, ${sum('prompt_tokens')} AS promptTokens,
       ${sum('completion_tokens')} AS completionTokens, ${sum('cost_nano_usd')} AS costNanoUsd, ${marks}
     FROM usage_days WHERE organization_id = ?1 AND day BETWEEN ?2 AND ?3`,
  )
  const newest = prepareRaw<{ mark: number }>(db, 'SELECT coalesce(max(rowid), 0) AS mark FROM usage')
  const isInDays = `${dayOfRow} BETWEEN ?2 AND ?3`
  // Unlike `sum`, `total` never overflows.
  const total = (column: string) => `min(${maxAmount}, total(CASE WHEN ${isInDays} THEN ${column} END))`
  const appended = prepareRaw<Appended>(
    db,
    `SELECT ${total('1')} AS requests, ${total('prompt_tokens')} AS promptTokens,
       ${total('completion_tokens')} AS completionTokens, ${total('cost_nano_usd')} AS costNanoUsd,
       count(*) AS inMonths, ${marks}
     FROM usage NOT INDEXED WHERE rowid > ?4 AND organization_id = ?1
       AND substr(${dayOfRow}, 1, 7) IN (substr(?2, 1, 7), substr(?3, 1, 7))`,
  )
  const cache = new Map<string, Cached>()
  const readAppended = ({ organizationId, from, to }: OrganizationDays, cached: Cached): Cached | null => {
    if (cached.others !== null && nowMs() >= cached.readMs + othersMs) return null
    if ((newest.get()?.mark ?? 0) > cached.mark + appendedMax) return null
    const more = appended.get(organizationId, from, to, cached.mark)
    // Without these rows the sums have changed in another way, or SQLite numbers rows from 1 again after a purge.
    if (more === null || more.own !== cached.own + more.inMonths || more.others !== cached.others) return null
    const { mark, own, others } = more
    return { ...capped(cached, more), mark, own, others, readMs: cached.readMs }
  }
  const readDays = ({ organizationId, from, to }: OrganizationDays): Cached | null => {
    const known = ofDays.get(organizationId, from, to)
    return known === null ? null : { ...known, readMs: nowMs() }
  }
  return scope => {
    const name = `${scope.from}\n${scope.to}\n${scope.organizationId}`
    const cached = cache.get(name)
    const read = (cached === undefined ? null : readAppended(scope, cached)) ?? readDays(scope)
    if (read === null) return { requests: 0, promptTokens: 0, completionTokens: 0, costNanoUsd: 0 }
    if (cached === undefined && cache.size >= cachedMax) cache.clear()
    cache.set(name, read)
    const { requests, promptTokens, completionTokens, costNanoUsd } = read
    return { requests, promptTokens, completionTokens, costNanoUsd }
  }
}

/** The sum of two sums, each at most the largest integer that a double holds exactly. */
export function capped(left: MonthSum, right: MonthSum): MonthSum {
  const [requests = 0, promptTokens = 0, completionTokens = 0, costNanoUsd = 0] = AMOUNTS.map(column =>
    Math.min(maxAmount, left[column] + right[column]),
  )
  return { requests, promptTokens, completionTokens, costNanoUsd }
}

/** Last day of a period that is no month. */
function lastDayOf(period: string): string {
  return iso(periodEndMs(period) - dayMs).slice(0, 10)
}

/** Sums of an organization in a period over all hosts, by key; with the empty key, its own. */
export type KeySums = ReadonlyMap<string, MonthSum>

/** One statement for all keys of an organization. Prepared once, and raw. */
export function prepareKeySums(db: DirectoryDb): (scope: Pick<MonthScope, 'organizationId' | 'month'>) => KeySums {
  const sum = (column: string) => `min(${Number.MAX_SAFE_INTEGER}, sum(${column}))`
  const sums = `SELECT key_prefix AS keyPrefix, ${sum('requests')} AS requests, ${sum('prompt_tokens')} AS promptTokens,
    ${sum('completion_tokens')} AS completionTokens, ${sum('cost_nano_usd')} AS costNanoUsd`
  type KeySum = MonthSum & { readonly keyPrefix: string }
  const ofMonth = prepareRaw<KeySum>(
    db,
    `${sums} FROM usage_months WHERE organization_id = ? AND month = ? GROUP BY key_prefix`,
  )
  const ofDays = prepareRaw<KeySum>(
    db,
    `${sums} FROM usage_days WHERE organization_id = ? AND day BETWEEN ? AND ? GROUP BY key_prefix`,
  )
  return ({ organizationId, month }) => {
    const days = daysOf(month)
    const rows =
      days === null ? ofMonth.all(organizationId, month) : ofDays.all(organizationId, days.from, lastDayOf(month))
    const found = new Map<string, MonthSum>(rows.map(({ keyPrefix, ...amounts }) => [keyPrefix, amounts]))
    // Months have a row for the organization.
    if (days !== null) found.set('', [...found.values()].reduce(capped, noUsage))
    return found
  }
}

/** Deletes at most `limit` sums of months before that one. Returns how many. */
export function purgeUsageMonths(db: DirectoryDb, { before, limit }: { before: string; limit: number }): number {
  const { organizationId, month, keyPrefix, hostId } = usageMonths
  return db
    .delete(usageMonths)
    .where(
      sql`(${organizationId}, ${month}, ${keyPrefix}, ${hostId}) IN (
        SELECT organization_id, month, key_prefix, host_id FROM usage_months WHERE month < ${before} LIMIT ${limit})`,
    )
    .returning({ month })
    .all().length
}
