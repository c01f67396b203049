// Finds addresses whose connections the kernel still tracks, by conntrack(8). Effects: reads the connections of one
// network namespace.

import { containsRange, rangeOf } from '../../base/ipv4.ts'
import { coversV6, rangeOfV6 } from '../../base/ipv6.ts'
import { runLines } from '../../linux/command-lines.ts'
import { hereNetns, type Netns } from './netns.ts'

/** Options of conntrack(8): the side of an entry to search. */
const SIDES = ['--orig-src', '--reply-src'] as const
export type ConnectionSide = (typeof SIDES)[number]

export type RememberedAddress = {
  readonly address: string
  /** Number of entries that name it, by side. */
  readonly counts: Readonly<Partial<Record<ConnectionSide, number>>>
}

export type RememberedAddresses = {
  readonly addresses: readonly RememberedAddress[]
  /** False if there are more entries or addresses than the limits allow to read. */
  readonly whole: boolean
}

export type RememberedOptions = {
  /** CIDR, of either family. */
  readonly network: string
  /** Addresses whose entries are left out. */
  readonly isHeld: (address: string) => boolean
  readonly timeoutMs: number
  /** Default: that of the process. */
  readonly netns?: Netns
  readonly entryCountMax?: number
  readonly addressCountMax?: number
}

/**
 * Returns unassigned addresses of the network that an entry names as its client or its server. An entry without a reply
 * is ignored if the address is the server: anyone can create one, and it admits no traffic. Faults:
 * host.command_failed, host.command_timeout.
 */
export async function rememberedAddresses(options: RememberedOptions): Promise<RememberedAddresses> {
  const { network, isHeld, timeoutMs, netns = hereNetns, entryCountMax = 1_048_576, addressCountMax = 1_000 } = options
  const found = new Map<string, Partial<Record<ConnectionSide, number>>>()
  const isIn = insideOf(network)
  let leftCount = entryCountMax
  // conntrack(8) selects by network only on the original side.
  const argv = ['conntrack', '--dump', '--family', network.includes(':') ? 'ipv6' : 'ipv4']
  const onLine = (line: string): boolean => {
    for (const side of SIDES) {
      const address = addressOf(line, side)
      if (address === null || !isIn(address) || isHeld(address)) continue
      const counts = found.get(address)
      if (counts === undefined && found.size >= addressCountMax) return false
      found.set(address, { ...counts, [side]: (counts?.[side] ?? 0) + 1 })
    }
    leftCount -= 1
    return leftCount > 0
  }
  const { whole } = await netns.run(() => runLines(argv, { timeoutMs, lineBytesMax, onLine }))
  const addresses = [...found].map(([address, counts]): RememberedAddress => ({ address, counts }))
  return { addresses: addresses.sort((a, b) => (a.address < b.address ? -1 : 1)), whole }
}

const lineBytesMax = 4_096

function insideOf(network: string): (address: string) => boolean {
  if (network.includes(':')) {
    const range = rangeOfV6(network)
    return address => address.includes(':') && coversV6(range, rangeOfV6(address))
  }
  const range = rangeOf(network)
  return address => !address.includes(':') && containsRange(range, rangeOf(address))
}

/**
 * Returns the address on this side of an entry, or null. `src` occurs twice in a line: original direction, then reply.
 */
export function addressOf(line: string, side: ConnectionSide): string | null {
  const sources = [...line.matchAll(/\bsrc=([0-9a-f.:]+)/g)].map(([, address = '']) => address)
  if (sources.length !== 2) return null
  if (side === '--orig-src') return sources[0] ?? null
  return line.includes('[UNREPLIED]') ? null : (sources[1] ?? null)
}
