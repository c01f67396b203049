// The chains of other firewalls that drop what no rule of theirs accepts, found in nft's list of all rules, and the
// commands by which such a firewall accepts what instances need. Pure.
//
// A probe finds that a packet is dropped, whatever drops it. This names the usual cause; it evaluates no conditions.

import { Fault } from '../../base/fault.ts'
import { harmlessLine } from '../../base/harmless.ts'
import { linkNames } from '../../base/link-names.ts'
import type { Config } from '../../config/schema.ts'
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

/** Tables whose rules are read. No share: those of this host's own firewalls. */
const tableCountMax = 16
/** Chains that one text names. No share: it is for the operator. */
const chainCountMax = 4

/** A name that nft reads as one, in a command of root's shell too. */
const plainName = /^[A-Za-z_][\w./-]*$/

export type Table = { readonly family: string; readonly table: string }
type Chain = Table & { readonly name: string; readonly hook: unknown; readonly policy: unknown }
type Rule = Table & { readonly chain: string; readonly expr: readonly unknown[] }

/** Returns the items of a document of nft (libnftables-json(5)). Throws Fault host.command_failed. */
export function itemsOf(document: unknown): readonly unknown[] {
  const items: unknown = Reflect.get(Object(document), 'nftables')
  if (!Array.isArray(items)) throw new Fault('host.command_failed', 'nft list: its answer has no list `nftables`')
  return items
}

/** Returns the tables whose rules decide what chains of others drop. Omits tables with the names `own`. */
export function tablesToRead(items: readonly unknown[], own: readonly string[]): Table[] {
  const tables = chainsIn(items)
    .filter(chain => isHooked(chain, own) && plainName.test(chain.table))
    .map(({ family, table }): [string, Table] => [`${family} ${table}`, { family, table }])
  return [...new Map(tables).values()].slice(0, tableCountMax)
}

/** Finds the chains in items that list all chains, and rules. Omits tables with the names `own`. */
export function droppingChains(items: readonly unknown[], own: readonly string[]): DroppingChain[] {
  const chains = chainsIn(items)
  const rules = Map.groupBy(rulesIn(items), rule => keyOf(rule, rule.chain))
  return chains.flatMap(chain => {
    if (!isHooked(chain, own)) return []
    const { hook, family, table, name, policy } = chain
    if ((restOf(chain, { rules, seen: new Set() }) ?? policy) !== 'drop') return []
    const names = chains.filter(other => other.family === family && other.table === table).map(other => other.name)
    return [{ hook, family, table, chain: name, tool: toolOf({ hook, family, table, chain: name }, names) }]
  })
}

type Hooked = Chain & Pick<DroppingChain, 'hook' | 'family'>

function isHooked(chain: Chain, own: readonly string[]): chain is Hooked {
  const { hook, family, table } = chain
  return (
    (hook === 'forward' || hook === 'input') &&
    (family === 'ip' || family === 'ip6' || family === 'inet') &&
    !own.includes(table)
  )
}

function chainsIn(items: readonly unknown[]): Chain[] {
  return items.flatMap(item => {
    const { family, table, name, hook, policy } = fieldsOf(item, 'chain')
    return isText(family) && isText(table) && isText(name) ? [{ family, table, name, hook, policy }] : []
  })
}

function rulesIn(items: readonly unknown[]): Rule[] {
  return items.flatMap(item => {
    const { family, table, chain, expr } = fieldsOf(item, 'rule')
    return isText(family) && isText(table) && isText(chain) && Array.isArray(expr)
      ? [{ family, table, chain, expr }]
      : []
  })
}

/** The only key of a list item names its kind. */
function fieldsOf(item: unknown, kind: string): Record<string, unknown> {
  return Object(Reflect.get(Object(item), kind))
}

function isText(value: unknown): value is string {
  return typeof value === 'string'
}

function keyOf({ family, table }: Table, chain: string): string {
  return `${family} ${table} ${chain}`
}

type Walk = { readonly rules: ReadonlyMap<string, readonly Rule[]>; readonly seen: Set<string> }

/** Returns the verdict of the first rule without a condition, also behind jumps without one. Null if there is none. */
function restOf(chain: Table & { readonly name: string }, walk: Walk): 'accept' | 'drop' | null {
  const key = keyOf(chain, chain.name)
  if (walk.seen.has(key)) return null
  walk.seen.add(key)
  for (const { expr } of walk.rules.get(key) ?? []) {
    const statements = Object.fromEntries(expr.flatMap(each => Object.entries(Object(each))))
    if (Object.keys(statements).some(word => !WITHOUT_CONDITION.includes(word))) continue
    if ('drop' in statements || 'reject' in statements) return 'drop'
    if ('accept' in statements) return 'accept'
    if ('return' in statements) return null
    const target: unknown = Object(statements.jump ?? statements.goto).target
    if (!isText(target)) continue
    const verdict = restOf({ ...chain, name: target }, walk)
    if (verdict !== null || 'goto' in statements) return verdict
  }
  return null
}

