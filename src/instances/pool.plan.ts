// Stages of the warm pool's VMs, the order in which creates take them, and verdicts on orphans. Pure.

import type { PoolVm } from '../store/directory/pool.table.ts'
import type { VmView } from '../vm/engine.ts'

/** Stages in the order in which creates take VMs: those with the most progress first. */
const TAKEN_IN_ORDER = ['warm', 'greeting', 'booting', 'launching', 'waiting'] as const

export type PoolStage =
  | (typeof TAKEN_IN_ORDER)[number]
  /** The engine lacks the VM: the daemon ended before it was defined. */
  | 'absent'
  /** Claimed by a record that is missing, as in a database restored from a backup that is older than the claim. */
  | 'claimed'
  /** Can no longer be assigned. */
  | 'lost'

export type PoolLook = { readonly stage: PoolStage /** Why it is lost, else null. */; readonly reason: string | null }

/** Returns the stage of a pool row, from the engine's view of its VM. */
export function lookOf(
  row: Pick<PoolVm, 'boxKey'>,
  view: Pick<VmView, 'state' | 'failureCode' | 'guest'> | null,
): PoolLook {
  if (view === null) return { stage: 'absent', reason: null }
  switch (view.state) {
    case 'waiting':
    case 'launching':
    case 'booting':
      return { stage: view.state, reason: null }
    case 'running':
      return guestLook(row, view.guest)
    case 'failed':
      return { stage: 'lost', reason: `it failed: ${view.failureCode ?? 'internal'}` }
    case 'stopping':
    case 'gone':
      return { stage: 'lost', reason: 'it was taken down' }
  }
}

function guestLook({ boxKey }: Pick<PoolVm, 'boxKey'>, guest: VmView['guest']): PoolLook {
  // After a restart of the daemon, until the agent has responded again.
  if (guest === null) return { stage: 'greeting', reason: null }
  if (guest.claimId !== null) return { stage: 'claimed', reason: null }
  if (boxKey !== null && boxKey !== guest.boxKey) return { stage: 'lost', reason: 'its agent restarted' }
  return { stage: 'warm', reason: null }
}

/** Returns how early a stage is taken, 0 first; null for never. */
export function takeRank(stage: PoolStage): number | null {
  const order: readonly PoolStage[] = TAKEN_IN_ORDER
  const rank = order.indexOf(stage)
  return rank < 0 ? null : rank
}

/** How an instance started: on a warm VM, on one that was booting, or on its own. */
export const INSTANCE_STARTS = ['warm', 'booting', 'cold'] as const
export type InstanceStart = (typeof INSTANCE_STARTS)[number]

export function startOf(rank: number): InstanceStart {
  return rank === 0 ? 'warm' : 'booting'
}

/** Verdict on a VM in the ledger that belongs to neither an instance nor the pool. */
export type Orphan = 'dismiss' | 'keep' | 'ask_later'

/** Dismisses unclaimed orphans. A claimed one is left to the operator, because it may contain a customer's work. */
export function orphanVerdict({ state, guest }: Pick<VmView, 'state' | 'guest'>): Orphan {
  if (state !== 'running') return 'dismiss'
  if (guest === null) return 'ask_later'
  return guest.claimId === null ? 'dismiss' : 'keep'
}
