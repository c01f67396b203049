// Data from outside, checked against a schema: the value in its type, or the first problem in words. Pure.

import { Fault, type FaultCode, wrapFault } from '../base/fault.ts'
import { parseJson } from '../base/json.ts'
import { firstProblem } from './first-problem.ts'
import { type SchemaOptions, type Static, type TLiteral, type TNull, type TSchema, Type } from './type.ts'

export type CheckResult<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly problem: string }

/** `problem` is `/path/to/field: what is wrong`, for the first wrong field. Values are never changed or filled in. */
export function checkValue<S extends TSchema>(schema: S, value: unknown): CheckResult<Static<S>> {
  const problem = firstProblem(schema, value)
  if (problem === null) return { ok: true, value: value as Static<S> }
  return { ok: false, problem: `${problem.path || '/'}: ${problem.message}` }
}

/** Whether the value is valid, for callers that need no reason. */
export function matches<S extends TSchema>(schema: S, value: unknown): value is Static<S> {
  return firstProblem(schema, value) === null
}

/** The value in its type. Throws a Fault of `code` that names the thing (`what`) and its first wrong field. */
export function checked<S extends TSchema>(
  schema: S,
  value: unknown,
  { what, code }: { readonly what: string; readonly code: FaultCode },
): Static<S> {
  const result = checkValue(schema, value)
  if (result.ok) return result.value
  throw new Fault(code, `${what}: ${result.problem}`)
}

const depthMax = 64

/** The value of strict JSON text (base/json.ts), in its type. Throws a Fault of `code` that names `what`. */
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

type Literals<Names extends readonly string[]> = { -readonly [I in keyof Names]: TLiteral<Names[I]> }

/** One of some texts, so that a list in code and the schema of a wire are one. */
export function OneOf<const Names extends readonly string[]>(names: Names, options: SchemaOptions = {}) {
  return Type.Union<Literals<Names>>([...literals(names)], options)
}

export function OneOfOrNull<const Names extends readonly string[]>(names: Names, options: SchemaOptions = {}) {
  return Type.Union<[...Literals<Names>, TNull]>([...literals(names), Type.Null()], options)
}

function literals<const Names extends readonly string[]>(names: Names) {
  return names.map(name => Type.Literal(name)) as Literals<Names>
}
