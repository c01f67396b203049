// Goal: a gateway VM's sums are exact: each row counts once, whenever the host's sums and its own rows cross.

import { expect, test } from 'bun:test'
import { createDraw } from '../../../scripts/rigs/draw.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { Fault } from '../../../src/base/fault.ts'
import { createCost } from '../../../src/inference/metering/price.ts'
import { type AskedOfHost, createMeteringVm, dollarPrices } from '../../rigs/enclave/metering-vm.ts'
import { callerOf } from '../../rigs/gateway/keys.ts'

const none = { requests: 0, promptTokens: 0, completionTokens: 0, costNanoUsd: 0 }

function createVm() {
  const vm = createMeteringVm()
  const of = (keyPrefix: string, month = '2026-11') => vm.spent.spent(callerOf({ keyPrefix }), month)
  const requests = (keyPrefix: string) => {
    const found = of(keyPrefix)
    return found === null ? null : [found.key.requests, found.organization.requests, found.organization.costNanoUsd]
  }
  const load = (keyPrefix: string) => vm.spent.load(callerOf({ keyPrefix }), '2026-11')
  return { ...vm, requests, load, of }
}

const keyOf = ({ want }: AskedOfHost) => (want.kind === 'spent' ? want.keyPrefix : '')

const codeOf = (work: Promise<void>) =>
  work.then(
    () => 'loaded',
    error => (error instanceof Fault ? error.code : error),
  )

test('goal: rows before, during and after the question count once, booked or not when the host answers', async () => {
  const vm = createVm()
  vm.record()
  vm.write()
  vm.tellBooked()
  vm.record() // not booked when it is asked
  vm.record('k2')
  expect(vm.requests('k1')).toBeNull()
  const loading = vm.load('k1')
  vm.write()
  vm.record() // after the host has looked
  const answer = vm.sums('k1')
  vm.write()
  vm.tellBooked() // gone from the spool before the answer is there
  vm.record()
  vm.asked[0]?.resolve(answer)
  await loading
  expect(vm.requests('k1')).toEqual([4, 5, 10_000])
  vm.record()
  vm.record('k2')
  vm.record('k1', { day: '2026-12-22' })
  expect(vm.requests('k1')).toEqual([5, 7, 14_000])
  expect(vm.of('k1', '2026-12')).toBeNull()
})

test('goal: random orders of recording, booking, asking and answering end with the truth', async () => {
  const draw = createDraw(7)
  for (let round = 0; round < 200; round += 1) {
    const vm = createVm()
    const truth = { k1: 0, k2: 0 }
    const answers: (() => void)[] = []
    const loads: Promise<void>[] = []
    for (let step = 0; step < 30; step += 1) {
      const key = draw(2) === 0 ? 'k1' : 'k2'
      const act = draw(5)
      if (act === 0) {
        vm.record(key)
        truth[key] += 1
      } else if (act === 1) vm.write()
      else if (act === 2) vm.tellBooked()
      else if (act === 3) {
        const before = vm.asked.length
        loads.push(vm.load(key))
        const item = vm.asked[before]
        if (item !== undefined) {
          const answer = vm.sums(keyOf(item))
          answers.push(() => item.resolve(answer))
        }
      } else {
        answers.shift()?.()
        await Bun.sleep(0)
      }
    }
    for (const answer of answers) answer()
    await Promise.all(loads)
    for (const key of ['k1', 'k2'] as const) {
      const found = vm.of(key)
      if (found === null) continue
      expect([round, found.key.requests, found.organization.requests]).toEqual([
        ...[round, truth[key]],
        truth.k1 + truth.k2,
      ])
    }
  }
})

test('goal: a key is asked for once at a time; what the host does not say is 503', async () => {
  const vm = createVm()
  expect(vm.load('k1')).toBe(vm.load('k1'))
  expect(vm.asked).toHaveLength(1)
  const first = codeOf(vm.load('k1'))
  vm.asked[0]?.reject(new Fault('attest.unavailable', 'late'))
  expect(await first).toBe('metering_unavailable')
  const wrong = codeOf(vm.load('k1'))
  vm.asked[1]?.resolve({ key: none })
  expect(await wrong).toBe('metering_unavailable')
})

const nothingUsed = { key: none, organization: none, booked: 0, isShared: false }

