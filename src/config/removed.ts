// Fields that an earlier release had. A file that still has one is read without it, with a warning, for one release:
// an upgrade must not stop the service. Pure.

export type RemovedField = {
  /** Dotted path. */
  readonly field: string
  /** The release that no longer has it. The next one refuses it as unknown: take the row away then. */
  readonly since: string
  /** Completes "has no effect any more: ". */
  readonly instead: string
}

export const REMOVED_FIELDS: readonly RemovedField[] = [
  {
    field: 'vm.user',
    since: '0.1.0',
    instead: 'each VM runs under a uid of its own, from vm.uid_min to vm.uid_max; take the line out',
  },
  {
    field: 'inference.nonce_retention_hours',
    since: '0.1.0',
    instead: 'nonces are kept for minutes; write inference.nonce_retention_minutes in its place, or take the line out',
  },
]

/** Takes the removed fields out of `table`, which is changed. Returns those that were in it. */
export function takeRemoved(table: object, removed: readonly RemovedField[] = REMOVED_FIELDS): RemovedField[] {
  return removed.filter(({ field }) => {
    const path = field.split('.')
    const name = path.pop() ?? ''
    const holder = path.reduce<unknown>((at, part) => ownOf(at, part), table)
    if (!isTable(holder) || !Object.hasOwn(holder, name)) return false
    return Reflect.deleteProperty(holder, name)
  })
}

function ownOf(at: unknown, name: string): unknown {
  return isTable(at) && Object.hasOwn(at, name) ? Reflect.get(at, name) : undefined
}

function isTable(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
