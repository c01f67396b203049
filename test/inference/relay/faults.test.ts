// Goal: a relay's error to a client equals the owner's.

import { expect, test } from 'bun:test'
import { Fault } from '../../../src/base/fault.ts'
import { BusyFault, REASONS, UpstreamFault, type UpstreamReason } from '../../../src/inference/failure.ts'
import { errorResponse } from '../../../src/inference/gateway/responses.ts'
import { BudgetFault } from '../../../src/inference/metering/budgets.ts'
import { faultOf, wireFaultOf } from '../../../src/inference/relay/faults.ts'

const FAULTS = [
  new Fault('unauthenticated', 'The API key is missing or invalid.'),
  new Fault('invalid_request', 'No.', { param: 'messages' }),
  new Fault('metering_unavailable', 'Not now.'),
  new Fault('fleet.unavailable', 'Perhaps elsewhere.'),
  new Fault('rate_limited', 'Limit reached.'),
  new Fault('host.unsupported', 'never told'),
  new BusyFault('Too many wait.', 7),
  new BudgetFault('No room.', { mayFitSoon: true }),
  new BudgetFault('No room.', { mayFitSoon: false }),
  ...(Object.keys(REASONS) as UpstreamReason[]).map(reason => new UpstreamFault(reason)),
  new TypeError('never told'),
]

test.each(FAULTS)('goal: %p', async fault => {
  const there = faultOf(JSON.parse(JSON.stringify(wireFaultOf(fault))))
  const [own, relayed] = [errorResponse(fault, {}), errorResponse(there, {})]
  expect([relayed.status, [...relayed.headers], await relayed.text()]).toEqual([
    own.status,
    [...own.headers],
    await own.text(),
  ])
  if (fault instanceof UpstreamFault) expect((there as UpstreamFault).row).toBe(fault.row)
})
