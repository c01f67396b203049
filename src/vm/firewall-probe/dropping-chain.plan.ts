// The chains of other firewalls that drop what no rule of theirs accepts, found in nft's list of all rules, and the
// commands by which such a firewall accepts what instances need. Pure.
//
// A probe finds that a packet is dropped, whatever drops it. This names the usual cause; it evaluates no conditions.

import { type Static, Type } from '@sinclair/typebox'
import { linkNames } from '../../base/link-names.ts'
import type { Config } from '../../config/schema.ts'
import { checked } from '../../contract/check.ts'
import type { Need } from './probe.plan.ts'

type Hook = 'forward' | 'input'
type Tool = 'Docker' | 'ufw' | 'firewalld' | 'iptables' | 'nftables'

export type DroppingChain = {
  readonly hook: Hook
  readonly family: 'ip' | 'ip6' | 'inet'
  readonly table: string
  readonly chain: string
  readonly tool: Tool
}

/** libnftables-json(5). The only key of a list item names its kind. */
const Named = { family: Type.String(), table: Type.String() } as const
const Chain = Type.Object({
  ...Named,
  name: Type.String(),
  hook: Type.Optional(Type.String()),
  policy: Type.Optional(Type.String()),
})
const Rule = Type.Object({ ...Named, chain: Type.String(), expr: Type.Array(Type.Unknown()) })
const List = Type.Object({
  nftables: Type.Array(Type.Object({ chain: Type.Optional(Chain), rule: Type.Optional(Rule) })),
})
type Chain = Static<typeof Chain>
type Rule = Static<typeof Rule>

/**
 * Parses the output of `nft --json list ruleset`. Omits tables with the names `own`. Throws Fault host.command_failed.
 */
export function droppingChains(text: string, own: readonly string[]): DroppingChain[] {
  const { nftables } = checked(List, JSON.parse(text), { what: 'nft list', code: 'host.command_failed' })
  const chains = nftables.flatMap(({ chain }) => (chain === undefined ? [] : [chain]))
  const rules = Map.groupBy(
    nftables.flatMap(({ rule }) => (rule === undefined ? [] : [rule])),
    rule => keyOf(rule, rule.chain),
  )
  return chains.flatMap(chain => {
    const { hook, family, table, name, policy } = chain
    if ((hook !== 'forward' && hook !== 'input') || own.includes(table)) return []
    if (family !== 'ip' && family !== 'ip6' && family !== 'inet') return []
    if (policy !== 'drop' && !dropsRest(chain, rules)) return []
    const names = chains.filter(other => other.family === family && other.table === table).map(other => other.name)
    return [{ hook, family, table, chain: name, tool: toolOf({ hook, family, table, chain: name }, names) }]
  })
}

function keyOf({ family, table }: Pick<Rule, 'family' | 'table'>, chain: string): string {
  return `${family} ${table} ${chain}`
}

/** Reports whether a rule without a condition drops, in the chain or in one that it leads to without a condition. */
function dropsRest(first: Chain, rules: ReadonlyMap<string, readonly Rule[]>): boolean {
  const names = new Set([first.name])
  for (const name of names) {
    for (const { expr } of rules.get(keyOf(first, name)) ?? []) {
      const statements = Object.fromEntries(expr.flatMap(each => Object.entries(each ?? {})))
      if (Object.keys(statements).some(key => !WITHOUT_CONDITION.includes(key))) continue
      if ('drop' in statements || 'reject' in statements) return true
      const target: unknown = statements.jump?.target ?? statements.goto?.target
      if (typeof target === 'string') names.add(target)
    }
  }
  return false
}

const WITHOUT_CONDITION = ['counter', 'log', 'jump', 'goto', 'drop', 'reject']

function toolOf({ hook, family, table, chain }: Omit<DroppingChain, 'tool'>, names: readonly string[]): Tool {
  if (table === 'firewalld') return 'firewalld'
  if (hook === 'forward' && names.includes('DOCKER-USER')) return 'Docker'
  if (names.some(name => name.startsWith('ufw'))) return 'ufw'
  return family !== 'inet' && table === 'filter' && /^[A-Z]+$/.test(chain) ? 'iptables' : 'nftables'
}

/** Returns one line for the operator. Null if nothing is dropped. */
export function droppedText(dropped: readonly Need[], chains: readonly DroppingChain[] = []): string | null {
  if (dropped.length === 0) return null
  const causes = chainsFor(dropped, chains).map(
    ({ tool, family, table, chain }) => `${tool}, chain ${chain} of table ${family} ${table}`,
  )
  const by = causes.length === 0 ? '' : ` (${causes.join('; ')})`
  return `a firewall of this host drops ${dropped.map(({ name }) => name).join(', ')}${by}`
}

