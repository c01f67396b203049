// The packets that must pass all firewalls of this host, and the table that counts those that do. Pure.
//
// The appliance sends one packet of each kind through this host's kernel and counts it behind every firewall, where it
// is dropped. So the result is correct for any firewall software, and nothing leaves the host.

import { formatIpv4, rangeOf } from '../../base/ipv4.ts'
import { formatIpv6, rangeOfV6 } from '../../base/ipv6.ts'
import { guestDnsPort, guestGateway, LISTENERS, type Listener, listenAddress } from '../../config/listen.ts'
import type { Config } from '../../config/schema.ts'
import { guestGatewayName } from '../../contract/vm/agent.ts'
import { gatewayVmPort } from '../../contract/vm/enclave.ts'
import { publicTlsPort } from '../../contract/vm/orders/published.ts'
import { probeTaps } from '../network/nft.plan.ts'
import type { ProbePacket } from './frame.codec.ts'

export const FAMILIES = ['ipv4', 'ipv6'] as const
export type Family = (typeof FAMILIES)[number]

/**
 * `instances`: dropping it makes a ready instance unreachable or cuts it off. `services`: from clients outside.
 * `others`: forwarded by this host for third parties.
 */
export type NeedKind = 'instances' | 'services' | 'others'

/**
 * `world` and `stranger`: addresses outside. `nextHop`: that of instances. `host`: the address of this host for clients
 * outside.
 */
type End = 'world' | 'stranger' | 'instance' | 'nextHop' | 'host'

/** A packet that must pass. It enters by the uplink if it is from the world, otherwise by the link to VMs. */
export type Need = Pick<ProbePacket, 'family' | 'protocol' | 'port'> & {
  readonly kind: NeedKind
  /** Shown to the operator. */
  readonly name: string
  readonly from: End
  readonly to: End
  /** Port of an instance to which the connection is translated, as for the gateway's VM. Null if there is none. */
  readonly mappedPort: number | null
}

/** Addresses of one family, and the interface through which this host reaches the world. */
export type Ends = Readonly<Record<End | 'uplink', string>>

/** Null if this host has no route to the world for that family, or the probe does not need it. */
export type EndsOf = Readonly<Record<Family, Ends | null>>

type Probe = Need & ProbePacket

export function neededPackets(config: Config): Need[] {
  const { listen, network, inference, builds } = config
  const isGatewayInVm = listen.inference !== '' && inference.placement === 'vm'
  const mappedPort = isGatewayInVm ? gatewayVmPort : null
  const snapshotPorts = config.snapshots.kept_per_instance === 0 ? [] : [config.snapshots.port]
  const fetchPorts = listen.builds !== '' && builds.fetch_hosts.length > 0 ? [builds.fetch_port] : []
  const inFamily = (family: Family, guestPorts: readonly number[]): Need[] => {
    const of = { kind: 'instances', family, protocol: 'tcp', mappedPort: null } as const
    const here = { ...of, from: 'instance', to: 'nextHop' } as const
    const by = family === 'ipv6' ? ' by IPv6' : ''
    return [
      { ...of, name: `SSH to instances${by}`, from: 'world', to: 'instance', port: 22 },
      ...(config.tls.acme.published_per_week === 0
        ? []
        : [
            {
              ...of,
              name: `clients to published ports${by}`,
              from: 'world',
              to: 'instance',
              port: publicTlsPort,
            } as const,
          ]),
      { ...of, name: `what instances send${by}`, from: 'instance', to: 'world', port: 443 },
      // A gateway in a VM is reached within the namespace of VMs.
      ...(isGatewayInVm ? [] : guestGateway(config, guestGatewayName).ports).map(port => ({
        ...here,
        name: `instances to the gateway (tcp ${port})${by}`,
        port,
      })),
      ...guestPorts.map(port => ({ ...here, name: `instances to port ${port} of this host${by}`, port })),
      ...(network.allow_names.length === 0
        ? []
        : [{ ...here, name: `questions of instances for names${by}`, protocol: 'udp' as const, port: guestDnsPort }]),
      { ...of, kind: 'others', name: `what is forwarded for others${by}`, from: 'world', to: 'stranger', port: 443 },
    ]
  }
  return [
    ...(network.pool_v4 === '' ? [] : inFamily('ipv4', [...fetchPorts, ...snapshotPorts])),
    ...(network.pool_v6 === '' ? [] : inFamily('ipv6', network.pool_v4 === '' ? snapshotPorts : [])),
    ...LISTENERS.filter(name => isFromOutside(listen[name])).flatMap(name => {
      const { port } = listenAddress(listen[name])
      const protocols = name === 'dns' ? (['tcp', 'udp'] as const) : (['tcp'] as const)
      return protocols.map(
        (protocol): Need => ({
          kind: 'services',
          family: 'ipv4',
          name: `clients to ${NAMES[name]} (${protocol} ${port})`,
          from: 'world',
          to: 'host',
          protocol,
          port,
          mappedPort: name === 'inference' ? mappedPort : null,
        }),
      )
    }),
  ]
}

