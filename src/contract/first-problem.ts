// Finds the first place where a value is not what a schema demands: the part of JSON Schema that `type.ts` makes, with
// the order, the paths and the words of TypeBox. Pure; recursion is as deep as the schema, not as the value.

import { KIND, type TSchema } from './type.ts'

/** `path`: a JSON pointer, empty for the value itself. */
export type SchemaProblem = { readonly path: string; readonly message: string }

type Rule = (schema: TSchema, value: unknown) => SchemaProblem | null

/** Keywords of JSON Schema that the rules below do not read: a schema with one would accept what it forbids. */
const UNREAD = ['exclusiveMinimum', 'exclusiveMaximum', 'format', 'contains', 'minProperties', 'maxProperties'] as const

/**
 * Null if the value is valid. Throws an Error for a schema of a kind that `type.ts` does not make, or with a keyword
 * that is not read.
 */
export function firstProblem(schema: TSchema, value: unknown): SchemaProblem | null {
  const kind: unknown = schema[KIND as never]
  const rule = typeof kind === 'string' ? RULES.get(kind) : undefined
  if (rule === undefined) throw new Error(`schemas of the kind ${String(kind)} are not supported`)
  const unread = UNREAD.find(keyword => Object.hasOwn(schema, keyword))
  if (unread !== undefined) throw new Error(`schemas with ${unread} are not supported`)
  return rule(schema, value)
}

const here = (message: string): SchemaProblem => ({ path: '', message })
const unless = (isValid: boolean, message: string): SchemaProblem | null => (isValid ? null : here(message))

const RULES: ReadonlyMap<string, Rule> = new Map<string, Rule>([
  ['Array', arrayProblem],
  ['Boolean', (_, value) => unless(typeof value === 'boolean', 'Expected boolean')],
  ['Integer', (schema, value) => numberProblem(schema, value, Number.isInteger(value), 'integer')],
  ['Literal', (schema, value) => unless(value === schema.const, `Expected ${quoted(schema.const)}`)],
  ['Null', (_, value) => unless(value === null, 'Expected null')],
  ['Number', (schema, value) => numberProblem(schema, value, Number.isFinite(value), 'number')],
  ['Object', objectProblem],
  ['Record', recordProblem],
  ['String', stringProblem],
  ['Tuple', tupleProblem],
  ['Union', unionProblem],
  ['Unknown', () => null],
])

function quoted(value: unknown): string {
  return typeof value === 'string' ? `'${value}'` : String(value)
}

function numberProblem(
  { minimum, maximum, multipleOf }: TSchema,
  value: unknown,
  isOfType: boolean,
  name: string,
): SchemaProblem | null {
  if (!isOfType || typeof value !== 'number') return here(`Expected ${name}`)
  if (maximum !== undefined && value > maximum) return here(`Expected ${name} to be less or equal to ${maximum}`)
  if (minimum !== undefined && value < minimum) return here(`Expected ${name} to be greater or equal to ${minimum}`)
  const isMultiple = multipleOf === undefined || value % multipleOf === 0
  return unless(isMultiple, `Expected ${name} to be a multiple of ${multipleOf}`)
}

function stringProblem({ minLength, maxLength, pattern }: TSchema, value: unknown): SchemaProblem | null {
  if (typeof value !== 'string') return here('Expected string')
  if (minLength !== undefined && value.length < minLength) {
    return here(`Expected string length greater or equal to ${minLength}`)
  }
  if (maxLength !== undefined && value.length > maxLength) {
    return here(`Expected string length less or equal to ${maxLength}`)
  }
  return unless(pattern === undefined || new RegExp(pattern).test(value), `Expected string to match '${pattern}'`)
}

function arrayProblem({ minItems, maxItems, items, uniqueItems }: TSchema, value: unknown): SchemaProblem | null {
  if (!Array.isArray(value)) return here('Expected array')
  if (minItems !== undefined && value.length < minItems) {
    return here(`Expected array length to be greater or equal to ${minItems}`)
  }
  if (maxItems !== undefined && value.length > maxItems) {
    return here(`Expected array length to be less or equal to ${maxItems}`)
  }
  const problem = firstBelow(value.keys(), index => firstProblem(items, value[index]))
  if (problem !== null || uniqueItems !== true) return problem
  const texts = new Set(value.map(item => JSON.stringify(item)))
  return unless(texts.size === value.length, 'Expected array elements to be unique')
}

function tupleProblem({ items }: TSchema, value: unknown): SchemaProblem | null {
  if (!Array.isArray(value)) return here('Expected tuple')
  if (value.length !== items.length) return here(`Expected tuple to have ${items.length} elements`)
  return firstBelow(value.keys(), index => firstProblem(items[index], value[index]))
}

function unionProblem({ anyOf }: TSchema, value: unknown): SchemaProblem | null {
  const isValid = (variant: TSchema) => firstProblem(variant, value) === null
  return unless(anyOf.some(isValid), 'Expected union value')
}

function objectProblem(schema: TSchema, value: unknown): SchemaProblem | null {
  if (!isObject(value)) return here('Expected object')
  const { properties, required = [], additionalProperties } = schema
  const missing = required.find((key: string) => !Object.hasOwn(value, key))
  if (missing !== undefined) return below(missing, here('Expected required property'))
  if (additionalProperties === false) {
    const unknown = Object.keys(value).find(key => !Object.hasOwn(properties, key))
    if (unknown !== undefined) return below(unknown, here('Unexpected property'))
  }
  return firstBelow(Object.keys(properties), key =>
    value[key] === undefined && !required.includes(key) ? null : firstProblem(properties[key], value[key]),
  )
}

function recordProblem({ patternProperties, additionalProperties }: TSchema, value: unknown): SchemaProblem | null {
  if (!isObject(value)) return here('Expected object')
  const [[pattern, schema] = ['', undefined]] = Object.entries<TSchema>(patternProperties)
  const matches = (key: string) => new RegExp(pattern).test(key)
  const problem = firstBelow(Object.keys(value), key =>
    schema !== undefined && matches(key) ? firstProblem(schema, value[key]) : null,
  )
  if (problem !== null || additionalProperties !== false) return problem
  const unknown = Object.keys(value).find(key => !matches(key))
  return unknown === undefined ? null : below(unknown, here('Unexpected property'))
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function firstBelow<Key extends string | number>(
  keys: Iterable<Key>,
  problemOf: (key: Key) => SchemaProblem | null,
): SchemaProblem | null {
  for (const key of keys) {
    const problem = problemOf(key)
    if (problem !== null) return below(String(key), problem)
  }
  return null
}

/** RFC 6901 section 3: `~` and `/` in a name are escaped. */
function below(key: string, { path, message }: SchemaProblem): SchemaProblem {
  return { path: `/${key.replaceAll('~', '~0').replaceAll('/', '~1')}${path}`, message }
}
