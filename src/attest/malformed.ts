// The one error that codecs of this library throw, and helpers that turn it into a failed check. Pure.

/** Bytes that do not have the form that they must have. `what` names the structure and, where it helps, the field. */
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

/** The result of `read`, or why it failed: for verifiers, which never throw. */
export function parsed<T>(read: () => T): Parsed<T> {
  try {
    return { ok: true, value: read() }
  } catch (error) {
    return { ok: false, reason: reasonOf(error) }
  }
}

/** The reason for a failed check. Errors other than Malformed are mistakes in the caller's types or in this library. */
export function reasonOf(error: unknown): string {
  return error instanceof Malformed ? error.message : `unexpected error: ${error}`
}
