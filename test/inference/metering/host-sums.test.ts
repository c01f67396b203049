// Goal: a gateway VM gets its sums; during a takeover the new VM's sums include the old one's reservations, or are
// refused. A real store.

import { expect, test } from 'bun:test'
import { agentLineBytesMax } from '../../../src/contract/vm/agent.ts'
import { daySumsPageMax } from '../../../src/contract/vm/enclave.ts'
import type { EnclaveStatus } from '../../../src/contract/vm/enclave-responses.ts'
import { createHostSums } from '../../../src/inference/metering/host-sums.ts'
import { prepareUsageAppend } from '../../../src/store/directory/usage/usage.query.ts'
import { advanceBooks, insertGatewayVm, moveGatewayVm } from '../../../src/store/ledger/gateway-vm.query.ts'
import { fakeStatus } from '../../rigs/enclave/fake-gateway-vm.ts'
import { openLedger } from '../../rigs/gateway/keys.ts'
import { usageRow } from '../../rigs/gateway/usage-rows.ts'

test('goal: the sums of the books, with what drains elsewhere', () => {
  using ledger = openLedger()
  const { store } = ledger
  const statuses = new Map<string, EnclaveStatus>()
  const tell = createHostSums({ ...store, shares: null, statusOf: vmId => statuses.get(vmId) ?? null })
  const want = { id: 'w1', kind: 'spent', organizationId: 'o1', keyPrefix: 'k1', month: '2026-11' } as const
  const row = { instanceId: null, model: 'm', upstream: 'u', promptTokens: 10, completionTokens: 5, costNanoUsd: 7 }
  prepareUsageAppend(store.db)([
    {
      id: '1',
      atMs: Date.parse('2026-11-22T12:00Z'),
      organizationId: 'o1',
      keyPrefix: 'k1',
      ...row,
      outcome: 'completed',
      tokensSource: 'reported',
      endUser: null,
      tags: null,
      cachedTokens: 0,
    },
  ])
  const db = store.ledger.db
  for (const vmId of ['old', 'new']) insertGatewayVm(db, { vmId, hostId: store.hostId, shape: 's', nowMs: 1 })
  moveGatewayVm(db, { vmId: 'old', from: ['starting'], to: 'serving', nowMs: 2 })
  advanceBooks(db, { vmId: 'old', from: 0, to: 1, digest: 'd' })
  const booked = { requests: 1, promptTokens: 10, completionTokens: 5, costNanoUsd: 7 }
  expect(tell.spent('old', want)).toEqual({ key: booked, organization: booked, booked: 1, isShared: false })

  moveGatewayVm(db, { vmId: 'old', from: ['serving'], to: 'draining', nowMs: 3 })
  moveGatewayVm(db, { vmId: 'new', from: ['starting'], to: 'serving', nowMs: 3 })
  // It has not said yet that it drains: a request with a budget might still be let in.
  expect(() => tell.spent('new', want)).toThrow('has not reported')
  statuses.set('old', { ...fakeStatus, state: 'ready' })
  expect(() => tell.spent('new', want)).toThrow('has not reported')
  statuses.set('old', { ...fakeStatus, state: 'draining', reserved: null })
  expect(() => tell.spent('new', want)).toThrow('has not reported')
  const reserved = [
    { organizationId: 'o1', keyPrefix: 'k1', tokens: 100, nanoUsd: 1_000 },
    { organizationId: 'o1', keyPrefix: 'k2', tokens: 10, nanoUsd: 100 },
    { organizationId: 'o2', keyPrefix: 'k3', tokens: 1, nanoUsd: 10 },
  ]
  statuses.set('old', { ...fakeStatus, state: 'draining', reserved })
  expect(tell.spent('new', want)).toEqual({
    key: { ...booked, completionTokens: 105, costNanoUsd: 1_007 },
    organization: { ...booked, completionTokens: 115, costNanoUsd: 1_107 },
    booked: 0,
    isShared: true,
  })
  moveGatewayVm(db, { vmId: 'old', from: ['draining'], to: 'gone', nowMs: 4 })
  expect(tell.spent('new', want)).toEqual({ key: booked, organization: booked, booked: 0, isShared: false })
})

test('goal: pages of days with how many rows of the VM are in them, each within a line of the channel', () => {
  using ledger = openLedger()
  const { store } = ledger
  const tell = createHostSums({ ...store, shares: null, statusOf: () => null })
  // Each character of it takes six in JSON.
  const longest = (index: number) => `${index}`.padEnd(256, '\u0001')
  prepareUsageAppend(store.db)(
    Array.from({ length: daySumsPageMax + 1 }, (_, index) => usageRow({ id: `${index}`, model: longest(index) })),
  )
  insertGatewayVm(store.ledger.db, { vmId: 'v1', hostId: store.hostId, shape: 's', nowMs: 1 })
  advanceBooks(store.ledger.db, { vmId: 'v1', from: 0, to: 65, digest: 'd' })
  const scope = { organizationId: 'o1', keyPrefix: 'k1', from: '2026-11-01', to: '2026-11-30' }
  const page = tell.days('v1', { id: 'w1', kind: 'days', ...scope, after: null })
  expect([page.rows.length, page.isLast, page.booked]).toEqual([daySumsPageMax, false, 65])
  const line = JSON.stringify({ id: 'x'.repeat(64), op: 'days_for', want: 'w'.repeat(64), sums: page })
  expect(line.length).toBeLessThan(agentLineBytesMax)
  expect(line.length).toBeGreaterThan(agentLineBytesMax / 2)
  const { day = '', model = '' } = page.rows.at(-1) ?? {}
  const rest = tell.days('v1', { id: 'w2', kind: 'days', ...scope, after: { day, model } })
  expect([rest.rows.length, rest.isLast]).toEqual([1, true])
})
