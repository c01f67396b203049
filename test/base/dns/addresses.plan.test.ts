import { expect, test } from 'bun:test'
import { addressesOf } from '../../../src/base/dns/addresses.plan.ts'
import type { DnsRecord } from '../../../src/base/dns/answer.codec.ts'

const a = (name: string, data: string, ttl = 60): DnsRecord => ({ type: 'A', name, data, ttl })
const alias = (name: string, data: string, ttl = 60): DnsRecord => ({ type: 'CNAME', name, data, ttl })
const asked = { name: 'a.example', type: 'A' } as const

test('goal: addresses are those of the name, by way of its aliases, in any order and case, with the least time of all', () => {
  expect(addressesOf([a('A.example.', '192.0.2.1', 9), a('a.example', '192.0.2.1', 8)], asked)).toEqual({
    addresses: ['192.0.2.1'],
    ttlSeconds: 8,
  })
  const chain = [a('c.example', '192.0.2.1'), alias('B.example', 'c.example', 5), alias('a.example', 'b.example.', 7)]
  expect(addressesOf(chain, asked)).toEqual({ addresses: ['192.0.2.1'], ttlSeconds: 5 })
})

test('goal: what is not on the way there counts for nothing', () => {
  const beside = [
    a('b.example', '192.0.2.9'),
    alias('x.example', 'b.example'),
    { type: 'AAAA', name: 'a.example', data: '2001:db8::1', ttl: 60 } as const,
  ]
  expect(addressesOf(beside, asked)?.addresses).toEqual([])
  expect(addressesOf([a('a.example', '192.0.2.1'), ...beside], asked)?.addresses).toEqual(['192.0.2.1'])
})

test('goal: aliases end: a circle, and a way that is too long, lead nowhere', () => {
  expect(addressesOf([alias('a.example', 'b.example'), alias('b.example', 'a.example')], asked)).toBeNull()
  const way = (steps: number) => [
    alias('a.example', 'n0.example'),
    ...Array.from({ length: steps - 1 }, (_, n) => alias(`n${n}.example`, `n${n + 1}.example`)),
    a(`n${steps - 1}.example`, '192.0.2.1'),
  ]
  expect(addressesOf(way(8), asked)?.addresses).toEqual(['192.0.2.1'])
  expect(addressesOf(way(9), asked)).toBeNull()
})

test('goal: however many addresses there are, a bounded number is taken', () => {
  expect(
    addressesOf(
      Array.from({ length: 200 }, (_, n) => a('a.example', `192.0.2.${n}`)),
      asked,
    )?.addresses,
  ).toHaveLength(8)
})
