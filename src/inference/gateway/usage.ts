// GET /v1/usage of the gateway: what the key, and its organization, have used in the running month (UTC). Effects: through what it is given.

import type { Clock } from '../../base/clock.ts'
import { iso } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { GatewayUsage } from '../../contract/inference.ts'
import { nanoUsdText } from '../../contract/usd.ts'
import { type MonthSum, monthEndMs, monthOf } from '../../store/directory/usage-month.query.ts'
import type { Admit, Authenticate, Caller, MonthSpent, SpentSource } from '../types.ts'
import { NO_TOKENS } from './accounting.ts'
import { commonHeaders, jsonResponse, refusalResponse } from './responses.ts'

export type UsageDeps = {
  readonly authenticate: Authenticate
  readonly admit: Admit
  readonly spent: SpentSource
  readonly clock: Pick<Clock, 'nowMs'>
}

/** May throw Faults: unauthenticated, metering_unavailable. */
export function createUsageHandler(deps: UsageDeps): (request: Request, of: { id: string }) => Promise<Response> {
  return async (request, { id }) => {
    const caller = deps.authenticate(request.headers)
    const admission = deps.admit(caller, 0)
    if (!admission.ok) return refusalResponse(admission.refusal, commonHeaders(id))
    try {
      const month = monthOf(deps.clock.nowMs())
      const body = usageView(caller, month, await spentBy(deps.spent, caller, month))
      return jsonResponse(body, 200, { ...commonHeaders(id), ...admission.ticket.headers })
    } finally {
      admission.ticket.settle(NO_TOKENS)
    }
  }
}

const attemptsMax = 3

/** As it is when this resolves. Fault metering_unavailable. */
export async function spentBy(source: SpentSource, caller: Caller, month: string): Promise<MonthSpent> {
  for (let attempt = 0; attempt < attemptsMax; attempt += 1) {
    const spent = source.spent(caller, month)
    if (spent !== null) return spent
    await source.load(caller, month)
  }
  throw new Fault('metering_unavailable', 'What has been used is not known at present; try again later.')
}

/** A key that was made for an instance is told of itself alone: others work with the other keys. */
function usageView(caller: Caller, month: string, { key, organization }: MonthSpent): GatewayUsage {
  return {
    object: 'usage',
    period: { start: `${month}-01T00:00:00.000Z`, end: iso(monthEndMs(month)) },
    key: sumView(key),
    organization: caller.instanceId === null ? sumView(organization) : null,
  }
}

function sumView({ requests, promptTokens, completionTokens, costNanoUsd }: MonthSum): GatewayUsage['key'] {
  return {
    requests,
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    cost_usd: nanoUsdText(BigInt(costNanoUsd)),
  }
}
