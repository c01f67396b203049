import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { newUuid } from '../../src/base/ids.ts'
import {
  freeAddress,
  freeAddressV6,
  freeUid,
  isTapName,
  macAddress,
  poolSize,
  poolSizeV6,
  tapName,
  uidCount,
  vmPaths,
} from '../../src/vm/launch.plan.ts'

test('names follow from the id alone and fit the kernel', () => {
  // Goal: a restarted daemon computes the same names; interface names keep to IFNAMSIZ; MACs are local and unicast.
  const id = '0123abcd-4567-4890-abcd-ef0123456789'
  expect(tapName('sr', id)).toBe('sr0123abcd45')
  expect(macAddress(id)).toBe('02:01:23:ab:cd:45')
  expect(vmPaths('/s', id).channel).toBe(`/s/vms/${id}/agent.sock`)
  for (let i = 0; i < 100; i += 1) expect(tapName('abcd', newUuid()).length).toBeLessThanOrEqual(15)
  expect(() => tapName('sr', 'not-a-uuid')).toThrow('a VM id is a UUID')
})

test('an interface is ours by its prefix and its ten digits, both', () => {
  // Goal: what another program named is never taken for a VM's.
  expect(isTapName('sr', 'sr0123abcd45')).toBe(true)
  for (const name of [
    'srprobe',
    'sr-vms',
    'sr0123abcd4',
    'sr0123abcd456',
    'sr0123ABCD45',
    'xx0123abcd45',
    '0123abcd45',
  ])
    expect([name, isTapName('sr', name)]).toEqual([name, false])
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

test('addresses of an IPv6 pool are after its first, lowest first, and as many as an IPv4 pool has at most', () => {
  // Goal: the anycast address of routers is nobody's, and however large the pool, the look through it ends.
  expect(freeAddressV6('2001:db8:88::/64', new Set())).toBe('2001:db8:88::1')
  expect(freeAddressV6('2001:db8:88::/64', new Set(['2001:db8:88::1', '2001:db8:88::3']))).toBe('2001:db8:88::2')
  // Each has a network of its own, where there are enough.
  expect(freeAddressV6('2001:db8::/48', new Set(['2001:db8:0:1::1']))).toBe('2001:db8:0:2::1')
  const networks = Array.from({ length: poolSizeV6 }, (_, n) => `2001:db8:0:${(n + 1).toString(16)}::1`)
  expect(freeAddressV6('2001:db8::/48', new Set(networks.slice(0, -1)))).toBe('2001:db8:0:fffe::1')
  expect(freeAddressV6('2001:db8::/48', new Set(networks))).toBeNull()
  const all = new Set(Array.from({ length: poolSizeV6 }, (_, n) => `2001:db8:88::${(n + 1).toString(16)}`))
  expect(freeAddressV6('2001:db8:88::/112', all)).toBeNull()
})
