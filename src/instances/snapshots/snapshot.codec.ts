// Snapshots and attempts in the form of the API, and what a guest has signed. Pure.

import { utf8 } from '../../base/bytes.ts'
import { iso } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { resultOr } from '../../base/result-or.ts'
import { checkedJson } from '../../contract/check.ts'
import type { Snapshot, SnapshotAttempt } from '../../contract/http/snapshot.ts'
import { type SignedSnapshot, SnapshotHeader } from '../../contract/snapshot.ts'
import type { KeptSnapshot } from './files.ts'

/** Returns the number of a signed snapshot. Throws Fault channel.refused for another instance, or other bytes. */
export function numberIn({ header }: SignedSnapshot, arrived: Pick<SnapshotHeader, 'hostname' | 'sha256'>): number {
  const stated = checkedJson(SnapshotHeader, utf8(header), { what: 'header of a snapshot', code: 'channel.refused' })
  if (stated.hostname !== arrived.hostname) throw new Fault('channel.refused', 'the guest states another host name')
  if (stated.sha256 !== arrived.sha256)
    throw new Fault('channel.refused', 'other bytes have arrived than the guest signed')
  return stated.number
}

/** SHA-256 of a ciphertext that is kept; undefined if its record is damaged. */
export function digestIn({ header }: SignedSnapshot): string | undefined {
  const read = () => checkedJson(SnapshotHeader, utf8(header), { what: 'header of a snapshot', code: 'internal' })
  return resultOr(() => read().sha256, undefined)
}

export function toSnapshot({ name, number, bytes, createdAtMs, signed }: KeptSnapshot): Snapshot {
  return { instance: name, number, bytes, created_at: iso(createdAtMs), ...signed }
}

export function toAttempt({
  organizationId: _,
  ...attempt
}: SnapshotAttempt & { organizationId: string }): SnapshotAttempt {
  return attempt
}
