// What other firewalls of this host do to the packets that instances and services need. Pure.
//
// A packet passes a hook only if every base chain there lets it pass (nft(8)): what one of ours accepts, a foreign one may still drop.

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
  /** Of instances' IPv4 addresses, CIDR; null: they have none, and what they need is not known here. */
  readonly pool: string | null
  /** Address of this host as instances see it. */
  readonly gateway: string
  /** Interface of the default route; null: there is none. */
  readonly uplink: string | null
  /** Ports of this host that clients from outside come to. */
  readonly services: readonly { readonly name: string; readonly protocol: 'tcp' | 'udp'; readonly port: number }[]
  /** Ports of this host that guests come to at the gateway address. */
  readonly guestPorts: readonly number[]
  /** The same by IPv6; null: they have none. */
  readonly v6: { readonly pool: string; readonly gateway: string; readonly guestPorts: readonly number[] } | null
  /** UDP port of the gateway addresses at which instances ask for names; null: they ask elsewhere. */
  readonly guestDnsPort: number | null
  /** The port of the gateway in VMs; null: it is in none. */
  readonly gatewayVmPort: number | null
}

/** `instances`: without it an instance is ready and cannot be reached, or reaches nobody. `services`: clients from outside. */
export type NeedKind = 'instances' | 'services'
export type Need = { readonly kind: NeedKind; readonly hooks: readonly Hook[]; readonly packet: Packet }

/** What a foreign base chain drops of what is needed. */
export type ForeignDrop = {
  /** `ip filter FORWARD` */
  readonly chain: string
  readonly hook: Hook
  readonly kind: NeedKind
  /** Names of needs that it drops for certain. */
  readonly drops: readonly string[]
  /** Names of needs that it may drop: what is not known here decides. */
  readonly unsure: readonly string[]
  /** What drops the first of them. */
  readonly cause: string
  /** Commands that let them pass. */
  readonly remedy: string
}

const THROUGH = ['prerouting', 'forward', 'postrouting'] as const satisfies readonly Hook[]
const INTO = ['prerouting', 'input'] as const satisfies readonly Hook[]

