// The one error that codecs of this library throw. Pure. Verifiers catch it and turn it into a failed check; this file has their helpers.

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

/** What `read` returns, or why it could not: for verifiers, which never throw. */
export function parsed<T>(read: () => T): Parsed<T> {
  try {
    return { ok: true, value: read() }
  } catch (error) {
    return { ok: false, reason: reasonOf(error) }
  }
}

/** For the reason of a failed check. Anything but Malformed is a value of a type that the caller may not pass, or our own mistake. */
export function reasonOf(error: unknown): string {
  return error instanceof Malformed ? error.message : `unexpected error: ${error}`
}
