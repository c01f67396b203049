// Room for snapshots: the limits of the operator. Effects: reads how much of the disk is free.

import type { Instance } from '../../store/directory/instance.table.ts'
import type { SnapshotFiles } from './files.ts'
import { RoomFault, ShareFault, switchedOff } from './refusals.ts'
import { replacedBy, type SnapshotCause } from './replaced.plan.ts'

export type SnapshotSettings = {
  /** 0 switches snapshots off. */
  readonly keptPerInstance: number
  readonly bytesPerOrganization: number
  readonly bytesMax: number
  readonly freeBytesMin: number
  readonly port: number
}

export type Room = {
  readonly files: Pick<SnapshotFiles, 'arrivingBytes' | 'bytes' | 'of'>
  readonly freeBytes: () => number
  readonly settings: Omit<SnapshotSettings, 'port'>
}

/**
 * Throws Fault conflict if there is no room for `moreBytes` of this instance. Snapshots that the new one replaces do
 * not count.
 */
export function checkRoom(
  { id, organizationId }: Pick<Instance, 'id' | 'organizationId'>,
  { cause, moreBytes }: { readonly cause: SnapshotCause; readonly moreBytes: number },
  { files, freeBytes, settings }: Room,
): void {
  const { keptPerInstance, bytesPerOrganization, bytesMax, freeBytesMin } = settings
  if (keptPerInstance === 0) throw switchedOff()
  const kept = files.of(id)
  const replaced = replacedBy(cause, kept, keptPerInstance)
  if (replaced === null)
    throw new RoomFault(
      'conflict',
      'No room: a schedule does not replace the newest snapshot that you took yourself; remove it, if it may go.',
    )
  const staying = kept.filter(record => !replaced.includes(record))
  const own = staying.reduce((sum, { bytes }) => sum + bytes, moreBytes + files.arrivingBytes(id))
  if (files.bytes(organizationId, id) + own > bytesPerOrganization)
    throw new ShareFault(
      'conflict',
      `The snapshots of the organization would exceed ${gib(bytesPerOrganization)}; delete older ones.`,
    )
  if (files.bytes(null, id) + own > bytesMax || freeBytes() - moreBytes < freeBytesMin)
    throw new RoomFault('conflict', 'This host has no room for the snapshot; ask the operator, or delete older ones.')
}

function gib(bytes: number): string {
  return `${Math.floor(bytes / 2 ** 30)} GiB`
}
