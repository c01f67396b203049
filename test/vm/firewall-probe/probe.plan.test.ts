// Goal: the packets that are tested follow the configuration, their bytes are right, and the remedy names the rules.

import { expect, test } from 'bun:test'
import { defaultConfig } from '../../../src/config/load.ts'
import type { Config } from '../../../src/config/schema.ts'
import { probeFrame } from '../../../src/vm/firewall-probe/frame.codec.ts'
import { addressIn, droppedRemedy, neededPackets, probeAddress } from '../../../src/vm/firewall-probe/probe.plan.ts'

const usual = defaultConfig()
const names = (change: { [Key in keyof Config]?: Partial<Config[Key]> }) =>
  neededPackets({
    ...usual,
    listen: { ...usual.listen, ...change.listen },
    network: { ...usual.network, ...change.network },
    inference: { ...usual.inference, ...change.inference },
    builds: { ...usual.builds, ...change.builds },
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
  expect(remedy('instances')).toEndWith('name those in network.probe_peers')
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
