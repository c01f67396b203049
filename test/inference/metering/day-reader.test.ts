// Goal: a gateway VM reports a key's usage by day and model exactly, however the host's pages and its own rows cross,
// in bounded memory.

import { expect, test } from 'bun:test'
import { createDraw } from '../../../scripts/rigs/draw.ts'
import { allOf, failure, until } from '../../../scripts/rigs/until.ts'
import { RecentRows } from '../../../src/inference/metering/recent-rows.ts'
import { type AskedOfHost, createMeteringVm, type DaysWant, type MeteringVm } from '../../rigs/enclave/metering-vm.ts'
import { usageSum } from '../../rigs/gateway/usage-rows.ts'

const scope = { organizationId: 'o1', keyPrefix: 'k1', from: '2026-11-21', to: '2026-11-23' }
const pageRows = 2

const wantOf = (asked: AskedOfHost) => asked.want as DaysWant

/** The host answers what is open, with its books as they are now. */
function answer(vm: MeteringVm, from: number): number {
  for (const asked of vm.asked.slice(from)) asked.resolve(vm.days(wantOf(asked), pageRows))
  return vm.asked.length
}

test('goal: random orders of recording, booking and answering pages end with the truth', async () => {
  const draw = createDraw(3)
  const days = ['2026-11-20', '2026-11-21', '2026-11-22', '2026-11-23', '2026-11-24']
  for (let round = 0; round < 100; round += 1) {
    const vm = createMeteringVm()
    const recorded: string[] = []
    const record = () => {
      const [key, day, model] = [`k${1 + draw(2)}`, days[draw(5)] ?? '', `m${draw(3)}`]
      vm.record(key, { day, model })
      if (key === 'k1' && day >= scope.from && day <= scope.to) recorded.push(`${day} ${model}`)
    }
    for (let step = draw(30); step > 0; step -= 1) [record, vm.write, vm.tellBooked][draw(3)]?.()
    const reading = allOf(vm.spent.days(scope))
    let isRead = false
    let answered = 0
    // Rows recorded during the reading may or may not be in the sums, so this test only books them.
    const ended = reading.then(() => {
      isRead = true
    })
    while (!isRead) {
      if (draw(2) === 0) vm.write()
      const before = vm.asked.slice(answered).map(query => ({ query, page: vm.days(wantOf(query), pageRows) }))
      answered += before.length
      if (draw(2) === 0) vm.write()
      if (draw(2) === 0) vm.tellBooked()
      for (const { query, page } of before) query.resolve(page)
      await Bun.sleep(0)
    }
    await ended
    const counts = Object.fromEntries([...Map.groupBy(recorded, place => place)].map(([k, all]) => [k, all.length]))
    const found = (await reading).map(({ day, model, requests }) => [`${day} ${model}`, requests])
    expect([round, Object.fromEntries(found)]).toEqual([round, counts])
    expect(found).toHaveLength(Object.keys(counts).length)
  }
})

test('goal: the host is asked for a page at a time, whoever reads, and the want has what the wire allows', async () => {
  const vm = createMeteringVm()
  for (const model of ['a', 'b', 'c', 'd', 'e']) vm.record('k1', { model })
  vm.write()
  vm.tellBooked()
  const readings = Array.from({ length: 10 }, () =>
    allOf(vm.spent.days({ ...scope, id: 'no field of a want' } as never)),
  )
  let answered = 0
  for (let page = 0; page < 30; page += 1) {
    await until('the next page is asked for', 15_000, () => vm.asked.length > answered)
    expect(vm.asked).toHaveLength(answered + 1)
    answered = answer(vm, answered)
  }
  for (const reading of readings) expect((await reading).map(sum => sum.model)).toEqual(['a', 'b', 'c', 'd', 'e'])
  expect(wantOf(vm.asked[0] as AskedOfHost)).toEqual({ kind: 'days', ...scope, after: null })
  expect(wantOf(vm.asked.at(-1) as AskedOfHost).after).toEqual({ day: '2026-11-22', model: 'd' })
})

test('goal: an organization that reads much keeps no other one waiting, and grows nothing', async () => {
  const vm = createMeteringVm()
  const endless = { rows: [{ ...usageSum(1), day: '2026-11-22', model: 'm' }], isLast: false, booked: 0 }
  const many = Array.from({ length: 80 }, () => failure(allOf(vm.spent.days(scope))))
  const other = allOf(vm.spent.days({ ...scope, organizationId: 'o2' }))
  let [answered, pagesOfOther] = [0, 0]
  while (pagesOfOther < 3) {
    await until('the next page is asked for', 15_000, () => vm.asked.length > answered)
    const [asked] = vm.asked.slice(answered)
    answered += 1
    const isOther = asked !== undefined && wantOf(asked).organizationId === 'o2'
    pagesOfOther += isOther ? 1 : 0
    asked?.resolve({ ...endless, isLast: isOther && pagesOfOther === 3 })
  }
  expect([(await other).length, answered]).toEqual([3, 6])
  // Excess readings fail immediately, the others when the time of a reading is over.
  expect((await many[79])?.code).toBe('metering_unavailable')
  await vm.clock.elapse(10_000)
  vm.asked[answered]?.reject(new Error('late'))
  expect(new Set((await Promise.all(many)).map(error => error.code))).toEqual(new Set(['metering_unavailable']))
  expect(vm.asked).toHaveLength(answered + 1)
})

test('goal: a host that answers nonsense, never ends or says nothing costs a refusal and holds nobody up for long', async () => {
  const vm = createMeteringVm()
  const nonsense = failure(allOf(vm.spent.days(scope)))
  await until('it is asked', 15_000, () => vm.asked.length === 1)
  vm.asked[0]?.resolve({ rows: [{ day: '2026-11-22' }], isLast: true, booked: 0 })
  expect((await nonsense).code).toBe('metering_unavailable')
  const many = Array.from({ length: 400 }, () => failure(allOf(vm.spent.days(scope))))
  expect((await many[399])?.code).toBe('metering_unavailable')
  await vm.clock.elapse(10_000)
  vm.asked[1]?.reject(new Error('late'))
  expect(new Set((await Promise.all(many)).map(error => error.code))).toEqual(new Set(['metering_unavailable']))
  expect(vm.asked).toHaveLength(2)
})

test('goal: rows that no open question needs are forgotten, also while questions never cease', () => {
  const rows: string[] = []
  let booked = 0
  const recent = new RecentRows({
    get booked() {
      return booked
    },
    unbooked: () => rows.slice(booked) as never,
  })
  let open = recent.begin()
  for (let at = 0; at < 10_000; at += 1) {
    rows.push(`${at}`)
    recent.add(`${at}` as never)
    if (at % 10 !== 0) continue
    const next = recent.begin()
    expect(open.rowsAfter(booked) as unknown).toEqual(rows.slice(booked))
    booked = at
    open.end()
    open = next
  }
  expect(open.rowsAfter(0).length).toBeLessThan(40)
  open.end()
  recent.add('nobody asks' as never)
  expect(open.rowsAfter(0)).toEqual([])
})
