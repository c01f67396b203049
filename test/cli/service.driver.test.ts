// Goal: a command waits for a service and a gateway that start, shows that it does, and ends with the cause if they do
// not.

import { expect, test } from 'bun:test'
import type { Run } from '../../src/cli/operator-run.ts'
import { servingGateway, startedService } from '../../src/cli/service.driver.ts'
import { gatewayWait } from '../../src/cli/service.plan.ts'
import { STATUS } from '../rigs/admin-status.ts'

const vm = (state: string, more: object = {}) => ({ vm: `vm-${state}`, state, current: true, problem: null, ...more })
const view = (gateways: object[], problem: string | null = null) => ({ placement: 'vm', problem, gateways })

/** `answers`: one after the other, the last again and again; null for no daemon. */
function scene(answers: readonly unknown[]) {
  let nowMs = 0
  let asked = 0
  const hints: string[] = []
  const clock = {
    monotonicMs: () => nowMs,
    sleep: async (ms: number) => {
      nowMs += ms
    },
  }
  const request = async () => {
    const answer = answers[Math.min(asked, answers.length - 1)]
    asked += 1
    if (answer === null) throw new Error('no daemon')
    return answer
  }
  const run = { client: () => ({ request }), hint: async (text: string) => void hints.push(text) } as unknown as Run
  return { run, clock, hints, waitedMs: () => nowMs }
}

test('goal: a service that starts is awaited with progress; one that is off or has failed is not', async () => {
  const starting = scene([...Array<null>(50).fill(null), STATUS])
  expect(
    await startedService(starting.run, { clock: starting.clock, unitState: async () => 'activating' }),
  ).not.toBeNull()
  expect(starting.hints[0]).toBe('waiting: the service starts')
  expect(starting.hints).toHaveLength(1)
  for (const state of ['inactive', 'failed']) {
    const off = scene([null])
    expect(await startedService(off.run, { clock: off.clock, unitState: async () => state })).toBeNull()
    expect(off.waitedMs()).toBe(0)
  }
  const never = scene([null])
  expect(await startedService(never.run, { clock: never.clock, unitState: async () => 'active' })).toBeNull()
  expect(never.hints.length).toBeGreaterThan(5)
})

test('goal: a gateway is awaited until the current VM serves, and its problem is named in the end', async () => {
  const good = scene([view([]), view([vm('serving', { current: false }), vm('starting')]), view([vm('serving')])])
  expect(await servingGateway(good.run, { clock: good.clock })).toMatchObject({ vm: 'vm-serving' })
  expect(good.hints).toEqual(['waiting: the gateway VM starts'])
  const bad = scene([view([vm('starting', { problem: 'no memory' })])])
  const error = await servingGateway(bad.run, { clock: bad.clock }).catch((found: Error) => found)
  expect(error).toMatchObject({ code: 'host.command_timeout', message: expect.stringContaining('no memory') })
})

test('goal: a gateway without a VM is not awaited', () => {
  for (const placement of ['host', 'off'] as const) {
    expect(gatewayWait({ placement, problem: null, gateways: [] })).toEqual({ kind: 'done', vm: null })
  }
})
