// Finds out whether this host routes for others: VMs need forwarding, which is on for all interfaces or none. Effects:
// reads /proc and the interfaces' addresses, runs nft(8).

import { readFileSync } from 'node:fs'
import { networkInterfaces } from 'node:os'
import { type Static, Type } from '@sinclair/typebox'
import { checked } from '../../contract/check.ts'
import { run } from '../../linux/command.ts'

export type OtherForwarding = {
  /** Whether the kernel forwards this family (ip_forward, conf/all/forwarding). */
  readonly forwards: boolean
  /** Interfaces that the host forwards between: with a non-link-local address, no loopback, no taps. */
  readonly interfaces: readonly string[]
  /** Base chains in the forward hook with policy drop, as `family table chain`. */
  readonly droppedBy: readonly string[]
  /** Whether the table `table` has a rule that drops what is not of VMs (`network.forward_others`). */
  readonly droppedByUs: boolean
}

export type ForwardingOptions = {
  readonly family: Family
  readonly tapPrefix: string
  readonly table: string
  readonly timeoutMs: number
}

type Family = keyof typeof FAMILIES
const FAMILIES = {
  ipv4: { name: 'IPv4', file: '/proc/sys/net/ipv4/ip_forward', nft: 'ip' },
  ipv6: { name: 'IPv6', file: '/proc/sys/net/ipv6/conf/all/forwarding', nft: 'ip6' },
} as const

/**
 * Facts for `doctor`: the host is a router when it `forwards`, has two `interfaces` or more, and nothing drops.
 * Faults: host.command_failed, host.command_timeout.
 */
export async function lookAtForwarding(options: ForwardingOptions): Promise<OtherForwarding> {
  const { tapPrefix, table, timeoutMs } = options
  const family = FAMILIES[options.family]
  const interfaces = Object.entries(networkInterfaces()).flatMap(([name, addresses = []]) =>
    addresses.some(info => info.family === family.name && !info.internal && !info.address.startsWith('fe80:')) &&
    !isTap(name, tapPrefix)
      ? [name]
      : [],
  )
  const { stdout } = await run(['nft', '--json', 'list chains'], { timeoutMs, outputBytesMax })
  const chains = checked(Chains, JSON.parse(stdout || '{"nftables":[]}'), {
    what: 'nft list',
    code: 'host.command_failed',
  })
  const closed = chains.nftables.flatMap(({ chain }) =>
    chain !== undefined && dropsForwarded(chain, family.nft) ? [chain] : [],
  )
  const ours = chains.nftables.some(({ chain }) => chain?.table === table && chain.name === othersChain)
  return {
    forwards: readFileSync(family.file, 'utf8').trim() === '1',
    interfaces: interfaces.sort(),
    droppedBy: closed.map(chain => `${chain.family} ${chain.table} ${chain.name}`),
    droppedByUs: ours && (await hasRules(table, timeoutMs)),
  }
}

/** Chain of our table that drops packets without a VM at either end, or is empty (vm/network/nft.plan.ts). */
export const othersChain = 'forward_others'

const outputBytesMax = 4_194_304
const Chain = Type.Object({
  family: Type.String(),
  table: Type.String(),
  name: Type.String(),
  hook: Type.Optional(Type.String()),
  policy: Type.Optional(Type.String()),
})
const Chains = Type.Object({ nftables: Type.Array(Type.Object({ chain: Type.Optional(Chain) })) })

function dropsForwarded({ family, hook, policy }: Static<typeof Chain>, wanted: 'ip' | 'ip6'): boolean {
  return hook === 'forward' && policy === 'drop' && (family === wanted || family === 'inet')
}

async function hasRules(table: string, timeoutMs: number): Promise<boolean> {
  const { stdout } = await run(['nft', 'list', 'chain', 'inet', table, othersChain], { timeoutMs, outputBytesMax })
  return stdout.split('\n').some(line => line.trim().endsWith(' drop'))
}

/** As vm/launch.plan.ts names them. */
function isTap(name: string, prefix: string): boolean {
  return name.startsWith(prefix) && /^[0-9a-f]{10}$/.test(name.slice(prefix.length))
}
