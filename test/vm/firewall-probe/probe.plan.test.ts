// Goal: the packets that are tested follow the configuration, their bytes are right, and the remedy names the rules.

import { expect, test } from 'bun:test'
import { defaultConfig } from '../../../src/config/load.ts'
import type { Config } from '../../../src/config/schema.ts'
import { droppedRemedy, droppedText } from '../../../src/vm/firewall-probe/dropping-chain.plan.ts'
import { probeFrame } from '../../../src/vm/firewall-probe/frame.codec.ts'
import {
  addressIn,
  counterName,
  type Ends,
  type Need,
  neededPackets,
  observerText,
  PROBES,
  probesOf,
  probeTapOf,
  uplinkBatch,
} from '../../../src/vm/firewall-probe/probe.plan.ts'
import { probeAddress } from '../../../src/vm/network/probe-address.plan.ts'

const { snapshots, ...others } = defaultConfig()
const usual: Config = { ...others, snapshots: { ...snapshots, kept_per_instance: 0 } }
const names = (change: { [Key in keyof Config]?: Partial<Config[Key]> }) =>
  neededPackets({
    ...usual,
    listen: { ...usual.listen, ...change.listen },
    network: { ...usual.network, ...change.network },
    inference: { ...usual.inference, ...change.inference },
    builds: { ...usual.builds, ...change.builds },
    snapshots: { ...usual.snapshots, ...change.snapshots },
  }).map(({ name, mappedPort }) => `${name}${mappedPort === null ? '' : ` -> ${mappedPort}`}`)
const off = { instances: '127.0.0.1:8441', inference: '', builds: '', dns: '' }
const basic = ['SSH to instances', 'what instances send', 'what is forwarded for others']

test('goal: packets of the configuration, and none of what is off, on loopback or on a free port', () => {
  expect(names({ listen: off })).toEqual(basic)
  expect(names({ listen: { ...off, dns: '0.0.0.0:0', inference: '[::1]:0' } })).toEqual(basic)
  expect(names({ listen: { ...off, dns: '192.0.2.1:53' } }).slice(3)).toEqual([
    'clients to the DNS (tcp 53)',
    'clients to the DNS (udp 53)',
  ])
  const six = basic.map(name => `${name} by IPv6`)
  expect(names({ listen: off, network: { pool_v6: '2001:db8:88::/64' } })).toEqual([...basic, ...six])
  expect(names({ listen: off, network: { pool_v4: '', pool_v6: '2001:db8:88::/64' } })).toEqual(six)
  const builds = {
    listen: { ...off, builds: '0.0.0.0:8443' },
    builds: { fetch_hosts: ['git.example'], fetch_port: 9999 },
  }
  expect(names(builds)).toEqual([
    ...basic.slice(0, 2),
    'instances to port 9999 of this host',
    ...basic.slice(2),
    'clients to service C (tcp 8443)',
  ])
  expect(names({ listen: off, network: { allow_names: ['crates.io'] } })).toContain('questions of instances for names')
})

test('goal: snapshots need their port by the family that instances use for it, unless they are off', () => {
  const kept = { kept_per_instance: 1, port: 9_999 }
  const port = 'instances to port 9999 of this host'
  const [v6, alone] = [{ pool_v6: '2001:db8:88::/64' }, { pool_v4: '', pool_v6: '2001:db8:88::/64' }]
  const found = (network: Partial<Config['network']>) =>
    names({ listen: off, snapshots: kept, network }).filter(name => name.startsWith(port))
  expect([found({}), found(v6), found(alone)]).toEqual([[port], [port], [`${port} by IPv6`]])
  expect(names({ listen: off, snapshots: { ...kept, kept_per_instance: 0 } })).toEqual(basic)
})

test('goal: the gateway is reached where it is: on this host, or mapped to the port of its VM', () => {
  const listen = { ...off, inference: '0.0.0.0:9000' }
  const both = ['instances to the gateway (tcp 9000)', 'clients to service B (tcp 9000)']
  expect(names({ listen, inference: { placement: 'host' } })).toEqual(expect.arrayContaining(both))
  const inVm = names({ listen, inference: { placement: 'vm' } })
  expect(inVm).toContain('clients to service B (tcp 9000) -> 8442')
  // Instances reach it within their own namespace.
  expect(inVm.filter(name => name.startsWith('instances to the gateway'))).toEqual([])
})

