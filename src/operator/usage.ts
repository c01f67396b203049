// Usage of the inference gateway in the admin interface. Effects: reads the store, in pieces with pauses: requests are answered in between.

import { Elysia } from 'elysia'
import { type Clock, iso } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { AdminUsage, AdminUsageQuery, usageCsv, usageDaysMax, usageRowsMax } from '../contract/admin-usage.ts'
import { nanoUsdText } from '../contract/usd.ts'
import {
  sumUsagePiece,
  USAGE_GROUPS,
  type UsageGroup,
  type UsageGroupRow,
  usagePieceEnd,
} from '../store/directory/usage-export.query.ts'
import type { AdminDeps } from './deps.ts'
import { bySlug, organizationBySlug } from './organizations.ts'

type UsageDeps = { readonly store: Pick<AdminDeps['store'], 'directory'>; readonly clock: Pick<Clock, 'sleep'> }

const pieceRows = 5_000
const pieceGapMs = 2
const dayMs = 86_400_000

export function usageRoutes(deps: UsageDeps) {
  const asked = { params: bySlug, query: AdminUsageQuery }
  return new Elysia({ normalize: false })
    .get('/organizations/:slug/usage', ({ params, query }) => exportUsage(deps, params.slug, query), {
      ...asked,
      response: AdminUsage,
    })
    .get(
      '/organizations/:slug/usage.csv',
      async ({ params, query }) => {
        const text = usageCsv(await exportUsage(deps, params.slug, query))
        return new Response(text, { headers: { 'content-type': 'text/csv; charset=utf-8' } })
      },
      asked,
    )
}

type Asked = { readonly from: string; readonly to: string; readonly by?: string }
type Sums = { requests: number; prompt: bigint; completion: bigint; cost: bigint }

/** Faults: not_found, invalid_request (days, groups, or more rows than one response has). */
export async function exportUsage({ store, clock }: UsageDeps, slug: string, asked: Asked): Promise<AdminUsage> {
  const { db } = store.directory
  const { id: organizationId } = organizationBySlug(db, slug)
  const { from, to } = asked
  const endMs = dayStartMs('to', to) + dayMs
  const by = groupsOf(asked.by ?? USAGE_GROUPS.join(','))
  const groups = new Map<string, { readonly row: UsageGroupRow; readonly sums: Sums }>()
  const total: Sums = { requests: 0, prompt: 0n, completion: 0n, cost: 0n }
  let startMs = dayStartMs('from', from)
  if (startMs >= endMs) throw new Fault('invalid_request', `${to} is before ${from}`, { param: 'to' })
  if (endMs - startMs > usageDaysMax * dayMs) {
    throw new Fault('invalid_request', `ask for at most ${usageDaysMax} days at a time`, { param: 'to' })
  }
  while (startMs < endMs) {
    const pieceEndMs = usagePieceEnd(db, { organizationId, startMs, endMs }, pieceRows)
    for (const row of sumUsagePiece(db, { organizationId, startMs, endMs: pieceEndMs }, by)) {
      const name = JSON.stringify([row.day, row.key, row.model])
      const group = groups.get(name) ?? { row, sums: { requests: 0, prompt: 0n, completion: 0n, cost: 0n } }
      groups.set(name, group)
      for (const sums of [group.sums, total]) add(sums, row)
    }
    if (groups.size > usageRowsMax) {
      const message = `these are more than ${usageRowsMax} rows; ask for fewer days, or by less`
      throw new Fault('invalid_request', message, { param: 'by' })
    }
    startMs = pieceEndMs
    await clock.sleep(pieceGapMs)
  }
  const rows = [...groups].sort(([one], [other]) => (one < other ? -1 : 1)).map(([, group]) => group)
  return {
    organization: slug,
    from,
    to,
    by: USAGE_GROUPS.filter(group => by.has(group)),
    rows: rows.map(({ row, sums }) => ({ day: row.day, key: row.key, model: row.model, ...sumsView(sums) })),
    total: sumsView(total),
  }
}

function add(sums: Sums, row: UsageGroupRow): void {
  sums.requests += row.requests
  sums.prompt += BigInt(row.promptTokens)
  sums.completion += BigInt(row.completionTokens)
  sums.cost += BigInt(row.costNanoUsd)
}

function sumsView({ requests, prompt, completion, cost }: Sums): AdminUsage['total'] {
  return {
    requests,
    prompt_tokens: Number(prompt),
    completion_tokens: Number(completion),
    cost_usd: nanoUsdText(cost),
  }
}

/** Fault invalid_request. */
function groupsOf(text: string): ReadonlySet<UsageGroup> {
  const names = text === '' ? [] : text.split(',')
  return new Set(
    names.map(name => {
      const group = USAGE_GROUPS.find(one => one === name)
      if (group !== undefined) return group
      const message = `${JSON.stringify(name)} is none of ${USAGE_GROUPS.join(', ')}`
      throw new Fault('invalid_request', message, { param: 'by' })
    }),
  )
}

/** Fault invalid_request. */
function dayStartMs(param: string, day: string): number {
  const atMs = /^\d{4}-\d{2}-\d{2}$/.test(day) ? Date.parse(`${day}T00:00:00Z`) : Number.NaN
  // The 30th of February is parsed as a day in March.
  if (!Number.isNaN(atMs) && iso(atMs).slice(0, 10) === day) return atMs
  throw new Fault('invalid_request', `${JSON.stringify(day)} is no day like 2026-11-30`, { param })
}
