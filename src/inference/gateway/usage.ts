// GET /v1/usage: usage of the key and its organization in the current month (UTC), or of the key by model and day as
// JSON or CSV. Effects: through its dependencies.

import { present } from '../../base/assert.ts'
import type { Clock } from '../../base/clock.ts'
import { iso } from '../../base/clock.ts'
import type { GatewayUsage, GatewayUsageRows } from '../../contract/http/inference.ts'
import { USAGE_GROUPS } from '../../contract/http/usage-groups.ts'
import { UsageTable, usageAmountsOf, usageCsv, usageSumsView } from '../../contract/http/usage-rows.ts'
import { dayOf, monthEndMs, monthOf } from '../../store/directory/usage/periods.ts'
import { NO_TOKENS } from '../metering/account.ts'
import { withSpent } from '../metering/month-sums.ts'
import type { MonthSpent, SpentSource } from '../metering/types.ts'
import { readUsageRequest, type UsageRowsRequest } from '../metering/usage-request.ts'
import type { Admit, Authenticate, Caller } from '../types.ts'
import { commonHeaders, jsonResponse, type ResponseHeaders, refusalResponse } from './responses.ts'

export type UsageDeps = {
  readonly authenticate: Authenticate
  readonly admit: Admit
  readonly spent: SpentSource
  readonly clock: Pick<Clock, 'nowMs'>
}

/** Handles GET /v1/usage. May throw Faults: unauthenticated, invalid_request, metering_unavailable. */
export function createUsageHandler(deps: UsageDeps): (request: Request, of: { id: string }) => Promise<Response> {
  return async (request, { id }) => {
    const caller = deps.authenticate(request.headers)
    const admission = deps.admit(caller, 0)
    if (!admission.ok) return refusalResponse(admission.refusal, commonHeaders(id))
    const headers = { ...commonHeaders(id), ...admission.ticket.headers }
    const nowMs = deps.clock.nowMs()
    try {
      const asked = readUsageRequest(request, dayOf(nowMs))
      if (asked !== null) return await rowsResponse(deps.spent, caller, asked, headers)
      const month = monthOf(nowMs)
      const asSpent = { spender: caller, periods: () => [month] }
      const view = await withSpent(deps.spent, asSpent, ([sums]) =>
        usageView(caller, month, present(sums, 'there are sums of each period').spent),
      )
      return jsonResponse(view, 200, headers)
    } finally {
      admission.ticket.settle(NO_TOKENS)
    }
  }
}

/**
 * A month of 64 models; a response of this many takes a few milliseconds.
 * No share: limits one response.
 */
const rowsMax = 2_000

/** Returns the rows of this key only. The operator reports the organization's other keys. */
async function rowsResponse(
  spent: SpentSource,
  { organizationId, keyPrefix }: Caller,
  { days, by, format }: UsageRowsRequest,
  headers: ResponseHeaders,
): Promise<Response> {
  const table = new UsageTable({ by, groups: USAGE_GROUPS, rowsMax })
  for await (const sums of spent.days({ organizationId, keyPrefix, from: days.from, to: days.to })) {
    for (const { day, model, ...sum } of sums) table.add({ key: keyPrefix, day, model }, usageAmountsOf(sum))
  }
  const view: GatewayUsageRows = { object: 'usage.rows', ...table.view(days) }
  if (format === 'json') return jsonResponse(view, 200, headers)
  return new Response(usageCsv(view), { headers: { ...headers, 'content-type': 'text/csv; charset=utf-8' } })
}

/** Returns the usage. An instance's key sees only its own, because others work with the organization's other keys. */
function usageView(caller: Caller, month: string, { key, organization }: MonthSpent): GatewayUsage {
  return {
    object: 'usage',
    key_made_by: caller.madeBy,
    period: { start: `${month}-01T00:00:00.000Z`, end: iso(monthEndMs(month)) },
    key: usageSumsView(usageAmountsOf(key)),
    organization: caller.instanceId === null ? usageSumsView(usageAmountsOf(organization)) : null,
  }
}
