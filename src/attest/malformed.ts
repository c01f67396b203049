// The one error that codecs of this library throw. Pure. Verifiers catch it and turn it into a failed check.

/** Bytes that are not what they should be. `what` names the structure and, where it helps, the field. */
export class Malformed extends Error {
  constructor(what: string, options?: { cause?: unknown }) {
    super(what, options)
    this.name = 'Malformed'
  }
}

export function wellFormed(condition: unknown, what: string): asserts condition {
  if (!condition) throw new Malformed(what)
}
