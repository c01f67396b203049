// Goal: the status names the gateway VM that counts, and what is wrong where something is.

import { expect, test } from 'bun:test'
import type { GatewayVmControl } from '../../src/operator/deps.ts'
import { gatewaySummary } from '../../src/operator/inference.ts'

type View = ReturnType<GatewayVmControl['view']>
const gateway = (vmId: string, state: View['gatewayVms'][number]['state'], problem: string | null = null) =>
  ({
    vmId,
    state,
    problem,
    address: null,
    status: null,
    sinceMs: 0,
    isWanted: true,
    usageWaitingSinceMs: null,
    booked: 0,
    reason: null,
  }) as const
const summary = (gatewayVms: View['gatewayVms'], problem: string | null = null) =>
  gatewaySummary({
    view: () => ({ gatewayVms, problem }),
    replace: () => false,
    session: () => null,
    pushControl: async () => {},
  })

// Goal: whatever the keeper knows, one line of the status says what counts.
test.each([
  ['none, and why', [[], 'no image'], [null, null, 'no image']],
  [
    'one that serves',
    [[gateway('a', 'draining'), gateway('b', 'serving'), gateway('c', 'starting')]],
    ['b', 'serving', null],
  ],
  [
    'of those that start the newest',
    [[gateway('a', 'starting'), gateway('b', 'starting'), gateway('c', 'gone')]],
    ['b', 'starting', null],
  ],
  ['its own problem first', [[gateway('a', 'serving', 'the worker')], 'no newer one'], ['a', 'serving', 'the worker']],
  ['why there is no newer one', [[gateway('a', 'serving')], 'no newer one'], ['a', 'serving', 'no newer one']],
  ['one that drains does not count', [[gateway('a', 'draining')], 'its VM is gone'], [null, null, 'its VM is gone']],
] as const)('goal: the summary tells %s', (_, [gateways, problem = null], [vm, state, said]) => {
  expect(summary(gateways, problem)).toEqual({ placement: 'vm', vm, state, problem: said })
})

test('goal: without a VM the summary says where the gateway is', () => {
  for (const placement of ['host', 'off'] as const) {
    expect(gatewaySummary(placement)).toEqual({ placement, vm: null, state: null, problem: null })
  }
})