test('goal: addresses that no VM gets, and addresses of the networks that are named', () => {
  expect([probeAddress('10.88.0.0/24', 'first'), probeAddress('10.88.0.0/24', 'last')]).toEqual([
    '10.88.0.0',
    '10.88.0.255',
  ])
  expect(probeAddress('2001:db8::/64', 'last')).toBe('2001:db8::ffff:ffff:ffff:ffff')
  expect([addressIn('192.0.2.0/24', 0xffff_ffff), addressIn('192.0.2.7/32', 5)]).toEqual(['192.0.2.255', '192.0.2.7'])
  expect(addressIn('2001:db8::/48', 0xabcd_0123)).toBe('2001:db8::abcd:123')
})

test('goal: the remedy names the rules for what is dropped, and the field for who is let through on purpose', () => {
  const remedy = (kind: string) =>
    droppedRemedy(
      neededPackets({ ...usual, inference: { ...usual.inference, placement: 'host' } }).filter(
        need => need.kind === kind,
      ),
      usual,
    )
  expect(remedy('instances')).toStartWith('let it pass, as "iifname sr* accept", "oifname sr* accept" do in nft, ')
  expect(remedy('services')).toStartWith(
    'let it pass, as "tcp dport 8441 accept", "tcp dport 8442 accept", "tcp dport 53',
  )
  expect(remedy('instances')).toEndWith('name one of those in network.probe_peers instead.')
})

test('goal: the frames of both families and protocols, byte for byte', () => {
  const ports = { sourcePort: 40_000, port: 22, nonce: 0xdead_beef }
  const four = { family: 'ipv4', source: '192.175.48.7', destination: '10.88.0.255', ...ports } as const
  const six = { family: 'ipv6', source: '2620:4f:8000::7', destination: '2001:db8::1', ...ports } as const
  const hex = (...of: Parameters<typeof probeFrame>) => Buffer.from(probeFrame(...of)).toString('hex')
  const mac = '0a:73:74:72:6f:6e'
  const ether = '0a7374726f6e02737267707a'
  expect(hex({ ...four, protocol: 'tcp' }, mac)).toBe(
    [ether, '0800', '450000280000000040067ec3c0af30070a5800ff', '9c400016deadbeef000000005002faf07ef00000'].join(''),
  )
  expect(hex({ ...four, protocol: 'udp' }, mac)).toBe(
    [ether, '0800', '450000200000000040117ec0c0af30070a5800ff', '9c400016000cc9d4deadbeef'].join(''),
  )
  expect(hex({ ...six, protocol: 'tcp' }, mac)).toBe(
    [
      ether,
      '86dd',
      '60000000001406402620004f80000000000000000000000720010db8000000000000000000000001',
      '9c400016deadbeef000000005002faf0a6cd0000',
    ].join(''),
  )
  expect(hex({ ...six, protocol: 'udp' }, mac)).toBe(
    [
      ether,
      '86dd',
      '60000000000c11402620004f80000000000000000000000720010db8000000000000000000000001',
      '9c400016000cf1b1deadbeef',
    ].join(''),
  )
})

test('goal: each packet has the port and the ends of what it stands for', () => {
  const of = (change: Parameters<typeof names>[0]['listen'], network: object = {}) =>
    neededPackets({
      ...usual,
      listen: { ...usual.listen, ...off, ...change },
      network: { ...usual.network, ...network },
    }).map(({ kind, family, name, from, to, protocol, port }) => [name, kind, family, from, to, `${protocol} ${port}`])
  const inside = (family: string, by: string) => [
    [`SSH to instances${by}`, 'instances', family, 'world', 'instance', 'tcp 22'],
    [`what instances send${by}`, 'instances', family, 'instance', 'world', 'tcp 443'],
    [`what is forwarded for others${by}`, 'others', family, 'world', 'stranger', 'tcp 443'],
  ]
  expect(of({}, { pool_v6: '2001:db8:88::/64' })).toEqual([...inside('ipv4', ''), ...inside('ipv6', ' by IPv6')])
  expect(of({ console: '192.0.2.1:8445' }).slice(3)).toEqual([
    ['clients to the console (tcp 8445)', 'services', 'ipv4', 'world', 'host', 'tcp 8445'],
  ])
  expect(of({ instances: '0.0.0.0:8441' }).slice(3)).toEqual([
    ['clients to service A (tcp 8441)', 'services', 'ipv4', 'world', 'host', 'tcp 8441'],
  ])
})

