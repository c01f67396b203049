// Goal: where instances may go is read as it is meant, and every mistake names its field and what is allowed.

import { expect, test } from 'bun:test'
import { egressAllowed, egressSource, parseEgressEntry } from '../../src/config/egress.ts'
import { egressSourceV6, parseEgressEntryV6 } from '../../src/config/egress-v6.ts'
import { parseConfig, problemText } from '../../src/config/parse.ts'

const problems = (text: string) => {
  const verdict = parseConfig(text, 'f')
  return verdict.ok ? [] : verdict.problems.map(problemText)
}
const entry = (text: string) =>
  problems(`[network.egress]\nallow = [\n  "198.51.100.0/24",\n  ${JSON.stringify(text)},\n]`)
const notAllowed = (text: string) =>
  `f:4: network.egress.allow.1: ${JSON.stringify(text)} is not allowed; allowed: ${egressAllowed}`

test('goal: entries are an address or a network, with or without ports', () => {
  expect(parseEgressEntry('10.1.2.3')).toEqual({ first: 167_838_211, last: 167_838_211, ports: null })
  expect(parseEgressEntry('10.1.0.0/16:5432')).toEqual({
    first: 167_837_696,
    last: 167_903_231,
    ports: { first: 5432, last: 5432 },
  })
  expect(parseEgressEntry('0.0.0.0/0:25')).toEqual({ first: 0, last: 2 ** 32 - 1, ports: { first: 25, last: 25 } })
  for (const text of ['10.1.2.3', '10.1.0.0/16', '10.1.2.3:1-65535', '0.0.0.0/0', '169.254.169.254:80'])
    expect(entry(text)).toEqual([])
})

test('goal: a mistake in an entry is reported at its line, with what to write', () => {
  const wrong = [
    '10.1.2',
    '10.1.2.3/33',
    '10.1.2.256',
    'db.internal',
    '10.1.2.3:0',
    '10.1.2.3:9-8',
    '10.1.2.3:65536',
    '::1/129',
    '[2001:db8::1]',
    '[2001:db8::1]:0',
    '2001:db8::g',
    'fe80::1%eth0',
    '::ffff:10.0.0.1',
    '10.1.2.3:http',
  ]
  for (const text of [...wrong, '10.1.2.3:80,81', ' 10.1.2.3', '10.1.2.3 }\nflush ruleset'.slice(0, 20)])
    expect(entry(text)).toEqual([notAllowed(text)])
  expect(entry('10.1.2.3/16:80-90')).toEqual([
    'f:4: network.egress.allow.1: 10.1.2.3/16:80-90 has bits set after its prefix; write 10.1.0.0/16:80-90',
  ])
  expect(entry('10.88.0.16/28')).toEqual([
    'f:4: network.egress.allow.1: 10.88.0.16/28 is in pool_v4 (10.88.0.0/24): instances never reach each other',
  ])
  for (const text of ['127.0.0.1', '0.0.0.0/8', '224.0.0.0/4', '255.255.255.255', '::1', '[ff02::1]:53', 'fe80::/64'])
    expect(entry(text)).toEqual([`f:4: network.egress.allow.1: ${text} is nothing that a host can reach`])
})

test('goal: the source is one of three, and an address is one that answers come back to', () => {
  const source = (text: string) => problems(`[network.egress]\nsource = "${text}"`)
  for (const text of ['masquerade', 'pool', '192.0.2.7']) expect(source(text)).toEqual([])
  expect(egressSource('pool')).toEqual({ kind: 'pool' })
  expect(egressSource('192.0.2.7')).toEqual({ kind: 'snat', to: '192.0.2.7' })
  const field = 'f:2: network.egress.source:'
  expect(source('none')).toEqual([`${field} "none" is not allowed; allowed: "masquerade", "pool" or an IPv4 address`])
  expect(source('239.0.0.1')).toEqual([`${field} 239.0.0.1 is not an address that a host can have`])
  expect(source('10.88.0.7')).toEqual([
    `${field} 10.88.0.7 is in pool_v4 (10.88.0.0/24), whose addresses instances get; use "pool" for their own`,
  ])
  expect(source('169.254.88.1')).toEqual([
    `${field} 169.254.88.1 is gateway_v4, which instances alone can reach: no answer would come back`,
  ])
})

test('goal: entries of IPv6 are read as they are meant, and a long form is told its short one', () => {
  const [first, last] = [0x2001_0db8_0088_0000_0000_0000_0000_0000n, 0x2001_0db8_0088_ffff_ffff_ffff_ffff_ffffn]
  expect(parseEgressEntryV6('2001:db8:88::/48')).toEqual({ first, last, ports: null })
  const ports = { first: 80, last: 90 }
  expect(parseEgressEntryV6('[2001:db8:88::/48]:80-90')).toEqual({ first, last, ports })
  expect(parseEgressEntryV6('10.1.2.3:80')).toBeNull()
  for (const text of ['2001:db8::1', 'fd00::/8', '[::/0]:25', '[fd00::5]:5432']) expect(entry(text)).toEqual([])
  const field = 'f:4: network.egress.allow.1:'
  expect(entry('[2001:db8:0::1/64]:80')).toEqual([
    `${field} [2001:db8:0::1/64]:80 is not in its short form; write [2001:db8::/64]:80`,
  ])
  const inPool = problems('[network]\npool_v6 = "2001:db8:88::/64"\n[network.egress]\nallow = ["2001:db8:88::7"]')
  expect(inPool).toEqual([
    'f:4: network.egress.allow.0: 2001:db8:88::7 is in pool_v6 (2001:db8:88::/64): instances never reach each other',
  ])
})

test('goal: the source of IPv6 is one of three, too', () => {
  const source = (text: string) =>
    problems(`[network]\npool_v6 = "2001:db8:88::/64"\n[network.egress]\nsource_v6 = "${text}"`)
  for (const text of ['masquerade', 'pool', '2001:db8::7']) expect(source(text)).toEqual([])
  expect(egressSourceV6('2001:db8:0:0::7')).toEqual({ kind: 'snat', to: '2001:db8::7' })
  const field = 'f:4: network.egress.source_v6:'
  expect(source(':::')).toEqual([`${field} ":::" is not allowed; allowed: "masquerade", "pool" or an IPv6 address`])
  expect(source('ff02::1')).toEqual([`${field} ff02::1 is not an address that a host can have`])
  expect(source('2001:db8:88::7')).toEqual([
    `${field} 2001:db8:88::7 is in pool_v6 (2001:db8:88::/64), whose addresses instances get; use "pool" for their own`,
  ])
  expect(source('fd73:7472:6f6e:67::1')).toEqual([
    `${field} fd73:7472:6f6e:67::1 is gateway_v6, which instances alone can reach: no answer would come back`,
  ])
})
