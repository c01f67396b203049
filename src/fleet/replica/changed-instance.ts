// Instances that changes of the directory touch, and what follows for them. Pure.

import type { WireRow } from './tables.ts'

/** An instance that changes of other hosts have affected. Null if it was deleted. */
export type ChangedInstance = {
  readonly id: string
  readonly isOwn: boolean
  /** It was not there, or this host has it newly. */
  readonly isNew: boolean
  /** This host has to end the VM that it had for it. */
  readonly isLeft: boolean
  /** It was wanted before, and is not any more. */
  readonly isDismissed: boolean
  /** It was given up, and the VM with it. */
  readonly isFailed: boolean
}

/** As a host's copy has it. */
export type InstanceBefore = {
  readonly host_id: string
  readonly desired: string
  readonly status: string
  readonly vm_id: string | null
  readonly attempt: number
}

/** Also an earlier one: a failover may have lost that another host got it. */
export function isOtherAttempt(before: InstanceBefore, after: InstanceBefore): boolean {
  return after.attempt !== before.attempt || after.host_id !== before.host_id
}

export function mayHaveVm(after: InstanceBefore | null): boolean {
  return after !== null && after.status !== 'terminated'
}

/** Two changes of an instance together. */
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

/** Instances whose record, name or address a row is about. */
export function instanceOf(table: string, row: WireRow): string | null {
  const column = { instances: 'id', instance_addresses: 'instance_id', instance_attestations: 'instance_id' }[table]
  const id = column === undefined ? null : row[column]
  return typeof id === 'string' ? id : null
}
