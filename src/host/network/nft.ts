// nftables through nft(8). Effects: reads and changes the tables of one name, of families inet and arp, in one network
// namespace.
//
// vm/network builds the text of the rulesets. Changes run one after the other, each as one kernel transaction.

import { type Static, Type } from '@sinclair/typebox'
import { Fault, wrapFault } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { createSerial } from '../../base/work/serial.ts'
import { checked } from '../../contract/check.ts'
import { run } from '../../linux/command.ts'
import { hereNetns, type Netns } from './netns.ts'
import type { NftWatch } from './nft-watch.ts'

export type Counter = { readonly packets: number; readonly bytes: number }
export type Quota = { readonly usedBytes: number; readonly limitBytes: number }
/** Counters and quotas by object name. The numbers only grow as long as the table exists. */
export type Counters = { readonly counters: ReadonlyMap<string, Counter>; readonly quotas: ReadonlyMap<string, Quota> }

/** Faults of every method: host.command_failed (nothing changed; or too many changes wait), host.command_timeout. */
export type Nft = {
  /** Applies a whole text in one transaction, after the changes before it. `timeoutMs` starts with its turn. */
  readonly applyRuleset: (text: string, timeoutMs: number) => Promise<void>
  /**
   * Reads named counters and quotas; null if the table of family inet is missing because someone flushed the ruleset.
   */
  readonly readCounters: (timeoutMs: number) => Promise<Counters | null>
  readonly tableExists: (timeoutMs: number) => Promise<boolean>
  /** Deletes the tables of both families. No effect if there are none. */
  readonly deleteTables: (timeoutMs: number) => Promise<void>
}

export type NftOptions = {
  readonly table: string
  readonly log: Logger
  /** Maximum number of changes that wait for their turn. */
  readonly waitingMax?: number
  /** Default: that of the process. */
  readonly netns?: Netns
  /** Notified of our own transactions, so that it can recognize those of others. Null if there is no watcher. */
  readonly watch?: Pick<NftWatch, 'ours'> | null
}

export function createNft({ table, log, waitingMax = 256, netns = hereNetns, watch = null }: NftOptions): Nft {
  if (!/^[a-z][a-z0-9_]{0,30}$/.test(table)) throw new Fault('internal', `not a table name: ${JSON.stringify(table)}`)
  const changes = createSerial()
  const nft = (argv: readonly string[], command: { readonly stdin?: string; readonly timeoutMs: number }) =>
    netns.run(() => run(['nft', ...argv], { ...command, outputBytesMax }))
  const apply = (text: string, timeoutMs: number) => nft(['--file', '-'], { stdin: text, timeoutMs })
  const change = async (work: () => Promise<void>): Promise<void> => {
    if (changes.size() >= waitingMax) throw new Fault('host.command_failed', `nft: ${waitingMax} changes wait already`)
    try {
      await changes.run(() => (watch === null ? work() : watch.ours(work)))
    } catch (error) {
      log.error('nft refused a change', { table, error })
      throw error
    }
  }
  const tableExists = async (timeoutMs: number): Promise<boolean> => {
    const { stdout } = await nft(['--json', 'list tables'], { timeoutMs })
    return parseLists(stdout).some(entry => entry.table?.family === 'inet' && entry.table.name === table)
  }
  return {
    applyRuleset: (text, timeoutMs) =>
      change(async () => {
        await apply(text, timeoutMs)
      }),
    tableExists,
    readCounters: async timeoutMs => {
      const lists = `list counters table inet ${table}; list quotas table inet ${table}`
      try {
        const { stdout } = await nft(['--json', lists], { timeoutMs })
        return parseCounters(stdout)
      } catch (error) {
        if (!(await tableExists(timeoutMs))) return null
        throw wrapFault(error, 'read counters')
      }
    },
    // `add` comes first, so that there is always something to delete.
    deleteTables: timeoutMs =>
      change(async () => {
        await apply(
          FAMILIES.map(family => `add table ${family} ${table}\ndelete table ${family} ${table}\n`).join(''),
          timeoutMs,
        )
      }),
  }
}

/** Families of our tables, which share one name. */
const FAMILIES = ['inet', 'arp'] as const
const outputBytesMax = 67_108_864

const Amount = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })
/** libnftables-json(5). The only key of a list item names its kind; we read three kinds. */
const ListItem = Type.Object({
  table: Type.Optional(Type.Object({ family: Type.String(), name: Type.String() })),
  counter: Type.Optional(Type.Object({ name: Type.String(), packets: Amount, bytes: Amount })),
  quota: Type.Optional(Type.Object({ name: Type.String(), bytes: Amount, used: Amount })),
})
const List = Type.Object({ nftables: Type.Array(ListItem) })

/**
 * Parses the output of `nft --json` for one or several lists: one JSON object per line. Pure. Throws Fault
 * host.command_failed.
 */
export function parseCounters(text: string): Counters {
  const counters = new Map<string, Counter>()
  const quotas = new Map<string, Quota>()
  for (const { counter, quota } of parseLists(text)) {
    if (counter) counters.set(counter.name, { packets: counter.packets, bytes: counter.bytes })
    if (quota) quotas.set(quota.name, { usedBytes: quota.used, limitBytes: quota.bytes })
  }
  return { counters, quotas }
}

function parseLists(text: string): Static<typeof ListItem>[] {
  return text
    .split('\n')
    .filter(line => line.trim() !== '')
    .flatMap(line => {
      let list: unknown
      try {
        list = JSON.parse(line)
      } catch (error) {
        throw wrapFault(error, 'nft list', 'host.command_failed')
      }
      return checked(List, list, { what: 'nft list', code: 'host.command_failed' }).nftables
    })
}