test('goal: as a month begins every key is asked for, eight at a time, each once', async () => {
  const vm = createVm()
  const keys = Array.from({ length: 60 }, (_, index) => `q${index}`)
  const loads = [...keys, ...keys].map(key => vm.load(key))
  for (let answered = 0; answered < keys.length; answered += 1) {
    await until('the next question', 15_000, () => vm.asked.length > answered)
    expect(vm.asked.length).toBeLessThanOrEqual(answered + 8)
    vm.asked[answered]?.resolve(nothingUsed)
  }
  await Promise.all(loads)
  expect(vm.asked.map(keyOf).sort()).toEqual(keys.toSorted())
  expect(keys.filter(key => vm.requests(key) === null)).toEqual([])
})

test('goal: a host that answers nobody keeps nobody waiting for longer than two questions', async () => {
  const vm = createVm()
  const codes = Array.from({ length: 5_000 }, (_, index) => codeOf(vm.load(`q${index}`)))
  // Queries beyond the queue fail immediately.
  expect(await codes.at(-1)).toBe('metering_unavailable')
  await vm.clock.elapse(5_000)
  for (const item of vm.asked) item.reject(new Fault('attest.unavailable', 'late'))
  expect(new Set(await Promise.all(codes))).toEqual(new Set(['metering_unavailable']))
  expect(vm.asked).toHaveLength(8)
})

test('goal: sums that another VM adds to, and sums by other prices, are asked for again', async () => {
  const vm = createVm()
  const shared = vm.load('k1')
  vm.asked[0]?.resolve(vm.sums('k1', true))
  // The host may be in a fleet: it is asked what that allows.
  await until('the second question', 15_000, () => vm.asked.length === 2)
  expect(vm.asked.map(({ want }) => want.kind === 'spent' && want.asked)).toEqual([
    undefined,
    { key: null, organization: null },
  ])
  vm.asked[1]?.resolve(vm.sums('k1', true))
  await shared
  expect(vm.requests('k1')).toEqual([0, 0, 0])
  expect(vm.spent.shares).toBeNull()
  await vm.clock.elapse(2_000)
  expect(vm.requests('k1')).toBeNull()
  const own = vm.load('k1')
  vm.asked[2]?.resolve(vm.sums('k1'))
  await own
  await vm.clock.elapse(100_000)
  expect(vm.requests('k1')).toEqual([0, 0, 0])
  vm.control.cost = createCost(dollarPrices('2'))
  expect(vm.requests('k1')).toBeNull()
})

test('goal: the sums of a day and a week hold the rows of that period alone, booked or not', async () => {
  const vm = createVm()
  vm.record('k1', { day: '2026-11-21' })
  vm.record('k1', { day: '2026-11-22' })
  for (const [at, period] of ['2026-11-22', '2026-11-16/P7D'].entries()) {
    expect(vm.of('k1', period)).toBeNull()
    const loading = vm.spent.load(callerOf({ keyPrefix: 'k1' }), period)
    expect(vm.asked[at]?.want).toMatchObject({ kind: 'spent', month: period })
    vm.asked[at]?.resolve({ key: none, organization: none, booked: 0, isShared: false })
    await loading
  }
  const counts = () => ['2026-11-22', '2026-11-16/P7D'].map(period => vm.of('k1', period)?.key.requests)
  expect(counts()).toEqual([1, 2])
  vm.record('k1', { day: '2026-11-22' })
  vm.record('k1', { day: '2026-11-23' })
  vm.record('k2', { day: '2026-11-22' })
  expect(counts()).toEqual([2, 3])
  expect(vm.of('k1', '2026-11-22')?.organization.requests).toBe(3)
})

test('goal: a VM of a shared host asks for no share of a day', async () => {
  const vm = createVm()
  const loading = vm.load('k1')
  vm.asked[0]?.resolve(vm.sums('k1', true))
  await until('it asks again', 10_000, () => vm.asked.length === 2)
  vm.asked[1]?.resolve(vm.sums('k1', true))
  await loading
  void vm.spent.load(callerOf({ keyPrefix: 'k1' }), '2026-11-22')
  expect(vm.asked[1]?.want).toHaveProperty('asked')
  expect(vm.asked[2]?.want).not.toHaveProperty('asked')
})
