// Goal: which packets have to pass follows the configuration: what is off, or for this host alone, is not asked for.

import { expect, test } from 'bun:test'
import { defaultConfig } from '../../../src/config/load.ts'
import { neededPackets } from '../../../src/vm/foreign-firewalls/foreign.plan.ts'
import { firewallSite } from '../../../src/vm/foreign-firewalls/site.plan.ts'

const config = defaultConfig()

test('goal: with the gateway in its VM its clients are forwarded; on the host they come in', () => {
  expect(firewallSite(config, 'eth0')).toEqual({
    tapPrefix: 'sr',
    pool: '10.88.0.0/24',
    gateway: '169.254.88.1',
    uplink: 'eth0',
    services: [
      { name: 'service A', protocol: 'tcp', port: 8441 },
      { name: 'the DNS', protocol: 'tcp', port: 53 },
      { name: 'the DNS', protocol: 'udp', port: 53 },
    ],
    guestPorts: [],
    v6: null,
    guestDnsPort: null,
    gatewayVmPort: 8442,
  })
  const onHost = firewallSite({ ...config, inference: { ...config.inference, placement: 'host' } }, 'eth0')
  expect([onHost.gatewayVmPort, onHost.guestPorts]).toEqual([null, [8442]])
  expect(onHost.services.map(service => service.port)).toEqual([8441, 8442, 53, 53])
})

test('goal: with IPv6 the same is needed by it, of the networks that instances have; and where they ask for names', () => {
  const network = { ...config.network, pool_v6: '2001:db8:88::/64', allow_names: ['crates.io'] }
  const inference = { ...config.inference, placement: 'host' } as const
  const listen = { ...config.listen, instances: '', builds: '', dns: '' }
  const namesOf = (change: Partial<typeof network>) => {
    const site = firewallSite({ ...config, inference, listen, network: { ...network, ...change } }, 'eth0')
    return neededPackets(site).flatMap(({ kind, packet }) => (kind === 'instances' ? [packet.name] : []))
  }
  const each = [
    ...['SSH to instances', 'answers of their SSH', 'what instances send', 'answers to instances'],
    ...['instances to port 8442 of this host', 'questions of instances for names'],
  ]
  const byV6 = each.map(name => `${name} by IPv6`)
  expect(namesOf({})).toEqual([...each, ...byV6])
  expect(namesOf({ pool_v4: '' })).toEqual(byV6)
  expect(namesOf({ pool_v6: '', allow_names: [] })).toEqual(each.slice(0, 5))
})

test('goal: what is off, on loopback, or on any free port asks for nothing; builds that fetch ask for their port', () => {
  const listen = { instances: '127.0.0.1:8441', inference: '', builds: '192.0.2.1:8443', dns: '0.0.0.0:0' }
  const site = firewallSite({ ...config, listen, builds: { ...config.builds, fetch_hosts: ['git.example'] } }, null)
  expect(site.services).toEqual([{ name: 'service C', protocol: 'tcp', port: 8443 }])
  expect([site.guestPorts, site.gatewayVmPort]).toEqual([[config.builds.fetch_port], null])
})

test('goal: SSH to instances and back, and what they send and its answers, are always needed', () => {
  const listen = { instances: '127.0.0.1:8441', inference: '', builds: '', dns: '' }
  const needs = neededPackets(firewallSite({ ...config, listen }, null))
  expect(needs.map(({ kind, packet }) => [kind, packet.name])).toEqual([
    ['instances', 'SSH to instances'],
    ['instances', 'answers of their SSH'],
    ['instances', 'what instances send'],
    ['instances', 'answers to instances'],
  ])
})
