// Reads the firewalls of this host, of which ours is one. Effects: runs nft(8) and iptables-save(8), which change nothing; reads /proc.

import { existsSync, readFileSync } from 'node:fs'
import { messageOf } from '../../base/fault.ts'
import { plainEnv, run } from '../../linux/command.ts'
import { parseIptables } from './iptables-rules.codec.ts'
import { parseNftRules } from './nft-rules.codec.ts'
import { type Chain, chainName } from './trace.plan.ts'

export type Firewalls = {
  readonly chains: readonly Chain[]
  /** What could not be read, for people. */
  readonly unread: readonly string[]
}

const outputBytesMax = 4_194_304
/** The kernel's older tables; absent where they are not loaded. Reading them by iptables-legacy-save would otherwise load them. */
const legacyTables = '/proc/net/ip_tables_names'

/** Never rejects. Elements of sets are left out: there may be any number of them. */
export async function lookAtFirewalls(timeoutMs: number): Promise<Firewalls> {
  const unread: string[] = []
  const read = async (argv: readonly string[]): Promise<string | null> => {
    try {
      return (await run(argv, { timeoutMs, outputBytesMax })).stdout
    } catch (error) {
      unread.push(messageOf(error))
      return null
    }
  }
  const parse = (what: string, work: () => Chain[]): Chain[] => {
    try {
      return work()
    } catch (error) {
      unread.push(`${what}: ${messageOf(error)}`)
      return []
    }
  }
  const ruleset = await read(['nft', '--json', '--terse', 'list', 'ruleset'])
  const nft = ruleset === null ? [] : parse('nft', () => parseNftRules(ruleset))
  const opaque = nft.some(chain => chain.family === 'ip' && chain.isOpaque === true)
  const compat = opaque && isInstalled('iptables-nft-save') ? await read(['iptables-nft-save']) : null
  const legacy = hasLegacyTables() && isInstalled('iptables-legacy-save') ? await read(['iptables-legacy-save']) : null
  const told = compat === null ? [] : parse('iptables-nft-save', () => parseIptables(compat, 'ip'))
  const older = legacy === null ? [] : parse('iptables-legacy-save', () => parseIptables(legacy, 'legacy'))
  return { chains: [...withTold(nft, told), ...older], unread }
}

/** iptables tells of its own tables more than nft does. */
function withTold(chains: readonly Chain[], told: readonly Chain[]): Chain[] {
  const tables = new Set(
    chains.filter(chain => chain.family === 'ip' && chain.isOpaque === true).map(({ table }) => table),
  )
  const better = told.filter(({ table }) => tables.has(table))
  const names = new Set(better.map(chainName))
  return [...chains.filter(chain => !names.has(chainName(chain))), ...better]
}

function hasLegacyTables(): boolean {
  try {
    return existsSync(legacyTables) && readFileSync(legacyTables, 'utf8').trim() !== ''
  } catch {
    return false
  }
}

function isInstalled(program: string): boolean {
  return Bun.which(program, { PATH: plainEnv.PATH }) !== null
}
