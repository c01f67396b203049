import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { formatIpv4, parseIpv4, rangeOf } from '../../../src/base/ipv4.ts'
import { parseIpv6 } from '../../../src/base/ipv6.ts'
import { type EgressEntry, parseEgressEntry } from '../../../src/config/egress.ts'
import { parseEgressEntryV6 } from '../../../src/config/egress-v6.ts'
import {
  destinationKind,
  EGRESS_CHAINS,
  EGRESS_CHAINS_V6,
  EGRESS_SETS,
  type EgressRules,
  egressElements,
  egressRules,
} from '../../../src/vm/network/egress.plan.ts'
import { namedAddressesMax, nameSetLines, openNamesText } from '../../../src/vm/network/egress-names.plan.ts'
import { EGRESS_SETS_V6, ENTRY_RULES_V6, egressElementsV6 } from '../../../src/vm/network/egress-v6.plan.ts'

const around = { pool: '10.88.0.0/24', ownNetworks: ['203.0.113.0/24', '10.0.0.0/16'], v6: null }
const entry = (text: string): EgressEntry => parseEgressEntry(text) ?? { first: 0, last: 0, ports: null }
const elementsOf = (set: string, allowed: readonly string[], change: Partial<typeof around> = {}) =>
  egressElements({ ...around, ...change, allowed: allowed.map(entry) }).flatMap(([name, element]) =>
    name === set ? [element] : [],
  )

test('goal: what is denied is the whole list of private and special networks, the pool and the networks of the host', () => {
  expect(elementsOf('egress_denied', [], { pool: '198.18.0.0/24' })).toEqual([
    '0.0.0.0-0.255.255.255',
    '10.0.0.0-10.255.255.255',
    '100.64.0.0-100.127.255.255',
    '127.0.0.0-127.255.255.255',
    '169.254.0.0-169.254.255.255',
    '172.16.0.0-172.31.255.255',
    '192.168.0.0-192.168.255.255',
    '198.18.0.0-198.18.0.255',
    '203.0.113.0-203.0.113.255',
    '224.0.0.0-255.255.255.255',
  ])
})

test('goal: entries with ports become stretches that do not overlap', () => {
  expect(
    elementsOf('egress_ports', ['10.0.0.0/8:443', '10.1.0.0/16:80-90', '10.1.2.3:85-100', '10.1.2.3:443']),
  ).toEqual([
    '10.0.0.0-10.0.255.255 . 443',
    '10.1.0.0-10.1.2.2 . 80-90',
    '10.1.0.0-10.1.2.2 . 443',
    '10.1.2.3 . 80-100',
    '10.1.2.3 . 443',
    '10.1.2.4-10.1.255.255 . 80-90',
    '10.1.2.4-10.1.255.255 . 443',
    '10.2.0.0-10.255.255.255 . 443',
  ])
  expect(elementsOf('egress_ports', ['10.0.0.1'])).toEqual([])
  expect(elementsOf('egress_allowed', ['0.0.0.0/0', '10.0.0.1', '10.0.0.1:80'])).toEqual(['0.0.0.0-255.255.255.255'])
})

test('goal: whatever the entries, exactly what they name is open', () => {
  const some = fc.record({
    address: fc.integer({ min: parseIpv4('10.0.0.0'), max: parseIpv4('10.0.0.31') }),
    prefix: fc.integer({ min: 28, max: 32 }),
    from: fc.integer({ min: 1, max: 12 }),
    more: fc.integer({ min: 0, max: 5 }),
  })
  fc.assert(
    fc.property(fc.array(some, { maxLength: 8 }), entries => {
      const texts = entries.map(({ address, prefix, from, more }) => {
        return `${formatIpv4(rangeOf(`${formatIpv4(address)}/${prefix}`).first)}/${prefix}:${from}-${from + more}`
      })
      const elements = elementsOf('egress_ports', texts).map(readElement)
      for (let address = parseIpv4('10.0.0.0'); address < parseIpv4('10.0.0.40'); address += 1) {
        for (let port = 1; port < 20; port += 1) {
          const named = texts.map(entry).some(entry => holds(entry, address) && holds(entry.ports ?? entry, port))
          const holding = elements.filter(([addresses, ports]) => holds(addresses, address) && holds(ports, port))
          expect(holding.length).toBe(named ? 1 : 0)
        }
      }
    }),
    { numRuns: 30 },
  )
})

type Range = { readonly first: number; readonly last: number }
const holds = ({ first, last }: Range, value: number) => first <= value && value <= last

