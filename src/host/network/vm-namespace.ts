// The network namespace of VMs' taps, and its one link to this host. Effects: mounts the namespace below /run/netns,
// creates interfaces, routes and routing rules in both, writes their settings.
//
// The taps' table of nftables is also in it, so flushing tables on this host neither opens nor uncounts them, and a
// flush inside stops all packets of VMs (vm-link.ts). Both ends of the link have one MAC and no ARP, so a frame needs
// no neighbour. The next hop of VMs is this host's end of the link. Inside, each tap also has it, as the source of
// errors, but a routing rule sends packets for it to this host.

import { Type } from '@sinclair/typebox'
import { linkNames } from '../../base/link-names.ts'
import { createSerial } from '../../base/work/serial.ts'
import { checked } from '../../contract/check.ts'
import { run } from '../../linux/command.ts'
import { isUnderSystemd } from '../../linux/process/scope.ts'
import { isNetns, type Netns, netnsAt } from './netns.ts'
import { writeSetting } from './setting.ts'
import { interfaceNames } from './tap.ts'
import {
  addLinkArgv,
  hostCommands,
  hostRuleCommands,
  hostSettings,
  insideCommands,
  insideRuleCommands,
  insideSettings,
  type LinkRoutes,
  linkMac,
  nextHopRuleCommands,
  openedRuleCommands,
  parseRules,
  type RoutingRule,
  type VmLinkPlan,
  vmRouteCommands,
  withdrawnRuleCommands,
} from './vm-link.ts'

/** `name`: file name below /run/netns, for ip-netns(8). */
type Options = VmLinkPlan & { readonly name: string }

export type VmNamespace = {
  readonly name: string
  readonly netns: Netns
  /** Name of this host's end of the link. */
  readonly link: string
  /** Creates what is missing; safe to repeat. Leaves routing inside closed or open, as it is. Faults: host.*. */
  readonly open: () => Promise<void>
  /**
   * Like `open`, if other programs have removed the link or its limits. Also closes routing inside again, once
   * `closeRouting` was called. Otherwise changes nothing. Faults: host.*.
   */
  readonly keep: () => Promise<void>
  /**
   * Closes routing inside to packets of VMs that the table there has not marked, and keeps it so (`keep`). Call it once
   * that table is there: until then VMs of an earlier build would reach nothing. Faults: host.*.
   */
  readonly closeRouting: () => Promise<void>
}

export function namespaceFile(name: string): string {
  return `/run/netns/${name}`
}

export function createVmNamespace(options: Options): VmNamespace {
  const file = namespaceFile(options.name)
  const netns = netnsAt(file)
  const turns = createSerial()
  let isToBeClosed = false
  const open = async () => {
    if (!isNetns(file)) await mountNamespace(file)
    await join(options, netns)
  }
  const keep = async () => {
    if (!(await isKept(options))) await open()
    if (isToBeClosed) await close(options, netns)
  }
  return {
    name: options.name,
    netns,
    link: linkNames(options.tapPrefix).host,
    open: () => turns.run(open),
    keep: () => turns.run(keep),
    closeRouting: () => {
      isToBeClosed = true
      return turns.run(keep)
    },
  }
}

/**
 * Opens routing inside, for a return to an earlier build, whose table marks nothing. Returns the changed families. No
 * effect without the namespace. Faults: host.*.
 */
export async function openRouting(name: string): Promise<string[]> {
  const file = namespaceFile(name)
  if (!isNetns(file)) return []
  const netns = netnsAt(file)
  const opened: string[] = []
  for (const family of FAMILIES) {
    const commands = openedRuleCommands(await netns.run(() => readRules(family)))
    if (commands.length > 0) opened.push(family.name)
    await netns.run(() => batch(commands, family))
  }
  return opened
}

/** Removes the link and the namespace with everything in it. Returns what was removed. Faults: host.*. */
export async function removeVmNamespace({ name, tapPrefix }: Pick<Options, 'name' | 'tapPrefix'>): Promise<string[]> {
  const { host } = linkNames(tapPrefix)
  const removed: string[] = []
  for (const family of FAMILIES) {
    const commands = withdrawnRuleCommands(await readRules(family), host)
    if (commands.length > 0) removed.push(`routing rules (${family.name})`)
    await batch(commands, family)
  }
  if (interfaceNames().includes(host)) {
    await run(['ip', 'link', 'delete', 'dev', host], limits)
    removed.push(host)
  }
  if (isNetns(namespaceFile(name))) {
    await run([...asHost(), 'ip', 'netns', 'delete', name], limits)
    removed.push(name)
  }
  return removed
}

/** Adds this host's routes to a VM; safe to repeat. Faults: host.command_failed, host.command_timeout. */
export async function routeVm(routes: LinkRoutes): Promise<void> {
  await batch(vmRouteCommands(routes))
}

