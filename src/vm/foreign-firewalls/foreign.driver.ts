// Reads the firewalls of this host, of which ours is one. Effects: runs nft(8) and iptables-save(8), which change nothing; reads /proc.

import { existsSync, readFileSync } from 'node:fs'
import { messageOf } from '../../base/fault.ts'
import { inTurns, type Turns } from '../../base/work/turns.ts'
import { plainEnv, run } from '../../linux/command.ts'
import { readIptables } from './iptables-rules.codec.ts'
import { readNftRules } from './nft-rules.codec.ts'
import { type Chain, chainName } from './trace.plan.ts'

export type Firewalls = {
  readonly chains: readonly Chain[]
  /** What could not be read, for people. */
  readonly unread: readonly string[]
}

export type FirewallReads = {
  readonly timeoutMs: number
  /** Of each program's output. Strangers who are banned one by one make it longer: JSON is parsed in one turn, 10 ms for each MiB. */
  readonly outputBytesMax: number
}

/**
 * What iptables has of each family: `family` of its tables in nftables, and the kernel's older tables, absent where they are not loaded. Reading
 * them by iptables-legacy-save would otherwise load them.
 */
const IPTABLES = [
  { family: 'ip', program: 'iptables', legacy: 'legacy', legacyTables: '/proc/net/ip_tables_names' },
  { family: 'ip6', program: 'ip6tables', legacy: 'legacy6', legacyTables: '/proc/net/ip6_tables_names' },
] as const
/** Elements of sets are left out, of which there may be any number, and what counts. */
const listRuleset = ['nft', '--json', '--terse', '--stateless', 'list', 'ruleset'] as const

/** Never rejects. Reads in short turns. */
export async function lookAtFirewalls(reads: FirewallReads): Promise<Firewalls> {
  const unread: string[] = []
  const read = async (argv: readonly string[], parse: (text: string) => Turns<Chain[]>): Promise<Chain[]> => {
    try {
      return await inTurns(parse((await run(argv, reads)).stdout))
    } catch (error) {
      unread.push(messageOf(error))
      return []
    }
  }
  const nft = await read(listRuleset, readNftRules)
  let chains = nft
  const older: Chain[] = []
  for (const { family, program, legacy, legacyTables } of IPTABLES) {
    const isOpaque = nft.some(chain => chain.family === family && chain.isOpaque === true)
    if (isOpaque && isInstalled(`${program}-nft-save`))
      chains = withTold(chains, family, await read([`${program}-nft-save`], text => readIptables(text, family)))
    if (hasTables(legacyTables) && isInstalled(`${program}-legacy-save`))
      older.push(...(await read([`${program}-legacy-save`], text => readIptables(text, legacy))))
  }
  return { chains: [...chains, ...older], unread }
}

/** iptables tells of its own tables more than nft does. */
function withTold(chains: readonly Chain[], family: string, told: readonly Chain[]): Chain[] {
  const tables = new Set(
    chains.filter(chain => chain.family === family && chain.isOpaque === true).map(({ table }) => table),
  )
  const better = told.filter(({ table }) => tables.has(table))
  const names = new Set(better.map(chainName))
  return [...chains.filter(chain => !names.has(chainName(chain))), ...better]
}

function hasTables(file: string): boolean {
  try {
    return existsSync(file) && readFileSync(file, 'utf8').trim() !== ''
  } catch {
    return false
  }
}

function isInstalled(program: string): boolean {
  return Bun.which(program, { PATH: plainEnv.PATH }) !== null
}
