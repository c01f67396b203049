// The link between this host and the namespace of VMs (vm-namespace.ts) as text: names, settings, commands for
// `ip -batch -`. Pure.
//
// Packets of VMs must reach this host at their next hop's address alone, also when it gets another address,
// and whatever becomes of its nftables. So they skip table `local`, by rules in front of it (ip-rule(8)):
//
//     0: iif LINK lookup 29554     the next hop of VMs
//     0: iif LINK fwmark 0x8000000/0x8000000 lookup local
//                                  answers to this host, by connection tracking (vm/network/host-table.plan.ts)
//     0: iif LINK goto 2           everything else is forwarded, by whatever rules this host has
//     0: iif LINK blackhole        unless rule 2 was removed
//     1: lookup local              moved from 0, as it must be behind
//     2: nop
//
// In the namespace, once routing there is closed, a packet of a VM is routed only if the table of nftables there has
// marked it. So VMs reach nothing while that table is missing, with the daemon stopped too:
//
//     0: to NEXT-HOP fwmark 0x4000000/0x4000000 lookup 29554
//     0: to NEXT-HOP iif lo lookup 29554
//                                  this host, although the taps have that address as well
//     1: to NEXT-HOP ipproto 6 blackhole
//     1: to NEXT-HOP ipproto 17 blackhole
//                                  otherwise the namespace's own kernel would reset connections with this host
//     1: lookup local              ARP, among others
//     2: fwmark 0x4000000/0x4000000 goto 4
//     2: iif lo goto 4             the kernel's own errors
//     2: iif LINK goto 4           from this host, to VMs
//     3: blackhole
//     4: nop

import { Type } from '@sinclair/typebox'
import { answerMark, filteredMark, type LinkNames, linkNames } from '../../base/link-names.ts'
import { checked } from '../../contract/check.ts'

export type VmLinkPlan = {
  readonly tapPrefix: string
  /** This host's address for VMs: their default route. */
  readonly nextHop: string
  /** Null if no VM has IPv6. */
  readonly nextHopV6: string | null
  /** Whether loopback addresses of this host may be clients of VMs; the table of this host translates them. */
  readonly loopbackClients: boolean
  readonly mtuBytes: number
}

/** Locally administered, of both ends. MACs of VMs begin differently (vm/launch.plan.ts). */
export const linkMac = '0a:73:74:72:6f:6c'

/**
 * Both ends have one MAC and no ARP, so a frame needs no neighbour. The link's next hop, which belongs to neither end,
 * keeps the kernel from storing a neighbour for each destination. It is the address of a router that has none (RFC
 * 7600).
 */
const linkNextHop = '192.0.0.8'
const linkNextHopV6 = 'fe80::1'
/** Table of the routes for the next hop of VMs; it has no name in rt_tables(5). */
const table = 29_554

export function addLinkArgv({ host, inside }: LinkNames, namespaceFile: string): string[] {
  const peer = ['peer', 'name', inside, 'address', linkMac, 'netns', namespaceFile]
  return ['ip', 'link', 'add', host, 'address', linkMac, 'type', 'veth', ...peer]
}

type Setting = [path: string, value: string]

/** Returns settings of this host's end, written before it is up. */
export function hostSettings({ tapPrefix, ...plan }: VmLinkPlan): Setting[] {
  const { host } = linkNames(tapPrefix)
  return [...endSettings(host, plan), [`${ipv4}/${host}/route_localnet`, plan.loopbackClients ? '1' : '0']]
}

/** Returns settings of the whole namespace and of its end. */
export function insideSettings({ tapPrefix, ...plan }: VmLinkPlan): Setting[] {
  return [
    ['/proc/sys/net/ipv4/ip_forward', '1'],
    // The check of a packet's source (rp_filter) follows the rules that need its mark.
    [`${ipv4}/all/src_valid_mark`, '1'],
    ...(plan.nextHopV6 === null ? [] : ([[`${ipv6}/all/forwarding`, '1']] satisfies Setting[])),
    ...endSettings(linkNames(tapPrefix).inside, plan),
  ]
}

const ipv4 = '/proc/sys/net/ipv4/conf'
const ipv6 = '/proc/sys/net/ipv6/conf'

function endSettings(name: string, { nextHopV6 }: Pick<VmLinkPlan, 'nextHopV6'>): Setting[] {
  return [
    [`${ipv6}/${name}/accept_ra`, '0'],
    ...(nextHopV6 === null
      ? ([[`${ipv6}/${name}/disable_ipv6`, '1']] satisfies Setting[])
      : ([
          [`${ipv6}/${name}/addr_gen_mode`, '1'],
          [`${ipv6}/${name}/forwarding`, '1'],
          [`${ipv6}/${name}/disable_ipv6`, '0'],
        ] satisfies Setting[])),
    // A source that is not routed back by the link is spoofed.
    [`${ipv4}/${name}/rp_filter`, '1'],
    [`${ipv4}/${name}/accept_redirects`, '0'],
    [`${ipv4}/${name}/send_redirects`, '0'],
    [`${ipv4}/${name}/forwarding`, '1'],
  ]
}

