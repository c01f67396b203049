// A single host's directory whose changes find other hosts, as those of a fleet do.

import type { Clock } from '../../../src/base/clock.ts'
import { type DirectoryStore, type DirectoryTx, toChange } from '../../../src/store/db.ts'

/** Without `hosts` the directory is as it was. */
export function withHosts(
  directory: DirectoryStore,
  clock: Pick<Clock, 'nowMs'>,
  hosts: Partial<DirectoryTx['hosts']> | undefined,
): DirectoryStore {
  if (hosts === undefined) return directory
  const refused = { kind: 'refused', reason: 'no host is placed on' } as const
  const found: DirectoryTx['hosts'] = { find: () => null, place: () => refused, ...hosts }
  return {
    ...directory,
    change: async work => directory.transact(tx => work(toChange(tx, { nowMs: clock.nowMs(), hosts: found }))),
  }
}
