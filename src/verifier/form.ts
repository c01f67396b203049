// Data from outside in the form of a schema, for verifiers: another form is Malformed. Pure.

import { wellFormed } from '../attest/malformed.ts'
import { checkValue } from '../contract/check.ts'
import type { Static, TSchema } from '../contract/type.ts'

/** Returns the value in its type. Throws Malformed, whose message begins with `what`. */
export function ofForm<S extends TSchema>(what: string, schema: S, value: unknown): Static<S> {
  const result = checkValue(schema, value)
  wellFormed(result.ok, `${what}: ${result.ok ? '' : result.problem}`)
  return result.value
}