function readElement(text: string): [addresses: Range, ports: Range] {
  const [addresses = '', ports = ''] = text.split(' . ')
  const range = (part: string, read: (text: string) => number) => {
    const [first = '', last = first] = part.split('-')
    return { first: read(first), last: read(last) }
  }
  return [range(addresses, parseIpv4), range(ports, Number)]
}

const aroundV6 = { pool: '2001:db8:88::/64', ownNetworks: ['2a0f:1::/64'], deniedV4: [rangeOf('10.0.0.0/8')] }
const elementsV6 = (set: string, allowed: readonly string[] = []) =>
  egressElementsV6({ ...aroundV6, allowed: allowed.flatMap(text => parseEgressEntryV6(text) ?? []) }).flatMap(
    ([name, element]) => (name === set ? [element] : []),
  )

test('goal: of IPv6 all is denied but what is given out for the world, less what is special, the pool and the networks of the host', () => {
  const denied = elementsV6('egress_denied_v6').map(text => {
    const [first = '', last = first] = text.split('-')
    return { first: parseIpv6(first), last: parseIpv6(last) }
  })
  const isDenied = (address: string) =>
    denied.some(({ first, last }) => first <= parseIpv6(address) && parseIpv6(address) <= last)
  for (const address of ['2000::1', '2003::1', '2400:cb00::1', '2620:fe::9', '2a0f:1:0:1::1', '64:ff9b::808:808'])
    expect([address, isDenied(address)]).toEqual([address, false])
  for (const address of [
    ...[
      '::',
      '::1',
      '::ffff:a00:1',
      '64:ff9b::a00:1',
      '64:ff9b:1::1',
      '100::1',
      'fc00::1',
      'fdff::1',
      'fe80::1',
      'fec0::1',
    ],
    ...[
      'ff02::1',
      '2001::1',
      '2001:db8::1',
      '2001:db8:88::1',
      '2002:a00:1::1',
      '3fff::1',
      '2a0f:1::1',
      '4000::',
      'ffff::',
    ],
  ])
    expect([address, isDenied(address)]).toEqual([address, true])
  // The kernel refuses what overlaps.
  for (const [at, item] of denied.entries()) expect(item.first > (denied[at - 1]?.last ?? -1n)).toBe(true)
})

test('goal: entries of IPv6 with ports become stretches that do not overlap', () => {
  expect(elementsV6('egress_allowed_v6', ['fd00::/16', 'fd00:1::/32', 'fd01::9'])).toEqual([
    'fd00::-fd00:ffff:ffff:ffff:ffff:ffff:ffff:ffff',
    'fd01::9',
  ])
  expect(elementsV6('egress_ports_v6', ['[fd00::/112]:443', '[fd00::5]:80-90', '[fd00::5]:443-444'])).toEqual([
    'fd00::-fd00::4 . 443',
    'fd00::5 . 80-90',
    'fd00::5 . 443-444',
    'fd00::6-fd00::ffff . 443',
  ])
})

test('goal: of an address that a name leads to, the same is denied and open as the firewall has it', () => {
  const v6 = {
    pool: '2a0f:88::/64',
    nextHop: 'fd73::1',
    source: { kind: 'pool' } as const,
    allowed: ['[fd00::/8]:443', '2a0f:88::/64', '::1'].flatMap(text => parseEgressEntryV6(text) ?? []),
  }
  const allowed = ['10.1.2.0/24:443', '172.16.0.0/12', '10.88.0.0/16', '127.0.0.1', '0.0.0.0/0:25'].map(entry)
  const to = { ...around, ownNetworks: [...around.ownNetworks, '2a0f:1::/64'], allowed, v6 }
  const kinds: Record<string, readonly string[]> = {
    world: ['198.51.100.7', '9.9.9.9', '2a0f:2::1', '64:ff9b::c633:6407'],
    open: ['10.1.2.3', '172.16.9.9', '192.168.1.1', '203.0.113.5', '169.254.169.254', 'fd00::9'],
    denied: [
      '10.88.0.7',
      '127.0.0.1',
      '0.0.0.0',
      '224.0.0.1',
      '255.255.255.255',
      '2a0f:88::5',
      '2a0f:1::5',
      '::1',
      'fe80::1',
      '64:ff9b::a01:203',
    ],
  }
  for (const [kind, addresses] of Object.entries(kinds))
    expect(addresses.map(address => [address, destinationKind(address, to)])).toEqual(
      addresses.map(address => [address, kind]),
    )
  const closed = { ...to, allowed: [], v6: { ...v6, allowed: [] } }
  for (const address of kinds.open ?? [])
    expect([address, destinationKind(address, closed)]).toEqual([address, 'denied'])
  expect(destinationKind('2a0f:2::1', { ...to, v6: null })).toBe('denied')
})

