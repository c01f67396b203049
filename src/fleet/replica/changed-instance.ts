// Instances affected by changes of the directory, and the consequences. Pure.

import type { WireRow } from './tables.ts'

/** An instance that changes of other hosts have affected. Null if it was deleted. */
export type ChangedInstance = {
  readonly id: string
  readonly isOwn: boolean
  /** Whether it did not exist here, or has moved to this host. */
  readonly isNew: boolean
  /** Whether this host must end the VM that it had for the instance. */
  readonly isLeft: boolean
  /** Whether it was wanted before, and no longer is. */
  readonly isDismissed: boolean
  /** Whether it was given up, and its VM with it. */
  readonly isFailed: boolean
}

/** An instance in a host's copy. */
export type InstanceBefore = {
  readonly host_id: string
  readonly desired: string
  readonly status: string
  readonly vm_id: string | null
  readonly attempt: number
}

/** Reports whether the attempt differs. It may also be earlier, if a failover lost the instance's move. */
export function isOtherAttempt(before: InstanceBefore, after: InstanceBefore): boolean {
  return after.attempt !== before.attempt || after.host_id !== before.host_id
}

export function mayHaveVm(after: InstanceBefore | null): boolean {
  return after !== null && after.status !== 'terminated'
}

/** Combines two changes of an instance. */
export function mergeChanges(a: ChangedInstance | undefined, b: ChangedInstance): ChangedInstance {
  if (a === undefined) return b
  return {
    ...b,
    isNew: a.isNew || b.isNew,
    isLeft: a.isLeft || b.isLeft,
    isDismissed: a.isDismissed || b.isDismissed,
    isFailed: a.isFailed || b.isFailed,
  }
}

/** Returns the instance of a row with its record, name or address; null for other rows. */
export function instanceOf(table: string, row: WireRow): string | null {
  const column = { instances: 'id', instance_addresses: 'instance_id', instance_attestations: 'instance_id' }[table]
  const id = column === undefined ? null : row[column]
  return typeof id === 'string' ? id : null
}
