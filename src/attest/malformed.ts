// The only error that codecs of this library throw, and functions that turn it into a failed check. Pure.

/** Bytes that do not have the required form. `what` names the structure and, if it helps, the field. */
export class Malformed extends Error {
  constructor(what: string, options?: { cause?: unknown }) {
    super(what, options)
    this.name = 'Malformed'
  }
}

export function wellFormed(condition: unknown, what: string): asserts condition {
  if (!condition) throw new Malformed(what)
}

export type Parsed<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly reason: string }

/** Returns the result of `read`, or the reason that it failed, for verifiers, which never throw. */
export function parsed<T>(read: () => T): Parsed<T> {
  try {
    return { ok: true, value: read() }
  } catch (error) {
    return { ok: false, reason: reasonOf(error) }
  }
}

/** Returns the reason for a failed check. Errors other than Malformed are bugs in this library or its caller. */
export function reasonOf(error: unknown): string {
  return error instanceof Malformed ? error.message : `unexpected error: ${error}`
}
