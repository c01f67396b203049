// Goal: the engine's settings follow the configuration.

import { expect, test } from 'bun:test'
import { firewallSettings, hostTableSettings, poolsOf } from '../../src/appliance/engine.ts'
import { rangeOfV6 } from '../../src/base/ipv6.ts'
import { guestGateway } from '../../src/config/listen.ts'
import { parseConfig } from '../../src/config/parse.ts'
import { guestGatewayName } from '../../src/contract/vm/agent.ts'
import { rulesetText } from '../../src/vm/network/nft.plan.ts'

const onHost = { gatewayInVm: false } as const
const none = {
  ownNetworks: [],
  hostAddresses: [],
  names: null,
  gatewayVmService: null,
  vms: [],
  removed: { quotas: [], counters: [] },
} as const
const gatewayRules = (toml: string) => {
  const verdict = parseConfig(toml, 'f')
  if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
  const text = rulesetText({ ...firewallSettings(verdict.config, onHost), ...none })
  const rules = text.split('\n').filter(line => line.includes('dport') && line.includes(' egress '))
  return { rules, baseUrl: guestGateway(verdict.config, guestGatewayName).baseUrl }
}

test('goal: the firewall lets instances through to the port that they are told, and to no other', () => {
  const table: [listen: string, port: string | null][] = [
    ['0.0.0.0:8442', '8442'],
    ['0.0.0.0:9000', '9000'],
    ['', null],
  ]
  for (const [listen, port] of table) {
    const { rules, baseUrl } = gatewayRules(`[listen]\ninference = "${listen}"\n`)
    const rule = `add rule inet strongroom egress ip daddr 169.254.88.1 tcp dport { ${port} } return`
    expect([listen, rules]).toEqual([listen, port === null ? [] : [rule]])
    if (port !== null) expect(new URL(baseUrl).host).toBe(`inference.strongroom.internal:${port}`)
  }
})

test('goal: build VMs reach the fetch proxy where builds may fetch, and nothing where they may not', () => {
  const hosts = '[builds]\nfetch_hosts = ["git.example"]\nfetch_port = 9999\n'
  const table: [toml: string, port: number | null][] = [
    ['', null],
    ['[listen]\nbuilds = "0.0.0.0:8443"\n', null],
    [hosts, null],
    [`[listen]\nbuilds = "0.0.0.0:8443"\n${hosts}`, 9999],
  ]
  for (const [toml, port] of table) {
    const verdict = parseConfig(toml, 'f')
    expect([toml, verdict.ok && firewallSettings(verdict.config, onHost).fetchPort]).toEqual([toml, port])
  }
})

test('goal: this host takes connections for a gateway in a VM where it would listen itself, and else leaves them alone', () => {
  const table = [
    ['0.0.0.0:8442', { address: '0.0.0.0', port: 8442 }],
    ['192.0.2.1:9000', { address: '192.0.2.1', port: 9000 }],
    ['[::]:8442', { address: '0.0.0.0', port: 8442 }],
    ['[2001:db8::1]:8442', { address: null, port: 8442 }],
    ['', null],
  ] as const
  for (const [listen, taken] of table) {
    const verdict = parseConfig(`[listen]\ninference = "${listen}"\n`, 'f')
    if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
    for (const settings of [firewallSettings, hostTableSettings]) {
      const listensAt = (gatewayInVm: boolean) => settings(verdict.config, { gatewayInVm }).gatewayListen
      expect([listen, listensAt(true), listensAt(false)]).toEqual([listen, taken, null])
    }
  }
})

test('goal: where instances may go is what the configuration says, and the resolvers that they are told of', () => {
  const settingsOf = (toml: string) => {
    const verdict = parseConfig(toml, 'f')
    if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
    return { ...hostTableSettings(verdict.config, onHost), ...firewallSettings(verdict.config, onHost) }
  }
  const { pool, egress, source, dropOthers } = settingsOf('')
  expect([pool, source, dropOthers]).toEqual(['10.88.0.0/24', { kind: 'masquerade' }, false])
  expect(egress.allowed.map(({ ports }) => ports)).toEqual([
    { first: 53, last: 53 },
    { first: 53, last: 53 },
  ])
  const changed = settingsOf(
    '[network]\npool_v4 = "10.9.0.0/24"\nresolvers = ["10.1.1.1"]\nforward_others = "drop"\n[network.egress]\nallow = ["10.2.0.0/16"]\nsource = "pool"\nflows_max = 7\nnew_flows_per_s_max = 3',
  )
  expect(changed).toMatchObject({
    pool: '10.9.0.0/24',
    dropOthers: true,
    source: { kind: 'pool' },
    egress: {
      allowed: [
        { first: 0x0a02_0000, last: 0x0a02_ffff, ports: null },
        { first: 0x0a01_0101, last: 0x0a01_0101, ports: { first: 53, last: 53 } },
      ],
      flowsMax: 7,
      newFlowsPerSecondMax: 3,
    },
  })
})

test('goal: IPv6 is as the configuration says, and none where it says nothing', () => {
  const settingsOf = (toml: string) => {
    const verdict = parseConfig(toml, 'f')
    if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
    return {
      ...hostTableSettings(verdict.config, onHost),
      ...firewallSettings(verdict.config, onHost),
      pools: poolsOf(verdict.config),
      told: guestGateway(verdict.config, guestGatewayName),
    }
  }
  expect(settingsOf('')).toMatchObject({
    v6: null,
    sourceV6: null,
    nextHopV6: null,
    pools: { v4: '10.88.0.0/24', v6: null },
  })
  const pool = 'pool_v6 = "2001:db8:88::/64"'
  const allow = '[network.egress]\nallow = ["10.2.0.0/16", "[fd00::/8]:443"]'
  const both = settingsOf(`[network]\n${pool}\nresolvers = ["9.9.9.9", "2620:fe::9"]\n${allow}`)
  expect(both).toMatchObject({ pool: '10.88.0.0/24', told: { address: '169.254.88.1' } })
  expect(both.egress.allowed.length).toBe(2)
  expect(both.v6).toEqual({
    pool: '2001:db8:88::/64',
    nextHop: 'fd73:7472:6f6e:67::1',
    allowed: [
      { ...rangeOfV6('fd00::/8'), ports: { first: 443, last: 443 } },
      { ...rangeOfV6('2620:fe::9'), ports: { first: 53, last: 53 } },
    ],
  })
  expect(both.sourceV6).toEqual({ kind: 'pool' })
  const alone = settingsOf(`[listen]\ninference = ""\n[network]\npool_v4 = ""\n${pool}\nresolvers = []`)
  expect(alone).toMatchObject({
    pool: null,
    pools: { v4: null, v6: '2001:db8:88::/64' },
    told: { address: both.v6?.nextHop },
  })
})

test('goal: connections to the address for other hosts of a fleet are counted, as those to the services are', () => {
  const portsOf = (toml: string) => {
    const verdict = parseConfig(toml, 'f')
    if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
    return hostTableSettings(verdict.config, onHost).services.ports
  }
  const alone = portsOf('')
  const fleet = 'database = "postgres://u@127.0.0.1/d"'
  expect(portsOf(`[fleet]\n${fleet}`)).toEqual(alone)
  expect(portsOf(`[fleet]\n${fleet}\npeer_listen = "192.0.2.1:7443"`)).toEqual([...alone, 7443])
})
