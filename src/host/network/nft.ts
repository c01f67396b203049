// nftables through nft(8). Effects: reads and changes one table of family inet in our network namespace.
//
// Ruleset text is built elsewhere, purely. One writer: changes run one after the other, each as one kernel transaction.

import { type Static, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { Fault, wrapFault } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { run } from '../../linux/command.ts'

export type Counter = { readonly packets: number; readonly bytes: number }
export type Quota = { readonly usedBytes: number; readonly limitBytes: number }
/** Monotonic as long as the table lives; keyed by object name. */
export type Counters = { readonly counters: ReadonlyMap<string, Counter>; readonly quotas: ReadonlyMap<string, Quota> }

/** Every method's Faults: host.command_failed (refused, nothing changed; or too many changes wait), host.command_timeout. */
export type Nft = {
  /** Applies whole text in one transaction, after the changes before it. `timeoutMs` begins when its turn comes. */
  readonly applyRuleset: (text: string, timeoutMs: number) => Promise<void>
  /** Named counters and quotas, or null when the table is not there: someone flushed the ruleset. */
  readonly readCounters: (timeoutMs: number) => Promise<Counters | null>
  readonly tableExists: (timeoutMs: number) => Promise<boolean>
  /** None there is fine. */
  readonly deleteTable: (timeoutMs: number) => Promise<void>
}

export type NftOptions = {
  readonly table: string
  readonly log: Logger
  /** Changes that may wait for their turn. */
  readonly waitingMax?: number
}

export function createNft({ table, log, waitingMax = 256 }: NftOptions): Nft {
  if (!/^[a-z][a-z0-9_]{0,30}$/.test(table)) throw new Fault('internal', `not a table name: ${JSON.stringify(table)}`)
  let waiting = 0
  let last: Promise<void> = Promise.resolve()
  const inTurn = async (text: string, timeoutMs: number): Promise<void> => {
    if (waiting >= waitingMax) throw new Fault('host.command_failed', `nft: ${waiting} changes wait already`)
    waiting += 1
    const mine = last.then(() => apply(text, timeoutMs))
    last = mine.then(
      () => {},
      () => {},
    )
    try {
      await mine
    } catch (error) {
      log.error('nft refused a change', { table, error })
      throw error
    } finally {
      waiting -= 1
    }
  }
  const tableExists = async (timeoutMs: number): Promise<boolean> => {
    const { stdout } = await run(['nft', '--json', 'list tables'], { timeoutMs, outputBytesMax })
    return parseLists(stdout).some(item => item.table?.family === 'inet' && item.table.name === table)
  }
  return {
    applyRuleset: inTurn,
    tableExists,
    readCounters: async timeoutMs => {
      const lists = `list counters table inet ${table}; list quotas table inet ${table}`
      try {
        const { stdout } = await run(['nft', '--json', lists], { timeoutMs, outputBytesMax })
        return parseCounters(stdout)
      } catch (error) {
        if (!(await tableExists(timeoutMs))) return null
        throw wrapFault(error, 'read counters')
      }
    },
    // `add` first, so that there is something to delete in every case.
    deleteTable: timeoutMs => inTurn(`add table inet ${table}\ndelete table inet ${table}\n`, timeoutMs),
  }
}

const outputBytesMax = 67_108_864

async function apply(text: string, timeoutMs: number): Promise<void> {
  await run(['nft', '--file', '-'], { stdin: text, timeoutMs, outputBytesMax })
}

const Amount = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })
/** libnftables-json(5). Each list item is an object with one key that tells its kind; we read three of the kinds. */
const ListItem = Type.Object({
  table: Type.Optional(Type.Object({ family: Type.String(), name: Type.String() })),
  counter: Type.Optional(Type.Object({ name: Type.String(), packets: Amount, bytes: Amount })),
  quota: Type.Optional(Type.Object({ name: Type.String(), bytes: Amount, used: Amount })),
})
const List = Type.Object({ nftables: Type.Array(ListItem) })

/** Output of `nft --json` for one list or several: one JSON object a line. Pure. Fault host.command_failed. */
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
      if (!Value.Check(List, list)) throw new Fault('host.command_failed', 'nft list: output of the wrong shape')
      return list.nftables
    })
}
