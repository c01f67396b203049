// Data from outside, held to a schema: the value in its type, or the first problem in words. Pure.

import type { Static, TSchema } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { Fault, type FaultCode, wrapFault } from '../base/fault.ts'
import { parseJson } from '../base/json.ts'

export type Shape<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly problem: string }

/** `problem` is `/path/to/field: what is wrong`, for the first field that is. Values are never changed or filled in. */
export function shapeOf<S extends TSchema>(schema: S, value: unknown): Shape<Static<S>> {
  if (Value.Check(schema, value)) return { ok: true, value }
  const first = Value.Errors(schema, value).First()
  return { ok: false, problem: `${first?.path || '/'}: ${first?.message ?? 'not as the schema says'}` }
}

/** The value in its type. A Fault of `code` names the thing (`what`) and its first field that is wrong. */
export function checked<S extends TSchema>(
  schema: S,
  value: unknown,
  { what, code }: { readonly what: string; readonly code: FaultCode },
): Static<S> {
  const shape = shapeOf(schema, value)
  if (shape.ok) return shape.value
  throw new Fault(code, `${what}: ${shape.problem}`)
}

const depthMax = 64

/** Strict JSON text of the schema; a name twice is refused. A Fault of `code` names the thing (`what`) and what is wrong. */
export function checkedJson<S extends TSchema>(
  schema: S,
  bytes: Uint8Array,
  { what, code }: { readonly what: string; readonly code: FaultCode },
): Static<S> {
  let value: unknown
  try {
    value = parseJson(bytes, { depthMax })
  } catch (error) {
    throw new Fault(code, wrapFault(error, what).message, { cause: error })
  }
  return checked(schema, value, { what, code })
}