/** Packets that have to pass for an appliance to do its work. */
export function neededPackets(site: FirewallSite): Need[] {
  const { tapPrefix, uplink, gatewayVmPort, v6 } = site
  const tap = `${tapPrefix}0000000000`
  const pool = rangeOf(site.pool ?? site.gateway)
  const around = { tap, uplink, guestDnsPort: site.guestDnsPort }
  const ofVms = { protocol: 'tcp', daddr: pool, dport: gatewayVmPort, ct_status: 'dnat' } as const
  const clients = { ...usual, iifname: uplink }
  const needs = [
    ...(site.pool === null
      ? []
      : needsOfInstances(
          { ...around, guestPorts: site.guestPorts, suffix: '' },
          { family: 'ipv4', anywhere, pool, gateway: rangeOf(site.gateway) },
        )),
    ...(gatewayVmPort === null || site.pool === null
      ? []
      : [
          need('instances', THROUGH, 'instances to the gateway VM', {
            ...usual,
            iifname: tap,
            oifname: tap,
            saddr: pool,
            ...ofVms,
          }),
        ]),
    ...(gatewayVmPort === null
      ? []
      : [need('services', THROUGH, 'clients to the gateway VM', { ...clients, oifname: tap, ...ofVms })]),
    ...site.services.map(({ name, protocol, port }) =>
      need('services', INTO, `clients to ${name} (${protocol} ${port})`, { ...clients, protocol, dport: port }),
    ),
  ]
  if (v6 === null) return needs
  const [poolV6, gatewayV6] = [rangeOfV6(v6.pool), rangeOfV6(v6.gateway)]
  const family = { family: 'ipv6', anywhere: anywhereV6, pool: poolV6, gateway: gatewayV6 } as const
  return [...needs, ...needsOfInstances({ ...around, guestPorts: v6.guestPorts, suffix: ' by IPv6' }, family)]
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

function need(kind: NeedKind, hooks: readonly Hook[], name: string, packet: Omit<Packet, 'name'>): Need {
  return { kind, hooks, packet: { name, ...packet } }
}

type Around = Pick<FirewallSite, 'uplink' | 'guestPorts' | 'guestDnsPort'> & {
  readonly tap: string
  readonly suffix: string
}
type Family = Pick<Packet, 'family'> & Readonly<Record<'anywhere' | 'pool' | 'gateway', Packet['saddr']>>

/** Of one family. */
function needsOfInstances(
  { tap, uplink, guestPorts, guestDnsPort, suffix }: Around,
  { family, anywhere: world, pool, gateway }: Family,
): Need[] {
  const packet = { ...usual, family, saddr: world, daddr: world }
  const inward = { ...packet, iifname: uplink, oifname: tap, daddr: pool }
  const outward = { ...packet, iifname: tap, oifname: uplink, saddr: pool }
  const here = { ...packet, iifname: tap, saddr: pool, daddr: gateway }
  const answer = { ct_state: 'established' } as const
  const through = (name: string, which: Omit<Packet, 'name'>) => need('instances', THROUGH, `${name}${suffix}`, which)
  return [
    through('SSH to instances', { ...inward, dport: 22 }),
    through('answers of their SSH', { ...outward, ...answer, sport: 22 }),
    through('what instances send', { ...outward, dport: 443 }),
    through('answers to instances', { ...inward, ...answer, sport: 443 }),
    ...guestPorts.map(port =>
      need('instances', INTO, `instances to port ${port} of this host${suffix}`, { ...here, dport: port }),
    ),
    ...(guestDnsPort === null
      ? []
      : [
          need('instances', INTO, `questions of instances for names${suffix}`, {
            ...here,
            protocol: 'udp',
            dport: guestDnsPort,
          }),
        ]),
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
      const traced: TracedPacket[] = []
      for (const need of needs) {
        if (need.kind !== kind || !need.hooks.includes(hook) || !passesBy(base, need.packet)) continue
        traced.push({ packet: need.packet, ...trace(base, foreign, need.packet) })
        yield
      }
      const named = (fate: string) => traced.filter(packet => packet.fate === fate).map(({ packet }) => packet.name)
      const [drops, unsure] = [named('drops'), named('unsure')]
      const first = traced.find(packet => packet.fate === 'drops') ?? traced.find(packet => packet.fate === 'unsure')
      if (first === undefined) continue
      const packets = traced.filter(packet => packet.fate !== 'passes').map(item => item.packet)
      const remedy = remedyOf(base, foreign, { ...site, kind, packets })
      found.push({ chain: chainName(base), hook, kind, drops, unsure, cause: first.cause ?? '', remedy })
    }
  }
  return found
}

type TracedPacket = Traced & { readonly packet: Packet }

type Wanted = Pick<FirewallSite, 'tapPrefix'> & { readonly kind: NeedKind; readonly packets: readonly Packet[] }

