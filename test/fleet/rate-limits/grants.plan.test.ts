import { expect, test } from 'bun:test'
import type { Amounts } from '../../../src/contract/vm/shares.ts'
import {
  boundedBy,
  grantOf,
  isGivenBack,
  renewSharesMs,
  type ShareRow,
  targetOf,
} from '../../../src/fleet/rate-limits/grants.plan.ts'

const limits: Amounts = [100, 1_000, 8]
const row = (id: string, changes: Partial<ShareRow> = {}): ShareRow => ({
  keyPrefix: 'aaaaaaaa',
  id,
  isOwn: id === 'own',
  silentMs: 0,
  share: [0, 0, 0],
  held: [0, 0, 0],
  wanted: [100, 1_000, 8],
  least: [0, 0, 0],
  freesInMs: [0, 0, 0],
  waitingMs: 0,
  ...changes,
})

// Goal: the first ask of a key gets the whole limit but for the reserve (a twentieth from a limit of 10 on).
test('the first target', () => {
  expect(targetOf(limits, row('own'), undefined)).toEqual([95, 950, 8])
})

// Goal: two gateways that want everything get half each of what is not reserved; the odd one of 95 goes to the first.
test('two that want everything', () => {
  expect(targetOf(limits, row('own'), [row('zzz')])).toEqual([47, 475, 4])
  expect(targetOf(limits, row('own'), [row('aaa')])).toEqual([48, 475, 4])
})

// Goal: a gateway that has been silent for three renewals keeps what it has or holds, and the rest is divided.
test('a silent gateway', () => {
  const silent = { share: [30, 100, 2] as Amounts, held: [10, 200, 1] as Amounts }
  expect(renewSharesMs).toBe(2_000)
  expect(targetOf(limits, row('own'), [row('zzz', { ...silent, silentMs: 6_000 })])).toEqual([66, 760, 6])
  expect(targetOf(limits, row('own'), [row('zzz', { ...silent, silentMs: 5_999 })])).toEqual([47, 475, 4])
})

// Goal: a gateway that has and wants nothing gets nothing, also not of what nobody wants.
test('a share given back', () => {
  const none: Amounts = [0, 0, 0]
  expect(isGivenBack({ share: none, held: none, wanted: none })).toBe(true)
  for (const field of ['share', 'held', 'wanted'] as const) {
    expect(isGivenBack({ share: none, held: none, wanted: none, [field]: [0, 1, 0] })).toBe(false)
  }
  expect(targetOf(limits, row('own', { wanted: none }), undefined)).toEqual([0, 0, 0])
})

// Goal: amounts above the key's limits are cut to them; a need that no part could meet is no need.
test('an ask above the limits', () => {
  const ask = row('own', { share: [200, 5, 9], held: [101, 1, 1], wanted: [7, 2_000, 9], least: [101, 1_000, 9] })
  expect(boundedBy(limits, ask)).toMatchObject({
    share: [100, 5, 8],
    held: [100, 1, 1],
    wanted: [7, 1_000, 8],
    least: [0, 1_000, 0],
  })
})

// Goal: a grant says what to keep, whether another gateway waits for the rest, and when there may be more.
test('a grant', () => {
  const own = row('own', { share: [95, 950, 8] })
  expect(grantOf(limits, own, [row('zzz')])).toEqual({
    keyPrefix: 'aaaaaaaa',
    share: [95, 950, 8],
    keep: [47, 475, 4],
    moreInMs: [61_000, 61_000, 61_000],
    isWanted: true,
  })
  const content = row('zzz', { share: [5, 50, 4], wanted: [5, 50, 4] })
  expect(grantOf(limits, own, [content])).toMatchObject({ keep: [90, 900, 4], isWanted: false })
})

// Goal: more comes with the others' next asks while they hold less than they have; else once something of theirs frees.
test('when there may be more', () => {
  const own = row('own', { share: [10, 100, 1] })
  const unused = row('zzz', { share: [90, 900, 7] })
  expect(grantOf(limits, own, [unused]).moreInMs).toEqual([4_000, 4_000, 4_000])
  const full = row('zzz', { share: [90, 900, 7], held: [90, 900, 7], freesInMs: [500, 20_000, 0] })
  expect(grantOf(limits, own, [full]).moreInMs).toEqual([4_500, 24_000, 4_000])
  const gone = { ...unused, silentMs: 6_000 }
  expect(grantOf(limits, row('own', { least: [20, 200, 2] }), [gone]).moreInMs).toEqual([61_000, 61_000, 61_000])
})

// Goal: each of the three amounts counts by itself: another gateway that waits for one of them is enough.
test('what another gateway waits for', () => {
  const own = row('own', { share: [95, 950, 8] })
  const others: readonly Amounts[] = [
    [95, 0, 0],
    [0, 950, 0],
    [0, 0, 8],
  ]
  for (const wanted of others) {
    expect([wanted, grantOf(limits, own, [row('zzz', { wanted })]).isWanted]).toEqual([wanted, true])
  }
  // It has all that it is due already, so nothing of it is wanted, however much the other one asks for.
  const half = row('own', { share: [47, 475, 4] })
  expect(grantOf(limits, half, [row('zzz')])).toMatchObject({ keep: [47, 475, 4], isWanted: false })
})

// Goal: no more is due to a gateway that has its part, whatever the others hold.
test('a gateway that has its part', () => {
  const own = row('own', { share: [47, 475, 4], least: [47, 475, 4] })
  const unused = row('zzz', { share: [53, 525, 4] })
  expect(grantOf(limits, own, [unused]).moreInMs).toEqual([61_000, 61_000, 61_000])
})

// Goal: others that hold nothing have nothing to let go of, and more silent parts than the limit leave none.
test('others with nothing, and with too much', () => {
  const empty = row('zzz', { wanted: [0, 0, 0] })
  expect(grantOf(limits, row('own'), [empty]).moreInMs).toEqual([61_000, 61_000, 61_000])
  const silent = row('zzz', { share: [101, 1_001, 9], silentMs: 6_000 })
  expect(targetOf(limits, row('own'), [silent])).toEqual([0, 0, 0])
})