test('goal: builds need the way to fetch only where they are on and may fetch something', () => {
  for (const [builds, fetch_hosts] of [
    ['', ['git.example']],
    ['0.0.0.0:8443', []],
  ] as const)
    expect(names({ listen: { ...off, builds }, builds: { fetch_hosts: [...fetch_hosts] } }).join()).not.toContain(
      'instances to port',
    )
})

test('goal: a random number beyond a small network of IPv6 begins anew in it', () => {
  expect([0, 3, 4, 7].map(random => addressIn('2001:db8::/126', random))).toEqual([
    '2001:db8::',
    '2001:db8::3',
    '2001:db8::',
    '2001:db8::3',
  ])
})

test('goal: the daemon’s and doctor’s probes meet neither in their taps nor in their addresses', () => {
  expect([probeTapOf('daemon', 'sr'), probeTapOf('doctor', 'sr')]).toEqual(['srprobe', 'srdoctor'])
  expect([PROBES.daemon.address, PROBES.doctor.address]).toEqual(['last', 'first'])
})

const ends = (family: 'ipv4' | 'ipv6'): Ends =>
  family === 'ipv4'
    ? {
        world: '192.175.48.7',
        stranger: '198.51.100.9',
        instance: '10.88.0.255',
        nextHop: '169.254.88.1',
        host: '192.0.2.1',
        uplink: 'eth0',
      }
    : {
        world: '2620:4f:8000::7',
        stranger: '2001:db8:2::9',
        instance: '2001:db8:88::ffff',
        nextHop: 'fd73::1',
        host: '2001:db8::1',
        uplink: 'eth1',
      }
const need = (change: Partial<Need> = {}): Need => ({
  kind: 'instances',
  family: 'ipv4',
  name: 'n',
  from: 'world',
  to: 'instance',
  protocol: 'tcp',
  port: 22,
  mappedPort: null,
  ...change,
})

test('goal: each packet goes from end to end, from a port of 32768 to 60767, with a number of its own', () => {
  const numbers = [0, 7, 27_999, 8, 28_000, 9]
  const random = () => numbers.shift() ?? 0
  const needs = [need(), need({ from: 'instance', to: 'world' }), need({ to: 'host' }), need({ family: 'ipv6' })]
  const sent = probesOf(needs, { ipv4: ends('ipv4'), ipv6: null }, random)
  expect(sent.map(({ source, destination, sourcePort, nonce }) => [source, destination, sourcePort, nonce])).toEqual([
    ['192.175.48.7', '10.88.0.255', 32_768, 7],
    ['10.88.0.255', '192.175.48.7', 60_767, 8],
    ['192.175.48.7', '192.0.2.1', 32_768, 9],
  ])
})

test('goal: what comes from the world enters by the uplink of its family, where there is one', () => {
  const filter = (protocol: string, prio: number) =>
    `filter replace dev srprobe ingress protocol ${protocol} prio ${prio} handle 800::800 u32 match`
  const four = `${filter('ip', 1)} ip src 192.175.48.7 action mirred ingress redirect dev eth0`
  const six = `${filter('ipv6', 2)} ip6 src 2620:4f:8000::7 action mirred ingress redirect dev eth1`
  const batch = (ipv4: Ends | null, ipv6: Ends | null) => uplinkBatch('srprobe', { ipv4, ipv6 }).split('\n')
  expect(batch(ends('ipv4'), ends('ipv6'))).toEqual(['qdisc replace dev srprobe clsact', four, six, ''])
  expect(batch(null, ends('ipv6'))).toEqual(['qdisc replace dev srprobe clsact', six, ''])
  expect(batch(null, null)).toEqual(['qdisc replace dev srprobe clsact', ''])
})

