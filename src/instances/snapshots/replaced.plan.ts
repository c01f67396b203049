// Which snapshots of an instance a new one replaces. Pure.
//
// A VM decides when a snapshot is due, and when it is idle. So what it has taken without a command replaces such ones:
// a program that became root there, or a schedule that runs on over broken files, cannot push out the owner's own.

import type { KeptSnapshot } from './files.ts'

/** Why a snapshot is taken: the owner's command or schedule, or the end of an unused instance. */
export type SnapshotCause = 'command' | 'schedule' | 'idle_end'

type Replaceable = Pick<KeptSnapshot, 'isUnattended'>

/**
 * Returns the kept ones, the oldest first, that a new one replaces so that at most `keptMax` are kept with it: for a
 * command the oldest. Otherwise first those that no command took; null if a schedule would replace the newest that a
 * command took.
 */
export function replacedBy<T extends Replaceable>(
  cause: SnapshotCause,
  kept: readonly T[],
  keptMax: number,
): readonly T[] | null {
  const count = Math.max(0, kept.length + 1 - keptMax)
  if (cause === 'command') return kept.slice(0, count)
  const commanded = kept.filter(({ isUnattended }) => isUnattended !== true)
  const replaced = [...kept.filter(({ isUnattended }) => isUnattended === true), ...commanded].slice(0, count)
  const newest = commanded.at(-1)
  const isRefused = cause === 'schedule' && newest !== undefined && replaced.includes(newest)
  return isRefused ? null : replaced
}
