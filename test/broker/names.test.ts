// Goal: each allowed name has one synthetic address of its own, which stays while other names come and go.

import { expect, test } from 'bun:test'
import { Names, wildcardNamesMax } from '../../src/broker/names.ts'
import { type EgressPolicy, reachOf, slotsFor } from '../../src/contract/http/egress-policy.ts'

const policyOf = (...hosts: string[]): EgressPolicy => ({
  default: 'refuse',
  allow: hosts.map(host => ({ host, port: 443 })),
})
const namesOf = (policy: EgressPolicy, before: Names | null = null) => new Names(reachOf(policy, []), before)

test('goal: listed names alone have an address, each its own, and it leads back', () => {
  const names = namesOf(policyOf('github.com', 'packages.example', '*.githubusercontent.com'))
  const listed = ['github.com', 'packages.example', 'raw.githubusercontent.com', 'a.b.githubusercontent.com']
  const addresses = listed.map(name => names.addressOf(name))
  expect(new Set(addresses).size).toBe(listed.length)
  expect(addresses.map(address => names.nameOf(address ?? ''))).toEqual(listed)
  for (const address of addresses) expect(address).toMatch(/^198\.(18\.(?!0\.)|19\.)/)
  for (const name of [
    'githubusercontent.com',
    'xgithubusercontent.com',
    'github.com.evil.example',
    'sub.github.com',
    '',
  ]) {
    expect(names.addressOf(name)).toBeNull()
  }
})

test('goal: an address stays with its name under another policy, and is gone with it', () => {
  const before = namesOf(policyOf('github.com', '*.example.org'))
  const [exact, below] = [before.addressOf('github.com'), before.addressOf('a.example.org')]
  const after = namesOf(policyOf('aaa.example', 'github.com', '*.example.org'), before)
  expect([after.addressOf('github.com'), after.addressOf('a.example.org')]).toEqual([exact, below])
  const without = namesOf(policyOf('aaa.example'), after)
  expect([without.nameOf(exact ?? ''), without.nameOf(below ?? '')]).toEqual([null, null])
})

test('goal: names below a wildcard are bounded: the one asked for longest ago loses its address', () => {
  const names = namesOf(policyOf('*.example.org'))
  const first = names.addressOf('n0.example.org') ?? ''
  const second = names.addressOf('n1.example.org') ?? ''
  for (let at = 2; at < wildcardNamesMax; at += 1) names.addressOf(`n${at}.example.org`)
  expect(names.addressOf('n0.example.org')).toBe(first)
  const newest = names.addressOf('one-more.example.org')
  expect([names.nameOf(first), names.nameOf(second)]).toEqual(['n0.example.org', null])
  expect(newest).not.toBe(second)
})

test('goal: a rule is of a name and a port', () => {
  const names = new Names(reachOf({ default: 'refuse', allow: [{ host: '*.example.org', port: 22 }] }, []), null)
  expect([
    names.allows('a.example.org', 22),
    names.allows('a.example.org', 443),
    names.allows('example.org', 22),
  ]).toEqual([true, false, false])
})

test('goal: with an open policy only hosts of secrets are carried, with what else programs reach there', () => {
  const reach = reachOf(
    {
      default: 'allow',
      allow: [
        { host: 'a.example', port: 8080 },
        { host: 'b.example', port: 1 },
      ],
    },
    [{ host: 'a.example', port: 8443 }],
  )
  expect([...reach.addresses.keys()]).toEqual(['a.example'])
  expect(reach.ports.toSorted((a, b) => a - b)).toEqual([22, 80, 443, 8080, 8443])
})

test('goal: a port keeps its slot while it is allowed, and a free slot is used again', () => {
  const first = slotsFor([22, 80, 443], [])
  expect(first).toEqual([22, 80, 443])
  const second = slotsFor([443, 80], first)
  expect(second).toEqual([0, 80, 443])
  expect(slotsFor([443, 8080, 80, 9090], second)).toEqual([8080, 80, 443, 9090])
})