export function hostCommands({ tapPrefix, nextHop, nextHopV6, mtuBytes }: VmLinkPlan): string[] {
  const { host } = linkNames(tapPrefix)
  return [
    `link set dev ${host} mtu ${mtuBytes} arp off up`,
    `address replace ${nextHop}/32 dev ${host} scope link`,
    `route replace local ${nextHop} dev ${host} table ${table}`,
    ...(nextHopV6 === null
      ? []
      : [
          // Deprecated, so that this host uses it only for its VMs (RFC 6724 5, rule 3).
          `address replace ${nextHopV6}/128 dev ${host} nodad noprefixroute preferred_lft 0`,
          `route replace local ${nextHopV6} dev ${host} table ${table}`,
        ]),
  ]
}

export function insideCommands({ tapPrefix, nextHop, nextHopV6, mtuBytes }: VmLinkPlan): string[] {
  const { inside } = linkNames(tapPrefix)
  const v4 = `via ${linkNextHop} dev ${inside} onlink`
  const v6 = `via ${linkNextHopV6} dev ${inside}`
  return [
    'link set dev lo up',
    `link set dev ${inside} mtu ${mtuBytes} arp off up`,
    `route replace ${nextHop}/32 ${v4} table ${table}`,
    `route replace default ${v4}`,
    ...(nextHopV6 === null ? [] : [`route replace ${nextHopV6}/128 ${v6} table ${table}`, `route replace ::/0 ${v6}`]),
  ]
}

export type LinkRoutes = {
  readonly link: string
  readonly nextHop: string
  readonly nextHopV6: string
  /** The VM's address; null if there is none of this family. */
  readonly address: string | null
  readonly addressV6: string | null
}

/** Returns this host's routes to one VM, for which it uses the address of the VM's next hop as source. */
export function vmRouteCommands({ link, nextHop, nextHopV6, address, addressV6 }: LinkRoutes): string[] {
  return [
    ...(address === null ? [] : [`route replace ${address}/32 via ${linkNextHop} dev ${link} onlink src ${nextHop}`]),
    ...(addressV6 === null ? [] : [`route replace ${addressV6}/128 via ${linkNextHopV6} dev ${link} src ${nextHopV6}`]),
  ]
}

/** Keys that a rule does not have are absent (ip-rule(8), -json). */
const Rule = Type.Object({
  priority: Type.Integer({ minimum: 0 }),
  iif: Type.Optional(Type.String()),
  dst: Type.Optional(Type.String()),
  fwmark: Type.Optional(Type.String()),
  fwmask: Type.Optional(Type.String()),
  table: Type.Optional(Type.String()),
  goto: Type.Optional(Type.Integer()),
  action: Type.Optional(Type.String()),
  ipproto: Type.Optional(Type.String()),
  nop: Type.Optional(Type.Null()),
})
const Rules = Type.Array(Rule)
export type RoutingRule = (typeof Rules)['static'][number]

/** Parses the output of `ip -json rule show`. Throws Fault host.command_failed. */
export function parseRules(text: string): RoutingRule[] {
  return checked(Rules, JSON.parse(text || '[]'), { what: 'ip rule', code: 'host.command_failed' })
}

const mark = `0x${answerMark.toString(16)}`

/** systemd-networkd keeps such rules; it removes others that it has not made (networkd.conf(5)). */
const kept = 'protocol kernel'

/**
 * Returns commands that bring the rules of one family into the order above; empty if they are in it. A new rule is
 * placed after those with its number, so each of ours is recreated in turn, while the others still keep packets from
 * table `local`.
 */
export function hostRuleCommands(rules: readonly RoutingRule[], link: string): string[] {
  const localAt = rules.filter(isLocal).map(({ priority }) => priority)
  const local = localAt.find(priority => priority > 0) ?? 1
  const behind = local + 1
  const ours = rules.filter(({ iif }) => iif === link)
  const wanted = [`lookup ${table}`, `fwmark ${mark}/${mark} lookup local`, `goto ${behind}`, 'blackhole']
  const isDone =
    !localAt.includes(0) &&
    localAt.includes(local) &&
    rules.some(rule => isNop(rule, behind)) &&
    ours.every(({ priority }) => priority === 0) &&
    ours.map(actionOf).join() === wanted.join()
  if (isDone) return []
  return [
    ...(localAt.includes(local) ? [] : [`rule add pref ${local} lookup local ${kept}`]),
    ...(rules.some(rule => isNop(rule, behind)) ? [] : [`rule add pref ${behind} type nop ${kept}`]),
    ...(localAt.includes(0) ? ['rule delete pref 0 lookup local'] : []),
    ...ours.filter(rule => !wanted.includes(actionOf(rule)) || rule.priority !== 0).map(rule => deletion(rule, link)),
    ...wanted.flatMap(action => [
      ...ours
        .filter(rule => actionOf(rule) === action && rule.priority === 0)
        .slice(0, 1)
        .map(rule => deletion(rule, link)),
      `rule add pref 0 iif ${link} ${typed(action)} ${kept}`,
    ]),
  ]
}

