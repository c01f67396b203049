// Judges whether other firewalls of this host drop packets that instances and services need, and names what drops them
// and the commands that help. Pure.
//
// A packet passes a hook only if every base chain there accepts it (nft(8)): another may drop what ours accepts.

import { rangeOf } from '../../base/ipv4.ts'
import { rangeOfV6 } from '../../base/ipv6.ts'
import { shellWord } from '../../base/shell-word.ts'
import type { Turns } from '../../base/work/turns.ts'
import {
  anywhere,
  anywhereV6,
  type Chain,
  chainName,
  type Hook,
  type Packet,
  passesBy,
  type Traced,
  trace,
} from './trace.plan.ts'

export type FirewallSite = {
  readonly tapPrefix: string
  /** CIDR of the instances' IPv4 addresses. Null: they have none, and nothing is needed for instances by IPv4. */
  readonly pool: string | null
  /** IPv4 address of this host on the taps. */
  readonly gateway: string
  /** Interface of the default route. Null: there is none. */
  readonly uplink: string | null
  /** Ports of this host for clients from outside. */
  readonly services: readonly { readonly name: string; readonly protocol: 'tcp' | 'udp'; readonly port: number }[]
  /** TCP ports at the gateway address for guests. */
  readonly guestPorts: readonly number[]
  /** IPv6 pool, gateway and ports. Null: instances have no IPv6. */
  readonly v6: { readonly pool: string; readonly gateway: string; readonly guestPorts: readonly number[] } | null
  /** UDP port of the gateway addresses that resolves names for instances. Null: they resolve elsewhere. */
  readonly guestDnsPort: number | null
  /** Port of the gateway's VM. Null: the gateway runs on the host or not at all. */
  readonly gatewayVmPort: number | null
}

/** `instances`: dropping it makes a ready instance unreachable or cuts it off. `services`: clients from outside. */
export type NeedKind = 'instances' | 'services'
export type Need = { readonly kind: NeedKind; readonly hooks: readonly Hook[]; readonly packet: Packet }

/** A foreign base chain that drops needed packets of a kind. */
export type ForeignDrop = {
  /** `ip filter FORWARD` */
  readonly chain: string
  readonly hook: Hook
  readonly kind: NeedKind
  /** Names of the packets that it drops for certain. */
  readonly drops: readonly string[]
  /** Names of the packets that it may drop: an unknown match decides. */
  readonly unsure: readonly string[]
  /** The rule or policy that drops the first of them. */
  readonly cause: string
  /** Commands that let them pass. */
  readonly remedy: string
}

const THROUGH = ['prerouting', 'forward', 'postrouting'] as const satisfies readonly Hook[]
const INTO = ['prerouting', 'input'] as const satisfies readonly Hook[]

/** The packets that must pass for the appliance to work. */
export function neededPackets(site: FirewallSite): Need[] {
  const { uplink, gatewayVmPort, v6 } = site
  const tap = tapOf(site)
  const clients = { ...usual, iifname: uplink }
  const toGatewayVm = { oifname: tap, dport: gatewayVmPort, ct_status: 'dnat' } as const
  const needs: Need[] = []
  if (site.pool !== null) {
    const pool = rangeOf(site.pool)
    const family = { family: 'ipv4', world: anywhere, pool, gateway: rangeOf(site.gateway), suffix: '' } as const
    needs.push(...needsOfInstances(site, family, site.guestPorts))
    const packet = { ...usual, ...toGatewayVm, iifname: tap, saddr: pool, daddr: pool }
    if (gatewayVmPort !== null) needs.push(need('instances', THROUGH, 'instances to the gateway VM', packet))
  }
  if (gatewayVmPort !== null) {
    const daddr = rangeOf(site.pool ?? site.gateway)
    needs.push(need('services', THROUGH, 'clients to the gateway VM', { ...clients, ...toGatewayVm, daddr }))
  }
  for (const { name, protocol, port } of site.services)
    needs.push(
      need('services', INTO, `clients to ${name} (${protocol} ${port})`, { ...clients, protocol, dport: port }),
    )
  if (v6 !== null) {
    const networks = { world: anywhereV6, pool: rangeOfV6(v6.pool), gateway: rangeOfV6(v6.gateway) }
    needs.push(...needsOfInstances(site, { family: 'ipv6', ...networks, suffix: ' by IPv6' }, v6.guestPorts))
  }
  return needs
}

