// A gateway VM made of a few functions, to test a session's reactions: no channel, a manual clock. No effects.

import { createManualClock, type ManualClock } from '../../../scripts/rigs/clock.ts'
import { createLogger } from '../../../src/base/log.ts'
import type { EnclaveNext, EnclaveReport, EnclaveStatus } from '../../../src/contract/vm/enclave-responses.ts'
import { GatewayVmSession, type SessionDeps } from '../../../src/enclave-host/session.ts'
import type { GatewayVmEngine } from '../../../src/enclave-host/types.ts'

export const fakeStatus: EnclaveStatus = {
  state: 'ready',
  workload: 'ab'.repeat(32),
  revision: 1,
  running: 0,
  usageWaiting: 0,
  problem: null,
  receiptKey: 'A'.repeat(43),
}

export const emptyReport: EnclaveReport = { metrics: '', metricsChars: 0, log: [] }

/** Its answers. By default it behaves, and has no news. */
export type FakeVm = Partial<Omit<GatewayVmEngine, 'next' | 'report'>> & {
  readonly next?: (asked: Parameters<GatewayVmEngine['next']>[1]) => EnclaveNext | Promise<EnclaveNext>
  readonly status?: () => EnclaveStatus
  readonly report?: (asked: Parameters<GatewayVmEngine['report']>[1]) => EnclaveReport
}

export type FakeSession = {
  readonly session: GatewayVmSession
  readonly clock: ManualClock
  readonly logged: string[]
}

export function fakeSession(
  { next, status = () => fakeStatus, report = () => emptyReport, ...vm }: FakeVm,
  changes: Partial<SessionDeps> = {},
): FakeSession {
  const clock = createManualClock()
  const logged: string[] = []
  const noNews = async ({ waitMs }: { waitMs: number }) => {
    await clock.sleep(waitMs)
    return { status: status(), wants: [], usage: null }
  }
  const engine = {
    view: () => ({ state: 'running' }),
    tell: async () => {},
    workload: async () => {},
    control: async () => 1,
    ...vm,
    next: async (_id: string, asked: Parameters<GatewayVmEngine['next']>[1]) => (next ?? noNews)(asked),
    report: async (_id: string, asked: Parameters<GatewayVmEngine['report']>[1]) => report(asked),
  } as unknown as GatewayVmEngine
  const session = new GatewayVmSession({
    vmId: 'v1',
    engine,
    clock,
    onChange: () => {},
    control: {
      current: () => ({ revision: 1, bytes: new Uint8Array(0), signature: new Uint8Array(0) }),
      raiseAbove: () => {},
    },
    addresses: { hosts: () => ({}) },
    usageLedger: { booked: () => 0, take: () => {} } as unknown as SessionDeps['usageLedger'],
    certify: () => Promise.reject(new Error('nobody asked')),
    certificatesStamp: () => '00'.repeat(32),
    spans: null,
    usageReporter: { spent: nobodyAsked, days: nobodyAsked },
    shares: null,
    log: createLogger({ level: 'info', sink: line => void logged.push(line), nowMs: clock.nowMs }),
    ...changes,
  })
  return { session, clock, logged }
}

export function nobodyAsked(): never {
  throw new Error('nobody asked')
}
