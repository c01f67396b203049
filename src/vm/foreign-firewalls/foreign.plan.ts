// What other firewalls of this host do to the packets that instances and services need. Pure.
//
// A packet passes a hook only if every base chain there lets it pass (nft(8)): what one of ours accepts, a foreign one may still drop.

import { rangeOf } from '../../base/ipv4.ts'
import { shellWord } from '../../base/shell-word.ts'
import type { Turns } from '../../base/turns.ts'
import { anywhere, type Chain, chainName, type Hook, type Packet, type Traced, trace } from './trace.plan.ts'

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
  const { tapPrefix, uplink, gatewayVmPort } = site
  const tap = `${tapPrefix}0000000000`
  const [pool, gateway] = [rangeOf(site.pool ?? site.gateway), rangeOf(site.gateway)]
  const need = (kind: NeedKind, hooks: readonly Hook[], name: string, packet: Partial<Packet>): Need => {
    const usual = {
      family: 'ipv4',
      protocol: 'tcp',
      sport: null,
      dport: null,
      ct_state: 'new',
      ct_status: 'none',
    } as const
    return {
      kind,
      hooks,
      packet: { name, iifname: null, oifname: null, saddr: anywhere, daddr: anywhere, ...usual, ...packet },
    }
  }
  const inward = { iifname: uplink, oifname: tap, daddr: pool }
  const outward = { iifname: tap, oifname: uplink, saddr: pool }
  const answer = { ct_state: 'established' } as const
  const needs = [
    need('instances', THROUGH, 'SSH to instances', { ...inward, dport: 22 }),
    need('instances', THROUGH, 'answers of their SSH', { ...outward, ...answer, sport: 22 }),
    need('instances', THROUGH, 'what instances send', { ...outward, dport: 443 }),
    need('instances', THROUGH, 'answers to instances', { ...inward, ...answer, sport: 443 }),
    ...site.guestPorts.map(port =>
      need('instances', INTO, `instances to port ${port} of this host`, {
        iifname: tap,
        saddr: pool,
        daddr: gateway,
        dport: port,
      }),
    ),
    ...(gatewayVmPort === null
      ? []
      : [
          need('instances', THROUGH, 'instances to the gateway VM', {
            ...{ iifname: tap, oifname: tap, saddr: pool, daddr: pool, dport: gatewayVmPort, ct_status: 'dnat' },
          }),
          need('services', THROUGH, 'clients to the gateway VM', {
            ...inward,
            dport: gatewayVmPort,
            ct_status: 'dnat',
          }),
        ]),
    ...site.services.map(({ name, protocol, port }) =>
      need('services', INTO, `clients to ${name} (${protocol} ${port})`, { iifname: uplink, protocol, dport: port }),
    ),
  ]
  return needs.filter(({ kind }) => site.pool !== null || kind === 'services')
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
        if (need.kind !== kind || !need.hooks.includes(hook)) continue
        traced.push({ packet: need.packet, ...trace(base, foreign, need.packet) })
        yield
      }
      const named = (fate: string) => traced.filter(one => one.fate === fate).map(({ packet }) => packet.name)
      const [drops, unsure] = [named('drops'), named('unsure')]
      const first = traced.find(one => one.fate === 'drops') ?? traced.find(one => one.fate === 'unsure')
      if (first === undefined) continue
      const packets = traced.filter(one => one.fate !== 'passes').map(one => one.packet)
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
    const legacy = base.family === 'legacy' ? 'iptables-legacy' : 'iptables'
    if (family.some(({ name }) => name.startsWith('ufw-'))) return ufw(taps, tapPrefix, { isIn, ports })
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
  { isIn, ports }: { isIn: boolean; ports: readonly [string, string][] },
): string {
  if (!taps) return ports.map(([protocol, port]) => `ufw allow ${port}/${protocol}`).join('; ')
  const lines = isIn
    ? [`-A ufw-before-input -i ${tapPrefix}+ -j ACCEPT`]
    : [`-A ufw-before-forward -i ${tapPrefix}+ -j ACCEPT`, `-A ufw-before-forward -o ${tapPrefix}+ -j ACCEPT`]
  return `write ${lines.map(line => `"${line}"`).join(' and ')} into /etc/ufw/before.rules, before COMMIT; run ufw reload`
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
  return drops.filter(one => one.kind === 'instances' && one.drops.length > 0)
}

/** One line for people. */
export function dropText({ chain, drops, unsure, cause }: ForeignDrop): string {
  const said = [
    ...(drops.length === 0 ? [] : [`drops ${drops.join(', ')}`]),
    ...(unsure.length === 0 ? [] : [`may drop ${unsure.join(', ')}`]),
  ]
  return `${chain} ${said.join(' and ')} (${cause})`
}
