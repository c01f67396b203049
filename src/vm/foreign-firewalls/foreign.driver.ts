// Reads all firewalls of this host, ours included. Effects: runs nft(8) and iptables-save(8) for reading; reads /proc.

import { existsSync, readFileSync } from 'node:fs'
import { messageOf } from '../../base/fault.ts'
import { inTurns, type Turns } from '../../base/work/turns.ts'
import { plainEnv, run } from '../../linux/command.ts'
import { readIptables } from './iptables-rules.codec.ts'
import { readNftRules } from './nft-rules.codec.ts'
import { type Chain, chainName } from './trace.plan.ts'

export type Firewalls = {
  readonly chains: readonly Chain[]
  /** Failed reads, as text for the operator. */
  readonly unread: readonly string[]
}

export type FirewallReads = {
  readonly timeoutMs: number
  /** Limit on a program's output, parsed in one turn (10 ms per MiB). A rule per banned address makes it long. */
  readonly outputBytesMax: number
}

/** `family`: of iptables' tables in nftables. `legacyTables`: lists the kernel's older ones. */
const IPTABLES = [
  { family: 'ip', program: 'iptables', legacy: 'legacy', legacyTables: '/proc/net/ip_tables_names' },
  { family: 'ip6', program: 'ip6tables', legacy: 'legacy6', legacyTables: '/proc/net/ip6_tables_names' },
] as const
/** Without the elements of sets, of which there may be any number, and without counters. */
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
      chains = replaced(chains, await read([`${program}-nft-save`], text => readIptables(text, family)))
    if (hasTables(legacyTables) && isInstalled(`${program}-legacy-save`))
      older.push(...(await read([`${program}-legacy-save`], text => readIptables(text, legacy))))
  }
  return { chains: [...chains, ...older], unread }
}

/** Takes chains of opaque tables from iptables-save, which lists matches that nft does not. */
function replaced(chains: readonly Chain[], saved: readonly Chain[]): Chain[] {
  const tableOf = ({ family, table }: Chain) => `${family} ${table}`
  const opaque = new Set(chains.filter(chain => chain.isOpaque === true).map(tableOf))
  const better = saved.filter(chain => opaque.has(tableOf(chain)))
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
