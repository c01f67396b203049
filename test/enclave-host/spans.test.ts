// Goal: spans of a gateway VM are fetched as they come, within a rate bound whatever the VM says, and only with an
// exporter.

import { expect, test } from 'bun:test'
import { Fault } from '../../src/base/fault.ts'
import type { EnclaveSpans } from '../../src/contract/vm/enclave-responses.ts'
import type { TraceSpan } from '../../src/contract/vm/span.ts'
import { fakeSession, fakeStatus } from '../rigs/enclave/fake-gateway-vm.ts'
import { requestSpan } from '../rigs/gateway/trace-spans.ts'

function fetched(answer: (from: number) => EnclaveSpans | Promise<EnclaveSpans>, status = () => fakeStatus) {
  const offered: TraceSpan[] = []
  const asked: number[] = []
  let lost = 0
  const spans = async (_vmId: string, { from }: { from: number }) => {
    asked.push(from)
    return answer(from)
  }
  const taker = {
    offer: (span: TraceSpan) => void offered.push(span),
    noteLost: (count: number) => {
      lost += count
    },
  }
  return { ...fakeSession({ spans, status }, { spans: taker }), offered, asked, lost: () => lost }
}

const piece = (first: number, count: number): EnclaveSpans => ({
  first,
  spans: Array.from({ length: count }, (_, at) => requestSpan({ inputTokens: first + at })),
})

test('goal: one that has some is asked until it has none, then once a second; gaps are losses, but for the first', async () => {
  const answers = [piece(50, 64), piece(114, 3), piece(117, 0), piece(117, 0), piece(120, 2)]
  const { session, clock, offered, asked, lost } = fetched(from => answers.shift() ?? piece(from, 0))
  session.start()
  await clock.elapse(1_500)
  expect(asked).toEqual([0, 114, 117])
  await clock.elapse(1_000)
  expect(asked).toEqual([0, 114, 117, 117])
  await clock.elapse(1_100)
  expect([asked.slice(4), offered.length, lost()]).toEqual([[117, 122], 69, 3])
  await session.stop()
})

test('goal: a VM with spans without end gives about a thousand a second, and its numbers stay numbers', async () => {
  const { session, clock, offered, asked } = fetched(() => piece(Number.MAX_SAFE_INTEGER, 64))
  session.start()
  await clock.elapse(21_000)
  expect(offered.length).toBeGreaterThan(15_000)
  expect(offered.length).toBeLessThanOrEqual(21 * 1_024 + 64)
  expect(asked.at(-1)).toBe(Number.MAX_SAFE_INTEGER)
  await session.stop()
})

test('goal: one that refuses, as an older image does, is asked every ten seconds, with a line of the log each time', async () => {
  const { session, clock, asked, logged } = fetched(() => Promise.reject(new Fault('channel.refused', 'bad_request')))
  session.start()
  await clock.elapse(60_000)
  expect(asked.length).toBe(6)
  expect(logged.filter(line => line.includes('"what":"spans"')).length).toBe(6)
  await session.stop()
})

test('goal: another process in the VM counts anew, and nothing is asked before it has its workload', async () => {
  let status = { ...fakeStatus, workload: null as string | null }
  let answer = piece(0, 0)
  const { session, clock, asked, offered, lost } = fetched(
    from => (from === 0 && answer.first === 0 ? answer : piece(from, 0)),
    () => status,
  )
  session.start()
  await clock.elapse(20_000)
  expect(asked).toEqual([])
  status = fakeStatus
  answer = piece(0, 5)
  await clock.elapse(20_000)
  expect([asked[0], asked.at(-1), offered.length]).toEqual([0, 5, 5])
  status = { ...fakeStatus, receiptKey: 'B'.repeat(43) }
  await clock.elapse(20_000)
  expect([asked.at(-1), offered.length, lost()]).toEqual([5, 10, 0])
  await session.stop()
})

test('goal: what a VM has at the end is fetched still, and one that does not answer then is let go of after a second', async () => {
  const told = fetched(from => (from === 0 ? piece(0, 3) : piece(from, 0)))
  told.session.start()
  await told.clock.elapse(500)
  expect(told.asked).toEqual([])
  await told.session.stop()
  expect([told.asked, told.offered.length]).toEqual([[0, 3], 3])

  const endless = fetched(from => piece(from, 64))
  endless.session.start()
  await endless.clock.elapse(500)
  await endless.session.stop()
  expect(endless.asked.length).toBe(16)

  const silent = fetched(() => Promise.withResolvers<never>().promise)
  silent.session.start()
  await silent.clock.elapse(5_000)
  let isStopped = false
  const stopped = silent.session.stop().then(() => {
    isStopped = true
  })
  await silent.clock.elapse(900)
  expect(isStopped).toBe(false)
  await silent.clock.elapse(200)
  await stopped
  expect(silent.asked.length).toBe(2)
})

test('goal: where nobody wants spans none are asked for', async () => {
  let asked = 0
  const spans = async () => {
    asked += 1
    return piece(0, 0)
  }
  const { session, clock } = fakeSession({ spans })
  session.start()
  await clock.elapse(60_000)
  expect([session.status?.state, asked]).toEqual(['ready', 0])
  await session.stop()
})
