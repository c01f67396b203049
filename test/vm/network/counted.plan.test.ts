// Goal: no byte of a VM is forgotten and none is counted twice, whoever replaced the kernel's quota.

import { expect, test } from 'bun:test'
import { countedIn, hasLost, mustRenew, quotasOf, type WantedVm } from '../../../src/vm/network/counted.plan.ts'

const vm: WantedVm = {
  tap: 'sr1',
  mac: '02:00:00:00:00:01',
  address: '10.88.0.1',
  addressV6: null,
  limitBytes: 1_000,
  usedBytes: 400,
  rescueLimitBytes: 100,
  rescueUsedBytes: 10,
  unseenBytes: 50,
  vmId: 'v1',
} as WantedVm
const quota = (usedBytes: number, limitBytes = 1_000) => ({ usedBytes, limitBytes })
const counted = (cap: number | null, rescue: number | null = null, changes: Partial<WantedVm> = {}) => {
  const found = new Map([
    ...(cap === null ? [] : [['sr1', quota(cap)] as const]),
    ...(rescue === null ? [] : [['sr1_rescue', quota(rescue, 100)] as const]),
  ])
  const { usedBytes, rescueUsedBytes } = countedIn(found, { ...vm, ...changes })
  return [usedBytes, rescueUsedBytes]
}

test('goal: both quotas of a VM have its limits and its counts', () => {
  expect(quotasOf(vm)).toEqual([
    { name: 'sr1', limitBytes: 1_000, usedBytes: 400 },
    { name: 'sr1_rescue', limitBytes: 100, usedBytes: 10 },
  ])
})

test('goal: a VM that has published a port has a third one, whose count is kept while the port is closed', () => {
  const published = { limitBytes: 300, usedBytes: 200 }
  expect(quotasOf({ ...vm, published }).at(-1)).toEqual({ name: 'sr1_published', limitBytes: 300, usedBytes: 200 })
  const after = (kernel: number | null, limitBytes = 300) => {
    const found = new Map(kernel === null ? [] : [['sr1_published', quota(kernel, limitBytes)] as const])
    return countedIn(found, { ...vm, published: { ...published, limitBytes } }).published
  }
  expect([after(null), after(250), after(100)].map(counted => counted?.usedBytes)).toEqual([200, 250, 200])
  expect([after(null, 0), after(0, 0)]).toEqual([
    { limitBytes: 0, usedBytes: 0 },
    { limitBytes: 0, usedBytes: 0 },
  ])
  expect(countedIn(new Map(), vm).published).toBeUndefined()
})

test("goal: the kernel's count where it has one, else the ledger's with what came since, at most the limit", () => {
  expect(counted(450)).toEqual([450, 10])
  expect(counted(400)).toEqual([400, 10])
  expect(counted(null)).toEqual([450, 10])
  // A quota that was reset.
  expect(counted(399)).toEqual([450, 10])
  expect(counted(null, null, { unseenBytes: 601 })).toEqual([1_000, 10])
  expect(counted(1_000)).toEqual([1_000, 10])
  expect(counted(450, 30)).toEqual([450, 30])
  expect(counted(450, 5)).toEqual([450, 10])
  expect(counted(450, 101)).toEqual([450, 100])
})

test('goal: a quota is replaced if it lost bytes, or if a spent one is raised', () => {
  const renewed = (usedBytes: number, limitBytes: number, found?: ReturnType<typeof quota>) =>
    mustRenew({ name: 'sr1', usedBytes, limitBytes }, found)
  expect(renewed(400, 1_000)).toBe(false)
  expect(renewed(400, 1_000, quota(400))).toBe(false)
  expect(renewed(401, 1_000, quota(400))).toBe(true)
  expect(renewed(400, 2_000, quota(999))).toBe(false)
  expect(renewed(400, 2_000, quota(1_000))).toBe(true)
  expect(renewed(400, 1_000, quota(1_000))).toBe(false)
  expect([hasLost({ usedBytes: 2_000 }, quota(1_000)), hasLost({ usedBytes: 2_000 }, quota(999))]).toEqual([
    false,
    true,
  ])
})
