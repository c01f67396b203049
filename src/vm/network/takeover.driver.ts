// Removes the network of VMs under its former names, and migrates a host whose taps and counts have the layout of
// releases before the namespace of VMs: all of them in the host's own network namespace, next to a guard. Effects:
// interfaces, nftables, routing rules, the ledger.

import type { Clock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { createNft, type Nft } from '../../host/network/nft.ts'
import { listTaps, moveTap, receivedBytes, removeTap } from '../../host/network/tap.ts'
import { namespaceFile, removeVmNamespace, type VmNamespace } from '../../host/network/vm-namespace.ts'
import { run } from '../../linux/command.ts'
import type { LedgerStore } from '../../store/db.ts'
import { recordEgress } from '../../store/ledger/egress.query.ts'
import { listResources } from '../../store/ledger/resource.query.ts'
import type { EgressRow } from '../../store/ledger/vm.table.ts'
import { isTapName } from '../launch.plan.ts'
import type { NetworkNames } from './network-names.query.ts'
import { quotaNames } from './nft.plan.ts'

export type TakeoverDeps = {
  readonly ledger: LedgerStore
  readonly namespace: Pick<VmNamespace, 'name' | 'netns'>
  /** This host's tables. */
  readonly nft: Pick<Nft, 'readCounters' | 'deleteTables'>
  readonly tapPrefix: string
  readonly clock: Clock
  readonly log: Logger
}

const timeoutMs = 30_000
const outputBytesMax = 1_048_576
/** The table that closed taps while the appliance's own was absent. */
const guardTable = 'strongroom_guard'

/**
 * Removes this host's tables, the link and the namespace of VMs under the names of an earlier configuration. Safe to
 * repeat. Faults: host.*.
 */
export async function removeFormer({ table, tapPrefix }: NetworkNames, log: Logger): Promise<void> {
  await createNft({ table, log }).deleteTables(timeoutMs)
  await removeVmNamespace({ name: table, tapPrefix })
}

/**
 * Moves the taps and stores their counts. The next run of the firewall continues from there, and configures the taps. A
 * tap is down from the moment of its move, so every byte is counted. Safe to repeat after a crash at any point. Faults:
 * host.*.
 */
export async function takeOver({ ledger, namespace, nft, tapPrefix, clock, log }: TakeoverDeps): Promise<void> {
  const taps = (await listTaps(tapPrefix, timeoutMs)).filter(name => isTapName(tapPrefix, name))
  for (const tap of taps) await moveOrRemove(tap, { file: namespaceFile(namespace.name), log })
  const quotas = (await nft.readCounters(timeoutMs))?.quotas
  if (taps.length === 0 && (quotas === undefined || quotas.size === 0)) return
  const received = receivedBytes(namespace.netns)
  const observedAtMs = clock.nowMs()
  const rows = listResources(ledger.db, 'nft').flatMap(({ name: tap, vmId }): EgressRow[] => {
    const { cap, rescue } = quotaNames(tap)
    const found = quotas?.get(cap)
    if (found === undefined) return []
    const { usedBytes } = found
    const blockedAtMs = usedBytes >= found.limitBytes ? observedAtMs : null
    const rescueBytes = quotas?.get(rescue)?.usedBytes ?? 0
    return [{ vmId, usedBytes, rescueBytes, observedAtMs, blockedAtMs, tapBytes: received.get(tap) ?? null }]
  })
  ledger.transact(tx => recordEgress(tx, rows))
  await nft.deleteTables(timeoutMs)
  // `add` comes first, so that there is always something to delete.
  const guard = `add table inet ${guardTable}\ndelete table inet ${guardTable}\n`
  await run(['nft', '--file', '-'], { stdin: guard, timeoutMs, outputBytesMax })
  log.warn('the interfaces of VMs were moved into their own network namespace, with what was counted', {
    namespace: namespace.name,
    taps,
    counted: rows.length,
  })
}

/** Moves the tap. If that is impossible, removes it, because it must not stay where nothing filters it; its VM ends. */
async function moveOrRemove(tap: string, { file, log }: { readonly file: string; readonly log: Logger }) {
  try {
    await moveTap(tap, { file, timeoutMs })
  } catch (error) {
    log.error(
      'the interface of a VM cannot be moved into the network namespace of VMs: it is removed, and the VM ends',
      {
        tap,
        reason: messageOf(error),
      },
    )
    await removeTap(tap, timeoutMs)
  }
}
