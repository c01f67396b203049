// Usage of the inference gateway in the admin interface. Effects: reads the store in pieces with pauses, in which
// requests are answered.

import { Elysia } from 'elysia'
import type { Clock } from '../base/clock.ts'
import { AdminUsage, AdminUsageQuery } from '../contract/admin/usage.ts'
import { LABELLED_USAGE_GROUPS as groups, USAGE_GROUPS } from '../contract/http/usage-groups.ts'
import {
  UsageTable,
  usageAmountsOf,
  usageCsv,
  usageDaysOf,
  usageGroupsOf,
  usageRowsMax,
} from '../contract/http/usage-rows.ts'
import { gatewayKeyNames } from '../store/directory/gateway-key.query.ts'
import { sumUsagePiece, usagePieceEnd } from '../store/directory/usage/usage-export.query.ts'
import { prepareDaysOfOthers } from '../store/directory/usage/usage-hosts.query.ts'
import type { AdminDeps } from './deps.ts'
import { bySlug, organizationBySlug } from './organizations.ts'

type UsageDeps = { readonly store: Pick<AdminDeps['store'], 'directory'>; readonly clock: Pick<Clock, 'sleep'> }

const pieceRows = 5_000
const pieceGapMs = 2

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

type UsageQuery = { readonly from: string; readonly to: string; readonly by?: string }

/** Exports usage. Faults: not_found, invalid_request (days, groups, or more rows than one response may have). */
export async function exportUsage({ store, clock }: UsageDeps, slug: string, asked: UsageQuery): Promise<AdminUsage> {
  const { db } = store.directory
  const { id: organizationId } = organizationBySlug(db, slug)
  const days = usageDaysOf(asked)
  const by = usageGroupsOf(asked.by ?? USAGE_GROUPS.join(','), groups)
  const table = new UsageTable({ by, groups, rowsMax: usageRowsMax })
  for (let { startMs } = days; startMs < days.endMs; ) {
    const endMs = usagePieceEnd(db, { organizationId, startMs, endMs: days.endMs }, pieceRows)
    for (const row of sumUsagePiece(db, { organizationId, startMs, endMs }, by)) table.add(row, usageAmountsOf(row))
    startMs = endMs
    await clock.sleep(pieceGapMs)
  }
  // Rows, and with them labels, exist only on the host that recorded them; other hosts have reported sums.
  const readOthers = prepareDaysOfOthers(db)
  for (let page = readOthers({ organizationId, ...days }, null, pieceRows); page.length > 0; ) {
    for (const { keyPrefix: key, day, model, ...sums } of page) {
      table.add({ key, day, model, user: null, tags: null }, usageAmountsOf(sums))
    }
    await clock.sleep(pieceGapMs)
    page = readOthers({ organizationId, ...days }, page.at(-1) ?? null, pieceRows)
  }
  return { organization: slug, key_names: gatewayKeyNames(db, organizationId), ...table.view(days) }
}