test('goal: the observer counts and drops each packet behind all others, and lets no answer of a firewall out', () => {
  const numbers = [0, 11, 0, 12, 0, 13]
  const probes = probesOf(
    [need(), need({ protocol: 'udp', port: 53, to: 'host' }), need({ port: 9000, to: 'host', mappedPort: 8442 })],
    { ipv4: ends('ipv4'), ipv6: null },
    () => numbers.shift() ?? 0,
  )
  const counted = [
    '    tcp dport 22 tcp sequence 11 counter name probe0 drop',
    '    udp dport 53 @th,64,32 12 counter name probe1 drop',
    // It is counted where it has been translated.
    '    tcp dport 8442 tcp sequence 13 counter name probe2 drop',
  ]
  const expected = [
    'add table inet srprobe',
    'delete table inet srprobe',
    'table inet srprobe {',
    '  counter probe0 { }',
    '  counter probe1 { }',
    '  counter probe2 { }',
    '  chain mapped {',
    '    type nat hook prerouting priority dstnat - 1; policy accept;',
    '    tcp dport 9000 tcp sequence 13 dnat ip to 10.88.0.255:8442',
    '  }',
    '  chain arrived {',
    '    type filter hook input priority 2147483646; policy accept;',
    ...counted,
    '  }',
    '  chain left {',
    '    type filter hook postrouting priority 2147483646; policy accept;',
    ...counted,
    '    ip daddr 192.175.48.7 drop',
    '    ip6 daddr 2620:4f:8000::7 drop',
    '  }',
    '}',
    '',
  ]
  expect(observerText('srprobe', probes, { ipv4: ends('ipv4'), ipv6: ends('ipv6') }).split('\n')).toEqual(expected)
  const alone = observerText('srprobe', probes, { ipv4: ends('ipv4'), ipv6: null }).split('\n')
  expect(alone).toEqual(expected.filter(line => !line.includes('ip6')))
  expect([0, 12].map(counterName)).toEqual(['probe0', 'probe12'])
})

test('goal: what is dropped is one line, and a mapped port is let through at the taps', () => {
  expect(droppedText([])).toBeNull()
  expect(droppedText([need({ name: 'a' }), need({ name: 'b' })])).toBe('a firewall of this host drops a and b')
  expect(droppedText([need({ name: 'a' }), need({ name: 'b' }), need({ name: 'c' })])).toEndWith(' drops a, b and c')
  const remedy = (...dropped: Need[]) =>
    /as (.*) do in nft/.exec(droppedRemedy(dropped, { network: { ...usual.network, probe_peers: ['p', 'q'] } }))?.[1]
  const taps = '"iifname sr* accept", "oifname sr* accept"'
  expect(remedy(need({ kind: 'services', port: 9000, mappedPort: 8442 }))).toBe(taps)
  expect(remedy(need({ kind: 'services', protocol: 'udp', port: 53 }))).toBe('"udp dport 53 accept"')
  expect(remedy(need(), need({ kind: 'services', port: 8441 }))).toBe(`${taps}, "tcp dport 8441 accept"`)
  expect(droppedRemedy([need()], { network: { ...usual.network, probe_peers: ['p', 'q'] } })).toContain(
    'The test packets come from p and q; ',
  )
})

test('goal: a checksum whose sum is all ones is 0 (RFC 1071)', () => {
  // The checksum of the frame above is 7ef0: with 7ef0 more in one word nothing is left of it.
  const packet = {
    family: 'ipv4',
    protocol: 'tcp',
    source: '192.175.48.7',
    destination: '10.88.0.255',
    sourcePort: 40_000,
    port: 22 + 0x7ef0,
    nonce: 0xdead_beef,
  } as const
  const frame = Buffer.from(probeFrame(packet, '0a:73:74:72:6f:6e'))
  expect(frame.subarray(-20).toString('hex')).toBe('9c407f06deadbeef000000005002faf000000000')
})
