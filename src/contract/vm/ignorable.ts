// Members of a control snapshot, of its keys and of its budgets that a gateway of an earlier release may leave out.
// Any other member that it does not know makes it refuse the snapshot. Pure.

import { ControlKey, ControlSnapshot } from './enclave.ts'

/** Members that gateways know, of the snapshot and in its lists. */
const KNOWN_MEMBERS = {
  snapshot: new Set(Object.keys(ControlSnapshot.properties)),
  keys: new Set(Object.keys(ControlKey.properties)),
  budgets: new Set(Object.keys(ControlSnapshot.properties.budgets.items.properties)),
} as const

/** Removes members that are unknown to this release and that the snapshot itself marks as ignorable. */
export function withoutIgnorable(snapshot: unknown): unknown {
  if (!isRecord(snapshot) || !Array.isArray(snapshot.ignorable) || snapshot.ignorable.length > 32) return snapshot
  const ignorable = new Set(snapshot.ignorable)
  const known = (value: unknown, names: ReadonlySet<string>): unknown => {
    if (!isRecord(value)) return value
    return Object.fromEntries(Object.entries(value).filter(([name]) => names.has(name) || !ignorable.has(name)))
  }
  const listed = (list: unknown, names: ReadonlySet<string>) =>
    Array.isArray(list) ? list.map(item => known(item, names)) : list
  return {
    ...(known(snapshot, KNOWN_MEMBERS.snapshot) as object),
    keys: listed(snapshot.keys, KNOWN_MEMBERS.keys),
    budgets: listed(snapshot.budgets, KNOWN_MEMBERS.budgets),
  }
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
