// Goal: a name has the addresses of its own VM while that VM has any, and records have the bytes of these addresses.

import { expect, test } from 'bun:test'
import { instanceAddresses, v4Bytes, v6Bytes, v6Groups } from '../../../src/instances/dns/address.plan.ts'

const vm = { state: 'running', address: '10.88.0.7', addressV6: '2001:db8::7' } as const
type Vm = Omit<NonNullable<ReturnType<Parameters<typeof instanceAddresses>[1]>>, never>

test('goal: a name holds from when its VM has an address until the VM ends or a delete is accepted', () => {
  const addresses = (instance: { desired?: string; vmId?: string | null }, seen: Partial<Vm> | null = {}) =>
    instanceAddresses({ desired: 'present', vmId: 'v1', ...instance } as never, id =>
      id === 'v1' && seen !== null ? { ...vm, ...seen } : null,
    )
  const both = { v4: '10.88.0.7', v6: '2001:db8::7' }
  expect(addresses({})).toEqual(both)
  for (const state of ['launching', 'booting', 'stopping'] as const) expect(addresses({}, { state })).toEqual(both)
  expect(addresses({}, { address: null })).toEqual({ v4: null, v6: '2001:db8::7' })
  expect(addresses({}, { addressV6: null })).toEqual({ v4: '10.88.0.7', v6: null })
  expect([
    addresses({}, { address: null, addressV6: null }),
    addresses({}, { state: 'failed' }),
    addresses({}, { state: 'gone' }),
    addresses({}, null),
    addresses({ desired: 'absent' }),
    addresses({ vmId: null }),
  ]).toEqual([null, null, null, null, null, null])
})

test('goal: the bytes of A and AAAA records, and no bytes for what is no address', () => {
  expect([...v4Bytes('192.0.2.255')]).toEqual([192, 0, 2, 255])
  expect(Buffer.from(v6Bytes('2001:db8:ff01:7f80::abcd')).toString('hex')).toBe('20010db8ff017f80000000000000abcd')
  expect(Buffer.from(v6Bytes('fe80::')).toString('hex')).toBe(`fe80${'0'.repeat(28)}`)
  expect(Buffer.from(v6Bytes('1:2:3:4:5:6:7:8')).toString('hex')).toBe('00010002000300040005000600070008')
  for (const text of ['', '1.2.3', '::1']) expect(() => v4Bytes(text)).toThrow('IPv4 address')
  for (const text of ['', '192.0.2.1', '::ffff:192.0.2.1', 'fe80::1%eth0']) {
    expect(() => v6Bytes(text)).toThrow('IPv6 address in hexadecimal')
  }
})

test('goal: eight groups (RFC 4291 2.2), of which those that are no number are 0', () => {
  const zeros = (count: number) => Array<number>(count).fill(0)
  expect(v6Groups('::')).toEqual(zeros(8))
  expect(v6Groups('::1')).toEqual([...zeros(7), 1])
  expect(v6Groups('1::')).toEqual([1, ...zeros(7)])
  expect(v6Groups('1:2::FFFF')).toEqual([1, 2, ...zeros(5), 0xffff])
  expect(v6Groups('xyz::1')).toEqual([...zeros(7), 1])
})