/**
 * Returns the commands, or rules, that let the packets pass. Our own table still decides about each packet of a tap.
 */
export function droppedRemedy(
  dropped: readonly Need[],
  { network }: Pick<Config, 'network'>,
  chains: readonly DroppingChain[] = [],
): string {
  const commands = acceptCommands(dropped, { chains, link: linkNames(network.tap_prefix).host })
  const peers = network.probe_peers.join(' or ')
  const office = `or, where it lets others pass than ${peers}, name those in network.probe_peers`
  if (commands !== null) return `run ${commands.join('; ')}; and store it where it is loaded at boot; ${office}`
  const ports = dropped
    .filter(({ kind, mappedPort }) => kind === 'services' && mappedPort === null)
    .map(({ protocol, port }) => `"${protocol} dport ${port} accept"`)
  const isTap = dropped.some(({ kind, mappedPort }) => kind === 'instances' || mappedPort !== null)
  const taps = ['iifname', 'oifname'].map(way => `"${way} ${network.tap_prefix}* accept"`)
  const rules = [...(isTap ? taps : []), ...ports].join(', ')
  return `let it pass, as ${rules} do in nft, where it drops (nft monitor trace shows that); ${office}`
}

function isFor({ family, to, mappedPort }: Need, chain: DroppingChain): boolean {
  const hook = mappedPort === null && (to === 'nextHop' || to === 'host') ? 'input' : 'forward'
  return chain.hook === hook && (chain.family === 'inet' || chain.family === (family === 'ipv4' ? 'ip' : 'ip6'))
}

/** Returns the chains that can have dropped any of the packets. */
function chainsFor(dropped: readonly Need[], chains: readonly DroppingChain[]): DroppingChain[] {
  return chains.filter(chain => dropped.some(need => isFor(need, chain)))
}

/** Returns commands for the packets; null if no chain is known that drops one of them. `link`: interface to VMs. */
function acceptCommands(
  dropped: readonly Need[],
  { chains, link }: { readonly chains: readonly DroppingChain[]; readonly link: string },
): string[] | null {
  if (dropped.some(need => !chains.some(chain => isFor(need, chain)))) return null
  const commands = chains.flatMap(chain =>
    dropped.filter(need => isFor(need, chain)).flatMap(need => COMMANDS[chain.tool](chain, need, link)),
  )
  const reload = chainsFor(dropped, chains).some(({ tool }) => tool === 'firewalld') ? ['firewall-cmd --reload'] : []
  return [...new Set([...commands, ...reload])]
}

const permanent = 'firewall-cmd --permanent'

const COMMANDS: Readonly<Record<Tool, (chain: DroppingChain, need: Need, link: string) => string[]>> = {
  Docker: ({ family }, _need, link) =>
    ['-i', '-o'].map(way => `${iptables(family)} -I DOCKER-USER ${way} ${link} -j ACCEPT`),
  ufw: ({ hook }, { protocol, port, to }, link) =>
    hook === 'forward'
      ? [`ufw route allow in on ${link}`, `ufw route allow out on ${link}`]
      : [to === 'nextHop' ? `ufw allow in on ${link}` : `ufw allow ${port}/${protocol}`],
  firewalld: ({ hook }, { protocol, port, to }, link) => {
    if (hook === 'input' && to !== 'nextHop') return [`${permanent} --add-port=${port}/${protocol}`]
    const zone = `${permanent} --zone=trusted --add-interface=${link}`
    const policy = `${permanent} --policy=strongroom`
    const ways = [`${policy} --add-ingress-zone=ANY`, `${policy} --add-egress-zone=trusted`]
    return hook === 'input'
      ? [zone]
      : [zone, `${permanent} --new-policy=strongroom`, ...ways, `${policy} --set-target=ACCEPT`]
  },
  iptables: ({ hook, family, chain }, { protocol, port, to }, link) => {
    const insert = `${iptables(family)} -I ${chain}`
    if (hook === 'forward') return ['-i', '-o'].map(way => `${insert} ${way} ${link} -j ACCEPT`)
    return [`${insert} ${to === 'nextHop' ? `-i ${link}` : `-p ${protocol} --dport ${port}`} -j ACCEPT`]
  },
  nftables: ({ hook, family, table, chain }, { protocol, port, to }, link) => {
    const insert = `nft insert rule ${family} ${table} ${chain}`
    if (hook === 'forward') return ['iifname', 'oifname'].map(way => `${insert} ${way} ${link} accept`)
    return [`${insert} ${to === 'nextHop' ? `iifname ${link}` : `${protocol} dport ${port}`} accept`]
  },
}

function iptables(family: DroppingChain['family']): string {
  return family === 'ip6' ? 'ip6tables' : 'iptables'
}
