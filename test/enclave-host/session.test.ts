// Goal: usage that is not booked is seen, with since when and why, for it ends with its VM.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { Fault } from '../../src/base/fault.ts'
import { silentLogger } from '../../src/base/log.ts'
import type { EnclaveNext, UsageBatch } from '../../src/contract/vm/enclave-responses.ts'
import { GatewayVmSession, type SessionDeps } from '../../src/enclave-host/session.ts'
import { fakeSession, fakeStatus, nobodyAsked } from '../rigs/enclave/fake-gateway-vm.ts'

const receiptKey = 'k'.repeat(43)
const batch = { from: 0, rows: [], before: '', digest: '', signature: '' } as unknown as UsageBatch
const next = (usageWaiting: number): EnclaveNext => ({
  status: { state: 'ready', workload: 'w', revision: 1, running: 0, usageWaiting, receiptKey, problem: null },
  wants: [],
  usage: usageWaiting === 0 ? null : batch,
})

test('goal: rows that wait are told with since when and why, until they are booked', async () => {
  const clock = createManualClock()
  let said = next(0)
  let refusal: Fault | null = null
  const session = new GatewayVmSession({
    vmId: 'v1',
    engine: {
      view: () => ({ state: 'running' }),
      next: async () => said,
      tell: async () => {},
      report: async () => ({ metrics: '', metricsChars: 0, log: [] }),
    } as unknown as SessionDeps['engine'],
    control: {
      current: () => ({ revision: 1, bytes: new Uint8Array(0), signature: new Uint8Array(0) }),
      raiseAbove: () => {},
    },
    addresses: { hosts: () => ({}) },
    usageLedger: {
      booked: () => 0,
      take: () => {
        if (refusal !== null) throw refusal
      },
    } as unknown as SessionDeps['usageLedger'],
    certify: () => Promise.reject(new Error('nobody asked')),
    certificatesStamp: () => '00'.repeat(32),
    spans: null,
    usageReporter: { spent: nobodyAsked, days: nobodyAsked },
    shares: null,
    clock,
    log: silentLogger,
    onChange: () => {},
  })
  const seen = () => [session.usageWaitingSinceMs, session.usageProblem]
  session.start()
  await clock.elapse(1_000)
  expect(seen()).toEqual([null, null])

  said = next(3)
  await clock.elapse(1_000)
  expect(seen()).toEqual([null, null])

  refusal = new Fault('channel.refused', 'not signed')
  await clock.elapse(1_000)
  const [sinceMs] = seen()
  expect(seen()).toEqual([expect.any(Number), 'not signed'])
  await clock.elapse(60_000)
  expect(seen()).toEqual([sinceMs ?? null, 'not signed'])

  refusal = null
  await clock.elapse(2_000)
  expect(seen()).toEqual([null, null])
  await session.stop()
})

test('goal: a VM that refuses the keys of this release is booked and answered all the same, until it is replaced', async () => {
  const taken: UsageBatch[] = []
  const sums = { requests: 1, promptTokens: 2, completionTokens: 3, costNanoUsd: 4 }
  const told: unknown[] = []
  const { session, clock, logged } = fakeSession(
    {
      next: () => ({
        status: { ...fakeStatus, revision: 0, usageWaiting: 1 },
        wants: [{ id: 'w1', kind: 'spent', organizationId: 'o1', keyPrefix: 'k1', month: '2026-11' }],
        usage: batch,
      }),
      control: () => Promise.reject(new Fault('channel.refused', 'control: /prices: unexpected property')),
      tell: async (_vm, operation) => {
        if (operation.op === 'spent_for') told.push(operation)
      },
    },
    {
      usageLedger: {
        booked: () => 0,
        take: (_vm: string, batch: UsageBatch) => taken.push(batch),
      } as unknown as SessionDeps['usageLedger'],
      usageReporter: {
        spent: () => ({ key: sums, organization: sums, booked: 1, isShared: false }),
        days: () => ({ rows: [], isLast: true, booked: 1 }),
      },
    },
  )
  session.start()
  await clock.elapse(1_000)
  await session.stop()
  expect([taken.length > 0, told[0]]).toEqual([
    true,
    { op: 'spent_for', want: 'w1', sums: { key: sums, organization: sums, booked: 1, isShared: false } },
  ])
  expect(logged.join('\n')).toContain('unexpected property')
})

test('goal: a VM learns at first contact, and at each change, which certificates are the newest; one that refuses the news is served on', async () => {
  const told: unknown[] = []
  let stamp = '00'.repeat(32)
  const { session, clock, logged } = fakeSession(
    {
      next: () => ({ status: fakeStatus, wants: [], usage: null }),
      tell: async (_vm, operation) => {
        if (operation.op !== 'certificates') return
        told.push(operation)
        throw new Fault('channel.refused', 'bad_request: op')
      },
    },
    { certificatesStamp: () => stamp },
  )
  session.pushCertificates()
  session.start()
  await clock.elapse(1_000)
  stamp = '11'.repeat(32)
  session.pushCertificates()
  await clock.elapse(30_000)
  await session.stop()
  expect(told).toEqual(['00', '11'].map(byte => ({ op: 'certificates', stamp: byte.repeat(32) })))
  expect([session.status?.state, logged.join('\n')]).toEqual(['ready', expect.stringContaining('bad_request')])
})

test('goal: a VM that asks for shares of limits is answered by the fleet under its receipt key, with nothing where there is none, and its end is told', async () => {
  const told: unknown[] = []
  const fleet: unknown[] = []
  let isAway = false
  const vm = () => ({
    next: () => ({
      status: fakeStatus,
      wants: [{ id: 'w1', kind: 'shares' as const, turn: 7, asks: [] }],
      usage: null,
    }),
    tell: async (_vm: string, operation: { readonly op: string }) => {
      if (operation.op === 'shares_for') told.push(operation)
    },
  })
  const { session, clock } = fakeSession(vm(), {
    shares: {
      renew: async (receiptKey, { turn }) => {
        if (isAway) throw new Fault('fleet.unavailable', 'away')
        fleet.push([receiptKey, turn])
        return { goodMs: 5, grants: [] }
      },
      end: async receiptKey => void fleet.push(receiptKey),
    },
  })
  session.start()
  await clock.elapse(1_000)
  isAway = true
  await clock.elapse(1_000)
  await session.stop()
  await session.endShares()
  expect(fleet[0]).toEqual([fakeStatus.receiptKey, 7])
  expect(fleet.at(-1)).toBe(fakeStatus.receiptKey)
  expect([told[0], told.at(-1)]).toEqual([
    { op: 'shares_for', want: 'w1', goodMs: 5, grants: [] },
    { op: 'shares_for', want: 'w1', goodMs: null, grants: [] },
  ])
  told.length = 0
  const alone = fakeSession(vm())
  alone.session.start()
  await alone.clock.elapse(1_000)
  await alone.session.stop()
  expect(told[0]).toEqual({ op: 'shares_for', want: 'w1', goodMs: null, grants: [] })
})