const usual: Omit<Packet, 'name'> = {
  family: 'ipv4',
  iifname: null,
  oifname: null,
  saddr: anywhere,
  daddr: anywhere,
  protocol: 'tcp',
  sport: null,
  dport: null,
  ct_state: 'new',
  ct_status: 'none',
}

function tapOf({ tapPrefix }: FirewallSite): string {
  return `${tapPrefix}0000000000`
}

function need(kind: NeedKind, hooks: readonly Hook[], name: string, packet: Omit<Packet, 'name'>): Need {
  return { kind, hooks, packet: { name, ...packet } }
}

type Family = Pick<Packet, 'family'> & { readonly suffix: string } & Readonly<
    Record<'world' | 'pool' | 'gateway', Packet['saddr']>
  >

function needsOfInstances(
  site: FirewallSite,
  { family, world, pool, gateway, suffix }: Family,
  guestPorts: readonly number[],
): Need[] {
  const [tap, { uplink, guestDnsPort }] = [tapOf(site), site]
  const inward = { ...usual, family, iifname: uplink, oifname: tap, saddr: world, daddr: pool }
  const outward = { ...usual, family, iifname: tap, oifname: uplink, saddr: pool, daddr: world }
  const here = { ...usual, family, iifname: tap, saddr: pool, daddr: gateway }
  const ct_state = 'established'
  const named = (hooks: readonly Hook[], name: string, packet: Omit<Packet, 'name'>) =>
    need('instances', hooks, `${name}${suffix}`, packet)
  return [
    named(THROUGH, 'SSH to instances', { ...inward, dport: 22 }),
    named(THROUGH, 'answers of their SSH', { ...outward, ct_state, sport: 22 }),
    named(THROUGH, 'what instances send', { ...outward, dport: 443 }),
    named(THROUGH, 'answers to instances', { ...inward, ct_state, sport: 443 }),
    ...guestPorts.map(dport => named(INTO, `instances to port ${dport} of this host`, { ...here, dport })),
    ...(guestDnsPort === null
      ? []
      : [named(INTO, 'questions of instances for names', { ...here, protocol: 'udp', dport: guestDnsPort })]),
  ]
}

/** `own`: tables of family inet that are ours. */
export function* foreignDrops(
  chains: readonly Chain[],
  site: FirewallSite,
  own: ReadonlySet<string>,
): Turns<ForeignDrop[]> {
  const foreign = chains.filter(({ family, table }) => family !== 'inet' || !own.has(table))
  const needs = neededPackets(site)
  const found: ForeignDrop[] = []
  for (const base of foreign) {
    if (base.base === null) continue
    const { hook } = base.base
    for (const kind of ['instances', 'services'] as const) {
      const stopped: (Traced & { readonly packet: Packet })[] = []
      for (const { kind: needKind, hooks, packet } of needs) {
        if (needKind !== kind || !hooks.includes(hook) || !passesBy(base, packet)) continue
        const traced = trace(base, foreign, packet)
        if (traced.fate !== 'passes') stopped.push({ packet, ...traced })
        yield
      }
      const [dropped, unsure] = [
        stopped.filter(({ fate }) => fate === 'drops'),
        stopped.filter(({ fate }) => fate === 'unsure'),
      ]
      const first = dropped[0] ?? unsure[0]
      if (first === undefined) continue
      const packets = stopped.map(({ packet }) => packet)
      found.push({
        chain: chainName(base),
        hook,
        kind,
        drops: dropped.map(({ packet }) => packet.name),
        unsure: unsure.map(({ packet }) => packet.name),
        cause: first.cause ?? '',
        remedy: remedyOf(base, foreign, { packets, kind, tapPrefix: site.tapPrefix }),
      })
    }
  }
  return found
}

type Stopped = Pick<FirewallSite, 'tapPrefix'> & { readonly kind: NeedKind; readonly packets: readonly Packet[] }
type Port = readonly [protocol: string, port: string]

