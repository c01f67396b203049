// Goal: where instances may go is read as it is meant, and every mistake names its field and what is allowed.

import { expect, test } from 'bun:test'
import { egressAllowed, egressSource, parseEgressEntry } from '../../src/config/egress.ts'
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
    '::1',
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
  for (const text of ['127.0.0.1', '0.0.0.0/8', '224.0.0.0/4', '255.255.255.255'])
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
