// The names under which this host's kernel holds the network of VMs: taps, tables and their namespace. A start with
// other names would end running VMs, or leave them behind. Effects: SQL.

import { Fault } from '../../base/fault.ts'
import type { Config } from '../../config/schema.ts'
import type { LedgerDb } from '../../store/db.ts'
import { readMeta, swapMeta } from '../../store/ledger/meta.query.ts'
import { listResources } from '../../store/ledger/resource.query.ts'
import { tapName } from '../launch.plan.ts'

type Names = Pick<Config['network'], 'tap_prefix' | 'table'> & { readonly hostRestarted: boolean }

const tableName = 'network_table'
const tapPrefixName = 'network_tap_prefix'

export type NetworkNames = { readonly table: string; readonly tapPrefix: string }

/**
 * Returns the previous names if they differ. Then remove what the kernel holds under them and call `keepNetworkNames`.
 * Throws Fault config.invalid if VMs run under them; after a reboot of the host none does.
 */
export function formerNetworkNames(
  db: LedgerDb,
  { tap_prefix: tapPrefix, table, hostRestarted }: Names,
): NetworkNames | null {
  const taps = hostRestarted ? [] : listResources(db, 'tap')
  const [other] = taps.filter(({ vmId, name }) => tapName(tapPrefix, vmId) !== name)
  if (other !== undefined) {
    const earlier = other.name.slice(0, other.name.length - tapName('', other.vmId).length)
    throw held('network.tap_prefix', { earlier, wanted: tapPrefix, count: taps.length })
  }
  const earlier = readMeta(db, tableName)
  if (taps.length > 0 && earlier !== null && earlier !== table)
    throw held('network.table', { earlier, wanted: table, count: taps.length })
  const former = { table: earlier ?? table, tapPrefix: readMeta(db, tapPrefixName) ?? tapPrefix }
  return former.table === table && former.tapPrefix === tapPrefix ? null : former
}

/**
 * Stores the names. Call it when nothing is left under the previous ones: a start that is killed earlier repeats the
 * removal.
 */
export function keepNetworkNames(db: LedgerDb, { table, tapPrefix }: NetworkNames): void {
  db.transaction(() => {
    swapMeta(db, tableName, table)
    swapMeta(db, tapPrefixName, tapPrefix)
  })
}

function held(field: string, { earlier, wanted, count }: { earlier: string; wanted: string; count: number }): Fault {
  const way = `put ${field} back to ${JSON.stringify(earlier)}; or first end all VMs: with pool.warm = 0, listen.builds = "" and listen.inference = "", delete every instance, wait until strongroom status counts no VMs, then change it; or reboot the host, which ends them`
  return new Fault(
    'config.invalid',
    `${field} is ${JSON.stringify(wanted)}, and ${count} VMs run under ${JSON.stringify(earlier)}: ${way}`,
    { param: field },
  )
}
