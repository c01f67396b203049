// Internal invariants. Pure. A broken invariant is a bug of ours; bad input becomes a Fault instead.

/** Throws an Error that names the broken invariant. */
export function assert(condition: unknown, invariant: string): asserts condition {
  if (!condition) throw new Error(`invariant broken: ${invariant}`)
}

/** For values that the type system already excludes. */
export function unreachable(value: never): never {
  throw new Error(`invariant broken: unreachable value ${JSON.stringify(value)}`)
}

/** The value, or an invariant error when it is null or undefined. */
export function present<T>(value: T | null | undefined, invariant: string): T {
  assert(value !== null && value !== undefined, invariant)
  return value
}