/** The commands let every tap pass: our own table still decides about each of its packets. */
function remedyOf(base: Chain, chains: readonly Chain[], { tapPrefix, kind, packets }: Stopped): string {
  const isIn = base.base?.hook === 'input' || base.base?.hook === 'prerouting'
  const ports = [...new Set(packets.map(({ protocol, dport }) => `${protocol} ${dport}`))].map(
    text => text.split(' ') as [string, string],
  )
  const isTap = kind === 'instances' || packets.some(({ ct_status }) => ct_status === 'dnat')
  /** Matches of the rules to insert. */
  const matches = (inward: string, outward: string, port: (port: Port) => string) =>
    isTap ? [inward, ...(isIn ? [] : [outward])] : ports.map(port)
  if (base.table === 'firewalld') return firewalld(isTap ? firewalldTaps(tapPrefix) : firewalldPorts(ports))
  if (base.family === 'inet' || !isIptables(base)) {
    const chain = [base.family, base.table, base.name].map(shellWord).join(' ')
    const rules = matches(
      `iifname '"${tapPrefix}*"'`,
      `oifname '"${tapPrefix}*"'`,
      ([protocol, port]) => `${protocol} dport ${port}`,
    ).map(match => `nft insert rule ${chain} ${match} accept`)
    return `${rules.join('; ')}; keep them in the file that this ruleset is loaded from`
  }
  const names = chains
    .filter(({ family, table }) => family === base.family && table === base.table)
    .map(({ name }) => name)
  const six = base.family.endsWith('6') ? '6' : ''
  if (names.some(name => name.startsWith(`ufw${six}-`))) {
    if (!isTap) return ports.map(([protocol, port]) => `ufw allow ${port}/${protocol}`).join('; ')
    const lines = matches(`-i ${tapPrefix}+`, `-o ${tapPrefix}+`, () => '').map(
      match => `"-A ufw${six}-before-${isIn ? 'input' : 'forward'} ${match} -j ACCEPT"`,
    )
    return `write ${lines.join(' and ')} into /etc/ufw/before${six}.rules, before COMMIT; run ufw reload`
  }
  const program = `ip${six}tables${base.family.startsWith('legacy') ? '-legacy' : ''}`
  const chain = names.includes('DOCKER-USER') && base.name === 'FORWARD' ? 'DOCKER-USER' : base.name
  const rules = matches(
    `--in-interface ${tapPrefix}+`,
    `--out-interface ${tapPrefix}+`,
    ([protocol, port]) => `--protocol ${protocol} --dport ${port}`,
  ).map(match => `${program} --table ${base.table} --insert ${shellWord(chain)} ${match} --jump ACCEPT`)
  return `${rules.join('; ')}; keep them where that firewall is loaded from`
}

function isIptables({ table, name }: Chain): boolean {
  return ['filter', 'mangle', 'raw', 'security'].includes(table) && name === name.toUpperCase()
}

function firewalld(changes: readonly string[]): string {
  return [...changes.map(change => `firewall-cmd --permanent ${change}`), 'firewall-cmd --reload'].join('; ')
}

/** A zone decides by source, a policy by source and destination (firewalld.policy(5)). */
function firewalldTaps(tapPrefix: string): string[] {
  return [
    `--zone=trusted --add-interface=${tapPrefix}+`,
    '--new-policy=strongroom',
    '--policy=strongroom --add-ingress-zone=ANY --add-egress-zone=trusted --set-target=ACCEPT',
  ]
}

function firewalldPorts(ports: readonly Port[]): string[] {
  return ports.map(([protocol, port]) => `--add-port=${port}/${protocol}`)
}

/** Drops that cut instances off whatever the unknown matches say. */
export function certainDrops(drops: readonly ForeignDrop[]): ForeignDrop[] {
  return drops.filter(drop => drop.kind === 'instances' && drop.drops.length > 0)
}

/** One line for the operator. */
export function dropText({ chain, drops, unsure, cause }: ForeignDrop): string {
  const parts = [
    ...(drops.length === 0 ? [] : [`drops ${drops.join(', ')}`]),
    ...(unsure.length === 0 ? [] : [`may drop ${unsure.join(', ')}`]),
  ]
  return `${chain} ${parts.join(' and ')} (${cause})`
}