/** Returns commands that remove our rules and restore table `local`, unless another program has moved it. */
export function withdrawnRuleCommands(rules: readonly RoutingRule[], link: string): string[] {
  const isMoved = !rules.some(rule => isLocal(rule) && rule.priority === 0) && rules.some(rule => isNop(rule, 2))
  return [
    ...rules.filter(({ iif }) => iif === link).map(rule => deletion(rule, link)),
    ...(isMoved
      ? [
          'rule add pref 0 lookup local',
          ...(rules.some(rule => isLocal(rule) && rule.priority === 1) ? ['rule delete pref 1 lookup local'] : []),
          'rule delete pref 2',
        ]
      : []),
  ]
}

/**
 * Returns commands by which packets inside for the next hop's address go to this host, although the taps also have it;
 * empty if they already do or routing is closed.
 */
export function nextHopRuleCommands(rules: readonly RoutingRule[], nextHop: string): string[] {
  const ours = rules.filter(({ table: to }) => to === `${table}`)
  const localAt = rules.filter(isLocal).map(({ priority }) => priority)
  if (rules.some(isClosing) || (ours.length === 1 && ours[0]?.dst === nextHop && !localAt.includes(0))) return []
  return [
    ...(localAt.some(priority => priority > 0) ? [] : ['rule add pref 1 lookup local']),
    ...(localAt.includes(0) ? ['rule delete pref 0 lookup local'] : []),
    ...ours.map(({ priority, dst }) => `rule delete pref ${priority} to ${dst} lookup ${table}`),
    `rule add pref 0 to ${nextHop} lookup ${table}`,
  ]
}

/** Returns commands after which routing inside does not depend on marks, as builds without them need it. */
export function openedRuleCommands(rules: readonly RoutingRule[]): string[] {
  return rules.filter(isClosing).map(({ priority }) => `rule delete pref ${priority} ${blackhole}`)
}

/**
 * Returns commands that close routing of one family inside, in the order above; empty if it is closed. No packet is
 * routed in between. `link`: the end inside.
 */
export function insideRuleCommands(
  rules: readonly RoutingRule[],
  { nextHop, link }: { readonly nextHop: string; readonly link: string },
): string[] {
  const wanted = [
    `pref 0 to ${nextHop} fwmark ${filtered} lookup ${table}`,
    `pref 0 to ${nextHop} iif lo lookup ${table}`,
    `pref 1 to ${nextHop} ipproto 6 ${blackhole}`,
    `pref 1 to ${nextHop} ipproto 17 ${blackhole}`,
    'pref 1 lookup local',
    `pref 2 fwmark ${filtered} goto 4`,
    'pref 2 iif lo goto 4',
    `pref 2 iif ${link} goto 4`,
    `pref 3 ${blackhole}`,
    'pref 4 type nop',
  ]
  const found = rules.filter(({ priority }) => priority < mainPriority).map(insideText)
  if (found.join() === wanted.join()) return []
  const closed = `pref 0 ${blackhole}`
  return [
    ...(found.includes(closed) ? [] : [`rule add ${closed}`]),
    ...found.filter(text => text !== closed).map(text => `rule delete ${text}`),
    ...wanted.map(text => `rule add ${text}`),
    `rule delete ${closed}`,
  ]
}

const filtered = `0x${filteredMark.toString(16)}/0x${filteredMark.toString(16)}`
const blackhole = 'type blackhole'
/** Priority of the kernel's rule for table main (ip-rule(8)). */
const mainPriority = 32_766

function insideText(rule: RoutingRule): string {
  const { priority, dst, iif, ipproto, nop } = rule
  const to = dst === undefined ? '' : `to ${dst} `
  const from = iif === undefined ? '' : `iif ${iif} `
  const of = ipproto === undefined ? '' : `ipproto ${protocolNumber(ipproto)} `
  return `pref ${priority} ${to}${from}${of}${nop === null ? 'type nop' : typed(actionOf(rule))}`
}

/** ip(8) prints the names of /etc/protocols; without that file `ipproto-6`. */
function protocolNumber(text: string): string {
  return ({ tcp: '6', udp: '17' } as Record<string, string>)[text] ?? text.replace('ipproto-', '')
}

function isLocal({ table: to, iif, dst }: RoutingRule): boolean {
  return to === 'local' && iif === undefined && dst === undefined
}

function isClosing({ action }: RoutingRule): boolean {
  return action === 'blackhole'
}

function isNop({ priority, nop }: RoutingRule, at: number): boolean {
  return priority === at && nop === null
}

function actionOf({ table: to, goto, action, fwmark, fwmask }: RoutingRule): string {
  const match = fwmark === undefined ? '' : `fwmark ${fwmark}/${fwmask ?? '0xffffffff'} `
  return match + (to !== undefined ? `lookup ${to}` : goto !== undefined ? `goto ${goto}` : (action ?? ''))
}

function typed(action: string): string {
  return action === 'blackhole' ? `type ${action}` : action
}

function deletion(rule: RoutingRule, link: string): string {
  return `rule delete pref ${rule.priority} iif ${link} ${typed(actionOf(rule))}`
}