const WITHOUT_CONDITION = ['counter', 'log', 'jump', 'goto', 'drop', 'reject', 'accept', 'return']

function toolOf({ hook, family, table, chain }: Omit<DroppingChain, 'tool'>, names: readonly string[]): Tool {
  if (table === 'firewalld') return 'firewalld'
  if (hook === 'forward' && names.includes('DOCKER-USER')) return 'Docker'
  if (names.some(name => name.startsWith('ufw'))) return 'ufw'
  return family !== 'inet' && table === 'filter' && /^[A-Z]+$/.test(chain) ? 'iptables' : 'nftables'
}

/** Returns one line for the operator. Null if nothing is dropped. */
export function droppedText(dropped: readonly Need[], chains: readonly DroppingChain[] = []): string | null {
  if (dropped.length === 0) return null
  const matching = chainsFor(dropped, chains)
  const causes = matching
    .slice(0, chainCountMax)
    .map(({ tool, family, table, chain }) => harmlessLine(`${tool}, chain ${chain} of table ${family} ${table}`))
  const more = matching.length > chainCountMax ? `; and ${matching.length - chainCountMax} more` : ''
  const isUnsure = dropped.some(need => chains.filter(chain => isFor(need, chain)).length > 1)
  const by = causes.length === 0 ? '' : ` (${isUnsure ? 'each can be the cause: ' : ''}${causes.join('; ')}${more})`
  const names = dropped.map(({ name }) => name)
  const last = names.length > 1 ? ` and ${names.at(-1)}` : ''
  return `a firewall of this host drops ${(last === '' ? names : names.slice(0, -1)).join(', ')}${last}${by}`
}

/**
 * Returns the commands, or rules, that let the packets pass. Our own table still decides about each packet of a tap.
 */
export function droppedRemedy(
  dropped: readonly Need[],
  { network }: Pick<Config, 'network'>,
  chains: readonly DroppingChain[] = [],
): string {
  const link = linkNames(network.tap_prefix).host
  const commands = acceptCommands(dropped, { chains, link })
  const peers = network.probe_peers.join(' and ')
  const office = `The test packets come from ${peers}; if your firewall is meant to admit other networks alone, name one of those in network.probe_peers instead.`
  if (commands !== null) {
    const list = commands.map(command => `\`${command}\``).join('; ')
    // A command for a port of this host opens it to everyone.
    const isSafe = commands.every(command => command.split(' ').includes(link))
    const safe = isSafe ? " (safe: Strongroom's own rules still filter these packets)" : ''
    const isStored = chainsFor(dropped, chains).every(({ tool }) => STORES_ITSELF.includes(tool))
    const store = isStored ? '' : ' Store them where they are loaded at boot: strongroom help egress.'
    return `run ${list}${safe}.${store} ${office}`
  }
  const ports = dropped
    .filter(({ kind, mappedPort }) => kind === 'services' && mappedPort === null)
    .map(({ protocol, port }) => `"${protocol} dport ${port} accept"`)
  const isTap = dropped.some(({ kind, mappedPort }) => kind === 'instances' || mappedPort !== null)
  const taps = ['iifname', 'oifname'].map(way => `"${way} ${network.tap_prefix}* accept"`)
  const rules = [...(isTap ? taps : []), ...ports].join(', ')
  return `let it pass, as ${rules} do in nft, where it drops (nft monitor trace shows that). ${office}`
}

/** Firewalls whose commands, as they are here, last over a reboot. */
const STORES_ITSELF: readonly Tool[] = ['ufw', 'firewalld']

function isFor({ family, to, mappedPort }: Need, chain: DroppingChain): boolean {
  const hook = mappedPort === null && (to === 'nextHop' || to === 'host') ? 'input' : 'forward'
  return chain.hook === hook && (chain.family === 'inet' || chain.family === (family === 'ipv4' ? 'ip' : 'ip6'))
}

/** Returns the chains that can have dropped any of the packets. */
function chainsFor(dropped: readonly Need[], chains: readonly DroppingChain[]): DroppingChain[] {
  return chains.filter(chain => dropped.some(need => isFor(need, chain)))
}

function isPlain({ table, chain }: DroppingChain): boolean {
  return plainName.test(table) && plainName.test(chain)
}

/**
 * Returns commands for the packets. Null if no chain is known that drops one of them, too many are, or one has a name
 * that a shell would read otherwise. `link`: interface to VMs.
 */
function acceptCommands(
  dropped: readonly Need[],
  { chains, link }: { readonly chains: readonly DroppingChain[]; readonly link: string },
): string[] | null {
  const matching = chainsFor(dropped, chains)
  if (matching.length > chainCountMax || !matching.every(isPlain)) return null
  if (dropped.some(need => !matching.some(chain => isFor(need, chain)))) return null
  const commands = matching.flatMap(chain =>
    dropped.filter(need => isFor(need, chain)).flatMap(need => COMMANDS[chain.tool](chain, need, link)),
  )
  const reload = matching.some(({ tool }) => tool === 'firewalld') ? ['firewall-cmd --reload'] : []
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