const NAMES = {
  instances: 'service A',
  inference: 'service B',
  builds: 'service C',
  dns: 'the DNS',
  console: 'the console',
  metrics: 'the metrics',
} as const satisfies Record<Listener, string>

/**
 * Reports whether clients outside reach the service: it is on, not on a port chosen by the kernel (tests), and not on a
 * loopback address.
 */
function isFromOutside(listen: string): boolean {
  if (listen === '') return false
  const { hostname, port } = listenAddress(listen)
  return port !== 0 && !hostname.startsWith('127.') && hostname !== '::1'
}

/** Returns an address of a network of either family, selected by a random number below 2^32. */
export function addressIn(network: string, random: number): string {
  if (!network.includes(':')) {
    const { first, last } = rangeOf(network)
    return formatIpv4(first + (random % (last - first + 1)))
  }
  const { first, last } = rangeOfV6(network)
  return formatIpv6(first + (BigInt(random) % (last - first + 1n)))
}

/** Returns the packets to send, if both ends are known. `random` returns numbers below 2^32. */
export function probesOf(needs: readonly Need[], endsOf: EndsOf, random: () => number): Probe[] {
  return needs.flatMap(need => {
    const ends = endsOf[need.family]
    if (ends === null) return []
    const sourcePort = 32_768 + (random() % 28_000)
    return [{ ...need, source: ends[need.from], destination: ends[need.to], sourcePort, nonce: random() }]
  })
}

/** Returns commands for `tc -batch -`, by which packets from the world's tap enter this host by the uplink instead. */
export function uplinkBatch(tap: string, endsOf: EndsOf): string {
  const filters = FAMILIES.flatMap((family, index) => {
    const { uplink, world } = endsOf[family] ?? {}
    const [protocol, match] = family === 'ipv4' ? ['ip', 'ip'] : ['ipv6', 'ip6']
    const filter = `filter replace dev ${tap} ingress protocol ${protocol} prio ${index + 1} handle 800::800`
    return uplink === undefined
      ? []
      : [`${filter} u32 match ${match} src ${world} action mirred ingress redirect dev ${uplink}`]
  })
  return `${[`qdisc replace dev ${tap} clsact`, ...filters].join('\n')}\n`
}

/** Before the connection is stored (NF_IP_PRI_CONNTRACK_CONFIRM, 2^31 - 1), so that none is. */
const last = 2_147_483_646

/**
 * Returns the text of a table with the tap's name. It counts and drops each probe behind the chains of all others, and
 * drops a firewall's answers.
 */
export function observerText(tap: string, probes: readonly Probe[], endsOf: EndsOf): string {
  const matchOf = ({ protocol, port, mappedPort, nonce }: Probe) =>
    protocol === 'tcp'
      ? `tcp dport ${mappedPort ?? port} tcp sequence ${nonce}`
      : `udp dport ${port} @th,64,32 ${nonce}`
  const counted = probes.map((probe, index) => `    ${matchOf(probe)} counter name ${counterName(index)} drop`)
  const mapped = probes.flatMap(({ family, protocol, port, mappedPort, nonce }) => {
    const instance = endsOf[family]?.instance
    return mappedPort === null || instance === undefined
      ? []
      : [`    ${protocol} dport ${port} tcp sequence ${nonce} dnat ip to ${instance}:${mappedPort}`]
  })
  const answers = FAMILIES.flatMap(family => {
    const world = endsOf[family]?.world
    return world === undefined ? [] : [`    ${family === 'ipv4' ? 'ip' : 'ip6'} daddr ${world} drop`]
  })
  const chain = (name: string, hook: string, rules: readonly string[]) =>
    [`  chain ${name} {`, `    type ${hook}; policy accept;`, ...rules, '  }'].join('\n')
  return `${[
    `add table inet ${tap}`,
    `delete table inet ${tap}`,
    `table inet ${tap} {`,
    ...probes.map((_, index) => `  counter ${counterName(index)} { }`),
    chain('mapped', 'nat hook prerouting priority dstnat - 1', mapped),
    chain('arrived', `filter hook input priority ${last}`, counted),
    chain('left', `filter hook postrouting priority ${last}`, [...counted, ...answers]),
    '}',
  ].join('\n')}\n`
}

export function counterName(index: number): string {
  return `probe${index}`
}

/** The taps of the probes, and the address that each uses in every pool, so that the daemon's and doctor's differ. */
export const PROBES = {
  daemon: { address: 'last', name: 0 },
  doctor: { address: 'first', name: 1 },
} as const

export function probeTapOf(who: keyof typeof PROBES, tapPrefix: string): string {
  return probeTaps(tapPrefix)[PROBES[who].name]
}