test('goal: the sets have the types and intervals that their rules match by', () => {
  expect([...EGRESS_SETS, ...EGRESS_SETS_V6].map(row => row.join(' '))).toEqual([
    'set host_addresses ipv4_addr',
    'set egress_denied ipv4_addr; flags interval',
    'set egress_allowed ipv4_addr; flags interval',
    'set egress_ports ipv4_addr . inet_service; flags interval',
    'set host_addresses_v6 ipv6_addr',
    'set guests_v6 ifname . ether_addr . ipv6_addr',
    'set egress_denied_v6 ipv6_addr; flags interval',
    'set egress_allowed_v6 ipv6_addr; flags interval',
    'set egress_ports_v6 ipv6_addr . inet_service; flags interval',
  ])
})

const four: EgressRules = {
  nextHop: '169.254.88.1',
  nextHopPorts: [8442],
  pool: '10.88.0.0/24',
  v6: null,
  servicePort: null,
  names: null,
  publicPorts: [],
}
const six = { nextHop: 'fd73::1', pool: '2001:db8:88::/64', source: { kind: 'pool' }, allowed: [] } as const
const rulesOf = (change: Partial<EgressRules>, chain: string) =>
  egressRules({ ...four, ...change }).flatMap(([name, rule]) => (name === chain ? [rule] : []))
const answers = 'echo-reply, destination-unreachable, time-exceeded, parameter-problem'

test('goal: the rules of each chain, in the order in which they decide', () => {
  const chains = {
    egress: [
      'ip daddr 169.254.88.1 tcp dport { 8442 } return',
      'ip daddr @host_addresses goto here',
      'tcp sport 22 tcp flags & (syn | ack) != syn accept',
      'meta l4proto { tcp, udp } goto destination',
      `icmp type != { echo-request, ${answers} } drop`,
      `icmp type { ${answers} } accept`,
      'meta l4proto != icmp drop',
      'goto destination',
    ],
    here: ['tcp flags & (fin | syn | rst | ack) == syn goto refuse', 'accept'],
    replies: [
      'ip daddr 169.254.88.1 tcp dport { 8442 } return',
      'tcp sport 22 ct direction original goto destination',
      'ct state established,related return',
      'ip daddr @host_addresses goto refuse',
      `icmp type { ${answers} } drop`,
    ],
    destination: ['ip daddr @egress_denied goto denied', 'tcp dport 25 goto denied'],
    denied: [
      'ip daddr { 0.0.0.0/8, 127.0.0.0/8, 224.0.0.0/3 } drop',
      'ip daddr 10.88.0.0/24 goto refuse',
      'ip daddr @egress_allowed return',
      'meta l4proto { tcp, udp } ip daddr . th dport @egress_ports return',
      'goto refuse',
    ],
    refuse: [
      'add @refusals { iifname limit rate 5/second burst 10 packets } reject with icmp admin-prohibited',
      'drop',
    ],
  }
  expect([...EGRESS_CHAINS] as string[]).toEqual(Object.keys(chains))
  for (const [chain, rules] of Object.entries(chains)) expect([chain, rulesOf({}, chain)]).toEqual([chain, rules])
  expect(egressRules(four)).toHaveLength(Object.values(chains).flat().length)
})

test('goal: what is open at the next hop is open at entry and after connection tracking, and nothing else is', () => {
  const opened = (change: Partial<EgressRules>) => {
    const [entry, after] = ['egress', 'replies'].map(chain =>
      rulesOf(change, chain).filter(rule => rule.endsWith(' return') && !rule.startsWith('ct state')),
    )
    expect(after).toEqual(entry ?? [])
    return entry
  }
  expect(opened({ nextHopPorts: [] })).toEqual([])
  expect(opened({ nextHopPorts: [], v6: six })).toEqual([])
  expect(opened({ nextHopPorts: [80, 8442], v6: six })).toEqual([
    'ip daddr 169.254.88.1 tcp dport { 80, 8442 } return',
    'ip6 daddr fd73::1 tcp dport { 80, 8442 } return',
  ])
  expect(opened({ nextHopPorts: [], servicePort: 8442 })).toEqual(['ip daddr @gateway_addresses tcp dport 8442 return'])
  const names = { nextHop: '169.254.88.1', nextHopV6: 'fd73::1', port: 53 }
  expect(opened({ nextHopPorts: [], names })).toEqual([
    'ip daddr 169.254.88.1 udp dport 53 return',
    'ip6 daddr fd73::1 udp dport 53 return',
  ])
})

