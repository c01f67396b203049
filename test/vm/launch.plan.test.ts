import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { newUuid } from '../../src/base/ids.ts'
import { admission, type Capacity } from '../../src/vm/admission.plan.ts'
import { freeAddress, freeUid, macAddress, poolSize, tapName, uidCount, vmPaths } from '../../src/vm/launch.plan.ts'

test('names follow from the id alone and fit the kernel', () => {
  // Goal: a restarted daemon computes the same names; interface names keep to IFNAMSIZ; MACs are local and unicast.
  const id = '0123abcd-4567-4890-abcd-ef0123456789'
  expect(tapName('sr', id)).toBe('sr0123abcd45')
  expect(macAddress(id)).toBe('02:01:23:ab:cd:45')
  expect(vmPaths('/s', id).channel).toBe(`/s/vms/${id}/agent.sock`)
  for (let i = 0; i < 100; i += 1) expect(tapName('abcd', newUuid()).length).toBeLessThanOrEqual(15)
  expect(() => tapName('sr', 'not-a-uuid')).toThrow('a VM id is a UUID')
})

test('addresses come from inside the pool, lowest first, and never twice', () => {
  // Goal: network and broadcast addresses are left out, a full pool says so, odd base addresses are masked.
  expect(poolSize('10.88.0.0/30')).toBe(2)
  expect(freeAddress('10.88.0.0/30', new Set())).toBe('10.88.0.1')
  expect(freeAddress('10.88.0.0/30', new Set(['10.88.0.1']))).toBe('10.88.0.2')
  expect(freeAddress('10.88.0.0/30', new Set(['10.88.0.1', '10.88.0.2']))).toBeNull()
  expect(freeAddress('10.88.0.77/24', new Set())).toBe('10.88.0.1')
  expect(freeAddress('192.168.255.252/30', new Set(['192.168.255.253']))).toBe('192.168.255.254')
})

test('a pool hands out exactly its size', () => {
  // Goal: over any pool, repeated taking gives poolSize distinct addresses and then null.
  fc.assert(
    fc.property(fc.ipV4(), fc.integer({ min: 24, max: 30 }), (base, prefix) => {
      const pool = `${base}/${prefix}`
      const taken = new Set<string>()
      for (let next = freeAddress(pool, taken); next !== null; next = freeAddress(pool, taken)) {
        expect(taken.has(next)).toBe(false)
        taken.add(next)
      }
      expect(taken.size).toBe(poolSize(pool))
    }),
    { numRuns: 30 },
  )
})

const capacity: Capacity = { memoryMib: 4096, vcpus: 4, addresses: 10, asids: 3, bootingMax: 1 }
const none = { vms: 0, vcpus: 0, memoryMib: 0, booting: 0 }
const small = { vcpus: 2, memoryMib: 2048 }

test('admission counts memory, vCPUs, addresses, ASIDs and boots, each at its exact limit', () => {
  // Goal: the last that fits is admitted, the next one is refused for the right reason.
  expect(admission(small, none, capacity)).toEqual({ kind: 'admit' })
  expect(admission(small, { ...none, memoryMib: 2048 }, capacity)).toEqual({ kind: 'admit' })
  expect(admission(small, { ...none, memoryMib: 2049 }, capacity)).toEqual({ kind: 'full', lacking: 'memory' })
  expect(admission(small, { ...none, vcpus: 3 }, capacity)).toEqual({ kind: 'full', lacking: 'vcpus' })
  expect(admission(small, { ...none, vms: 10 }, capacity)).toEqual({ kind: 'full', lacking: 'addresses' })
  expect(admission(small, { ...none, vms: 3 }, capacity)).toEqual({ kind: 'full', lacking: 'asids' })
  expect(admission(small, { ...none, vms: 3 }, { ...capacity, asids: null })).toEqual({ kind: 'admit' })
  expect(admission(small, { ...none, vms: 1, booting: 1 }, capacity)).toEqual({ kind: 'queue' })
})

test('a range hands out exactly its uids, from wherever it begins', () => {
  // Goal: over any range and start, repeated taking gives every uid of the range once, then null.
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 2 ** 31 }),
      fc.integer({ min: 1, max: 40 }),
      fc.nat(),
      (min, count, start) => {
        const range = { min, max: min + count - 1 }
        expect(uidCount(range)).toBe(count)
        const taken = new Set<number>()
        const next = () => freeUid(range, start, uid => taken.has(uid))
        for (let uid = next(); uid !== null; uid = next()) taken.add(uid)
        expect([...taken].sort((a, b) => a - b)).toEqual(Array.from({ length: count }, (_, index) => min + index))
      },
    ),
    { numRuns: 50 },
  )
})