/** Ours still decides about each of these packets: letting all of our taps pass elsewhere opens nothing. */
function remedyOf(base: Chain, chains: readonly Chain[], { tapPrefix, kind, packets }: Wanted): string {
  const isIn = base.base?.hook === 'input' || base.base?.hook === 'prerouting'
  const ports = [...new Set(packets.map(({ protocol, dport }) => `${protocol} ${dport}`))].map(
    text => text.split(' ') as [string, string],
  )
  const isTranslated = packets.some(({ ct_status }) => ct_status === 'dnat')
  const taps = kind === 'instances' || isTranslated
  const family = chains.filter(({ family, table }) => family === base.family && table === base.table)
  if (base.table === 'firewalld') return taps ? firewalldTaps(tapPrefix) : firewalldPorts(ports)
  if (base.family !== 'inet' && isIptables(base)) {
    const six = base.family.endsWith('6') ? '6' : ''
    const legacy = `ip${six}tables${base.family.startsWith('legacy') ? '-legacy' : ''}`
    if (family.some(({ name }) => name.startsWith(`ufw${six}-`))) return ufw(taps, tapPrefix, { isIn, ports, six })
    const chain =
      family.some(({ name }) => name === 'DOCKER-USER') && base.name === 'FORWARD' ? 'DOCKER-USER' : base.name
    const insert = (match: string) =>
      `${legacy} --table ${base.table} --insert ${shellWord(chain)} ${match} --jump ACCEPT`
    const rules = taps
      ? [insert(`--in-interface ${tapPrefix}+`), ...(isIn ? [] : [insert(`--out-interface ${tapPrefix}+`)])]
      : ports.map(([protocol, port]) => insert(`--protocol ${protocol} --dport ${port}`))
    return `${rules.join('; ')}; keep them where that firewall is loaded from`
  }
  const insert = (match: string) =>
    `nft insert rule ${[base.family, base.table, base.name].map(shellWord).join(' ')} ${match} accept`
  const rules = taps
    ? [insert(`iifname '"${tapPrefix}*"'`), ...(isIn ? [] : [insert(`oifname '"${tapPrefix}*"'`)])]
    : ports.map(([protocol, port]) => insert(`${protocol} dport ${port}`))
  return `${rules.join('; ')}; keep them in the file that this ruleset is loaded from`
}

function isIptables({ table, name }: Chain): boolean {
  return ['filter', 'mangle', 'raw', 'security'].includes(table) && name === name.toUpperCase()
}

function ufw(
  taps: boolean,
  tapPrefix: string,
  { isIn, ports, six }: { isIn: boolean; ports: readonly [string, string][]; six: '' | '6' },
): string {
  const before = `-A ufw${six}-before`
  if (!taps) return ports.map(([protocol, port]) => `ufw allow ${port}/${protocol}`).join('; ')
  const lines = isIn
    ? [`${before}-input -i ${tapPrefix}+ -j ACCEPT`]
    : [`${before}-forward -i ${tapPrefix}+ -j ACCEPT`, `${before}-forward -o ${tapPrefix}+ -j ACCEPT`]
  return `write ${lines.map(line => `"${line}"`).join(' and ')} into /etc/ufw/before${six}.rules, before COMMIT; run ufw reload`
}

/** A zone decides by where a packet comes from; a policy, by where it goes as well (firewalld.policy(5)). */
function firewalldTaps(tapPrefix: string): string {
  const permanent = 'firewall-cmd --permanent'
  return [
    `${permanent} --zone=trusted --add-interface=${tapPrefix}+`,
    `${permanent} --new-policy=strongroom`,
    `${permanent} --policy=strongroom --add-ingress-zone=ANY --add-egress-zone=trusted --set-target=ACCEPT`,
    'firewall-cmd --reload',
  ].join('; ')
}

function firewalldPorts(ports: readonly [string, string][]): string {
  return [
    ...ports.map(([protocol, port]) => `firewall-cmd --permanent --add-port=${port}/${protocol}`),
    'firewall-cmd --reload',
  ].join('; ')
}

/** Those that cut instances off, whatever else is true. */
export function certainDrops(drops: readonly ForeignDrop[]): ForeignDrop[] {
  return drops.filter(drop => drop.kind === 'instances' && drop.drops.length > 0)
}

/** One line for people. */
export function dropText({ chain, drops, unsure, cause }: ForeignDrop): string {
  const said = [
    ...(drops.length === 0 ? [] : [`drops ${drops.join(', ')}`]),
    ...(unsure.length === 0 ? [] : [`may drop ${unsure.join(', ')}`]),
  ]
  return `${chain} ${said.join(' and ')} (${cause})`
}
