// The queued builds of all hosts, in the order of their turns. Effects: reads the store.

import type { DirectoryDb } from '../store/db.ts'
import { countVmsByOwner, lastStartedMs, listQueued, type QueuedBuild } from '../store/directory/build.query.ts'
import { inTurn } from './shares.plan.ts'

export function listInTurn(db: DirectoryDb): QueuedBuild[] {
  const waiting = listQueued(db)
  if (waiting.length < 2) return waiting
  const vms = countVmsByOwner(db)
  return inTurn(waiting, owner => ({ vms: vms.get(owner) ?? 0, lastStartedMs: lastStartedMs(db, owner) ?? 0 }))
}