test('goal: without IPv4 no pool is named; with IPv6 each decision stands beside that of IPv4', () => {
  expect(rulesOf({ pool: null }, 'denied')).toEqual(rulesOf({}, 'denied').filter(rule => !rule.includes('10.88.0.0')))
  expect(rulesOf({}, 'denied_v6')).toEqual([])
  expect([...EGRESS_CHAINS_V6]).toEqual(['denied_v6'])
  const added = (chain: string) => rulesOf({ v6: six }, chain).filter(rule => !rulesOf({}, chain).includes(rule))
  const answersV6 = 'echo-reply, destination-unreachable, packet-too-big, time-exceeded, parameter-problem'
  expect(Object.fromEntries([...EGRESS_CHAINS, ...EGRESS_CHAINS_V6].map(chain => [chain, added(chain)]))).toEqual({
    egress: [
      'ip6 daddr fd73::1 tcp dport { 8442 } return',
      'ip6 daddr @host_addresses_v6 goto here',
      `meta nfproto ipv6 icmpv6 type { ${answersV6} } accept`,
      'meta nfproto ipv6 goto destination',
    ],
    here: [],
    replies: [
      'ip6 daddr fd73::1 tcp dport { 8442 } return',
      'ip6 daddr @host_addresses_v6 goto refuse',
      `meta nfproto ipv6 icmpv6 type { ${answersV6} } drop`,
    ],
    destination: ['ip6 daddr @egress_denied_v6 goto denied_v6', 'meta nfproto ipv6 tcp dport 25 goto denied_v6'],
    denied: [],
    refuse: ['add @refusals { iifname limit rate 5/second burst 10 packets } reject with icmpx admin-prohibited'],
    denied_v6: [
      // With the unspecified and the loopback address.
      'ip6 daddr { ::/96, ::ffff:0:0/96, fe80::/10, ff00::/8 } drop',
      'ip6 daddr 2001:db8:88::/64 goto refuse',
      'ip6 daddr @egress_allowed_v6 return',
      'meta l4proto { tcp, udp } ip6 daddr . th dport @egress_ports_v6 return',
      'goto refuse',
    ],
  })
  expect([...ENTRY_RULES_V6] as string[]).toEqual([
    'iifname . ether saddr . ip6 saddr != @guests_v6 drop',
    'ip6 nexthdr != { tcp, udp, icmpv6 } drop',
    `meta nfproto ipv6 icmpv6 type != { echo-request, ${answersV6} } drop`,
  ])
})

test('goal: where names open the world, new flows and SSH answers that nobody asked for go to the list of names', () => {
  const names = { nextHop: '169.254.88.1', nextHopV6: null, port: 53 }
  expect(rulesOf({ names }, 'replies')).toEqual([
    // Queries above the rate, of one instance and of all.
    expect.stringMatching(/^ip daddr 169\.254\.88\.1 udp dport 53 add .* limit rate over 50\/second .* drop$/),
    expect.stringMatching(/^ip daddr 169\.254\.88\.1 udp dport 53 limit rate over 1000\/second .* drop$/),
    'ip daddr 169.254.88.1 tcp dport { 8442 } return',
    'ip daddr 169.254.88.1 udp dport 53 return',
    'tcp sport 22 ct direction original ct state new goto names',
    ...rulesOf({}, 'replies').slice(1),
    'goto names',
  ])
  expect(rulesOf({}, 'names')).toEqual([])
  expect(rulesOf({ names }, 'names')[0]).toBe('ip daddr @egress_allowed goto destination')
})

test('goal: sets hold 16,384 addresses of each family, twice as many as the daemon remembers', () => {
  const lines = nameSetLines('inet strongroom', { port: 53, isStale: false })
  expect(lines.slice(0, 2)).toEqual([
    'add set inet strongroom names_v4 { type ipv4_addr; size 16384; flags timeout; }',
    'add set inet strongroom names_v6 { type ipv6_addr; size 16384; flags timeout; }',
  ])
  expect(namedAddressesMax).toBe(8_192)
})

test('goal: addresses of another list go, those of this one stay', () => {
  const flushes = (isStale: boolean) =>
    nameSetLines('inet strongroom', { port: 53, isStale }).filter(line => line.startsWith('flush set'))
  expect(flushes(false)).toEqual([])
  expect(flushes(true)).toEqual(['flush set inet strongroom names_v4', 'flush set inet strongroom names_v6'])
})

test('goal: an address is open for whole seconds, one at least', () => {
  const seconds = (timeoutMs: number) =>
    /timeout (\d+)s/.exec(openNamesText('strongroom', [{ address: '198.51.100.7', timeoutMs }]))?.[1]
  expect([0, 1, 1_000, 1_001, 90_000].map(seconds)).toEqual(['1', '1', '1', '2', '90'])
})