/**
 * Removes this host's routes to the addresses. No effect if there are none. Faults: host.command_failed,
 * host.command_timeout.
 */
export async function unrouteVm(link: string, addresses: readonly string[]): Promise<void> {
  if (!interfaceNames().includes(link)) return
  for (const address of addresses) {
    const family = address.includes(':') ? ipv6 : ipv4
    await run(['ip', family.option, 'route', 'flush', 'exact', address, 'dev', link], limits)
  }
}

/** Returns this host's ends of such links, of any appliance. Faults: host.command_failed, host.command_timeout. */
export async function listLinks(): Promise<string[]> {
  const { stdout } = await run(['ip', '-json', 'link', 'show', 'type', 'veth'], limits)
  const links = checked(Links, JSON.parse(stdout || '[]'), { what: 'ip link', code: 'host.command_failed' })
  return links.flatMap(({ ifname, address }) => (address === linkMac && ifname !== undefined ? [ifname] : [])).sort()
}

/** Interfaces of other types are empty rows. */
const Links = Type.Array(Type.Object({ ifname: Type.Optional(Type.String()), address: Type.Optional(Type.String()) }))

const limits = { timeoutMs: 10_000, outputBytesMax: 1_048_576 }
const ipv4 = { name: 'IPv4', option: '-4' } as const
const ipv6 = { name: 'IPv6', option: '-6' } as const
const FAMILIES = [ipv4, ipv6] as const
type Family = (typeof FAMILIES)[number]

/**
 * Mounts the namespace. A service of systemd has its own mounts, which end with it, so systemd itself mounts it in
 * those of the host, where the service also sees it.
 */
async function mountNamespace(file: string): Promise<void> {
  await run([...asHost(), 'install', '-D', '--mode=0444', '/dev/null', file], limits)
  await run([...asHost(), 'unshare', `--net=${file}`, 'true'], limits)
}

/** The start of a command that changes mounts of this host: those of the service are its own. */
function asHost(): string[] {
  const isService = isUnderSystemd() && process.ppid === 1
  return isService ? ['systemd-run', '--quiet', '--wait', '--collect', '--service-type=oneshot'] : []
}

async function join(options: Options, netns: Netns): Promise<void> {
  const names = linkNames(options.tapPrefix)
  const hasHost = interfaceNames().includes(names.host)
  if (!hasHost || !netns.run(interfaceNames).includes(names.inside)) {
    if (hasHost) await run(['ip', 'link', 'delete', 'dev', names.host], limits)
    await run(addLinkArgv(names, namespaceFile(options.name)), limits)
  }
  for (const [path, value] of hostSettings(options)) writeSetting(path, value)
  netns.run(() => {
    for (const [path, value] of insideSettings(options)) writeSetting(path, value)
  })
  // Before an end is up, so that no packet reaches this host without the rules that limit its destinations.
  for (const { family, nextHop } of nextHopsOf(options)) {
    await batch(hostRuleCommands(await readRules(family), names.host), family)
    const inside = await netns.run(() => readRules(family))
    await netns.run(() => batch(nextHopRuleCommands(inside, nextHop), family))
  }
  await netns.run(() => batch(insideCommands(options)))
  await batch(hostCommands(options))
}

async function close(options: Options, netns: Netns): Promise<void> {
  const { inside: link } = linkNames(options.tapPrefix)
  for (const { family, nextHop } of nextHopsOf(options)) {
    const rules = await netns.run(() => readRules(family))
    await netns.run(() => batch(insideRuleCommands(rules, { nextHop, link }), family))
  }
}

async function isKept(options: Options): Promise<boolean> {
  const { host } = linkNames(options.tapPrefix)
  if (!interfaceNames().includes(host)) return false
  for (const { family } of nextHopsOf(options)) {
    if (hostRuleCommands(await readRules(family), host).length > 0) return false
  }
  return true
}

function nextHopsOf({ nextHop, nextHopV6 }: Options): { readonly family: Family; readonly nextHop: string }[] {
  return [{ family: ipv4, nextHop }, ...(nextHopV6 === null ? [] : [{ family: ipv6, nextHop: nextHopV6 }])]
}

async function readRules(family: Family): Promise<RoutingRule[]> {
  const { stdout } = await run(['ip', family.option, '-json', 'rule', 'show'], limits)
  return parseRules(stdout)
}

async function batch(commands: readonly string[], family: Family = ipv4): Promise<void> {
  if (commands.length === 0) return
  await run(['ip', ...(family === ipv6 ? [ipv6.option] : []), '-batch', '-'], {
    ...limits,
    stdin: `${commands.join('\n')}\n`,
  })
}
