// The host's count of the egress, for programs of this VM. It is the host's word: it is shown, and nothing else depends
// on it. Effects: reads a file.

import { resultOr } from '../../base/result-or.ts'
import { matches } from '../../contract/check.ts'
import { EgressCount } from '../../contract/vm/agent.ts'
import { readTextOrNull } from '../../linux/files.ts'
import type { GuestPaths } from '../paths.ts'

/** The newest count; null before the first. */
export function readEgress({ egress }: Pick<GuestPaths, 'egress'>): EgressCount | null {
  const count = resultOr(() => JSON.parse(readTextOrNull(egress) ?? 'null'), null)
  return matches(EgressCount, count) ? count : null
}

/** Null while something is left of the limit. */
export function spentReason(count: EgressCount | null): string | null {
  if (count === null || count.usedBytes < count.limitBytes) return null
  return `the egress limit of this instance, ${gigabytes(count.limitBytes)}, is spent by the host's count`
}

export function gigabytes(bytes: number): string {
  return `${(bytes / 1e9).toFixed(2)} GB`
}
