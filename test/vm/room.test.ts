// Goal: the number of further VMs that a host reports is the number that it admits, over every thing that may run out.

import { expect, test } from 'bun:test'
import { admission, type Capacity, type Occupancy, type Request, roomFor } from '../../src/vm/admission.plan.ts'

const request: Request = { vcpus: 2, memoryMib: 2_048, diskGib: 8 }
const none = { vms: 0, vcpus: 0, memoryMib: 0, diskGib: 0 }

/** As admission sees it: one VM after the other, until one is refused. */
function admitted(occupancy: Occupancy, capacity: Capacity): { count: number; lacking: string | null } {
  let { reserved } = occupancy
  for (let count = 0; ; count += 1) {
    const verdict = admission(request, { ...occupancy, reserved }, { ...capacity, bootingMax: 1_000 })
    if (verdict.kind !== 'admit') return { count, lacking: verdict.kind === 'full' ? verdict.lacking : null }
    const { vms, vcpus, memoryMib, diskGib, ...rest } = reserved
    reserved = { ...rest, vms: vms + 1, vcpus: vcpus + 2, memoryMib: memoryMib + 2_048, diskGib: diskGib + 8 }
  }
}

const plenty: Capacity = { memoryMib: 1_000_000, vcpus: 1_000, addresses: 1_000, asids: null, bootingMax: 2 }
const empty: Occupancy = {
  reserved: { ...none, booting: 0 },
  ahead: none,
  ending: none,
  restingAddresses: 0,
  diskGibMax: 10_000,
}
const busy: Occupancy = {
  ...empty,
  reserved: { vms: 3, vcpus: 7, memoryMib: 7_000, diskGib: 20, booting: 2 },
  ahead: { vms: 2, vcpus: 4, memoryMib: 4_096, diskGib: 16 },
  ending: { vms: 1, vcpus: 2, memoryMib: 2_048, diskGib: 8 },
  restingAddresses: 4,
}

// Goal: each thing that may run out is counted as admission counts it, and named.
test.each([
  ['memory', { memoryMib: 30_000 }, {}],
  ['vcpus', { vcpus: 33 }, {}],
  ['disk', {}, { diskGibMax: 100 }],
  ['addresses', { addresses: 17 }, {}],
  ['asids', { asids: 12 }, {}],
  ['memory', { memoryMib: 100 }, {}],
] as const)('goal: %s runs out', (lacking, capacity, occupancy) => {
  for (const state of [empty, busy]) {
    const [given, room] = [
      { ...state, ...occupancy },
      { ...plenty, ...capacity },
    ]
    expect(roomFor(request, given, room)).toEqual({ count: admitted(given, room).count, lacking })
  }
})

test('goal: VMs without a disk need no room for one', () => {
  expect(roomFor({ ...request, diskGib: 0 }, { ...empty, diskGibMax: 0 }, { ...plenty, vcpus: 5 }).count).toBe(2)
})

test('goal: a VM with a disk of one GiB needs room for it', () => {
  const small = { ...request, diskGib: 1 }
  expect(roomFor(small, { ...empty, diskGibMax: 0 }, plenty)).toEqual({ count: 0, lacking: 'disk' })
  expect(roomFor(small, { ...empty, diskGibMax: 2 }, plenty)).toEqual({ count: 2, lacking: 'disk' })
})
