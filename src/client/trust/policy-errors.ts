// Explains an error in a policy file: the value that was found, and an example of an allowed one, from the schema. Here
// and not in the parser, which pages load. Pure.

import { Malformed } from '../../attest/malformed.ts'

/** The keywords that schemas of policies use. */
type Schema = Readonly<
  Partial<Record<'anyOf' | 'const' | 'enum' | 'items' | 'minimum' | 'pattern' | 'properties' | 'type', unknown>>
>

/** Runs a parser of policies. Explains the Malformed that it throws. */
export function explainingPolicy<T>(document: unknown, schema: object, parse: () => T): T {
  try {
    return parse()
  } catch (error) {
    if (!(error instanceof Malformed)) throw error
    throw new Malformed(explained(error.message, document, schema as Schema), { cause: error })
  }
}

/** Returns the message with value and example; unchanged if it names no field of the policy. */
export function explained(message: string, document: unknown, schema: Schema): string {
  const [, path, reason] = /^((?:gpu )?policy(?:\.\w+|\[\d+\])*): (.*)$/su.exec(message) ?? []
  const unknown = /^((?:gpu )?policy(?:\.\w+|\[\d+\])*)\.(.+): unknown field$/su.exec(message)
  if (unknown !== null) return withNear(message, fieldAt(schema, stepsOf(unknown[1] ?? '')), unknown[2] ?? '')
  if (path === undefined || reason === undefined) return message
  const steps = stepsOf(path)
  const field = fieldAt(schema, steps)
  const value = steps.reduce<unknown>((inner, step) => Reflect.get(Object(inner), step), document)
  const odd = reason.startsWith('it is missing') ? misspelt(document, schema, steps) : ''
  const found = reason.startsWith('not ') ? `${shown(value)} is ${reason}` : `${reason}${odd}`
  if (field === null) return `${path}: ${found}`
  const isSkippable = formsOf(field).some(form => form.const === 'any')
  const example = exampleOf(field)
  // The advice for a missing field names "any" already.
  const any = isSkippable && !reason.includes('"any"') ? ', or "any" to skip this check' : ''
  return example === null ? `${path}: ${found}` : `${path}: ${found}; for example ${example}${any}`
}

/** Names an unknown field beside a missing one, which may be meant by it. */
function misspelt(document: unknown, schema: Schema, steps: readonly string[]): string {
  const around = steps.slice(0, -1)
  const object: unknown = around.reduce<unknown>((inner, step) => Reflect.get(Object(inner), step), document)
  const form = fieldAt(schema, around)
  const known = form === null ? [] : formsOf(form).flatMap(({ properties }) => Object.keys(Object(properties)))
  const unknown = Object.keys(Object(object)).find(name => !known.includes(name))
  return unknown === undefined || known.length === 0 ? '' : `; is it the unknown field ${shown(unknown)}?`
}

const shownCharsMax = 60

function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? 'nothing'
  return text.length <= shownCharsMax ? text : `${text.slice(0, shownCharsMax)}… (${text.length} characters)`
}

function stepsOf(path: string): string[] {
  return path.replace(/^(?:gpu )?policy/, '').match(/[^.[\]]+/g) ?? []
}

/** Returns the alternatives of a schema. */
function formsOf(schema: Schema): readonly Schema[] {
  const { anyOf } = schema
  return Array.isArray(anyOf) ? anyOf.flatMap(formsOf) : [schema]
}

/** Returns the schema below these names and indices; null without one. */
function fieldAt(schema: Schema, steps: readonly string[]): Schema | null {
  const [step, ...more] = steps
  if (step === undefined) return schema
  for (const form of formsOf(schema)) {
    const inner: unknown = /^\d+$/.test(step) ? form.items : Reflect.get(Object(form.properties), step)
    if (typeof inner === 'object' && inner !== null) return fieldAt(inner as Schema, more)
  }
  return null
}

/** Texts for patterns, by a part of the pattern. */
const PATTERN_EXAMPLES: readonly (readonly [part: string, example: string])[] = [
  ['0x(', '"0xb"'],
  ['-[0-9a-f]{4}', '"63da758d-e664-4564-adc5-f4b93be8accd"'],
  ['BEGIN', '"-----BEGIN PUBLIC KEY-----\\n…"'],
  ['\\x20-', '"cloud"'],
  ['\\p{C}', '"chips.json"'],
]

function exampleOf(schema: Schema): string | null {
  const form = formsOf(schema).find(other => other.const !== 'any')
  if (form === undefined) return null
  const { enum: values, minimum, pattern, type, items, properties } = form
  if ('const' in form) return JSON.stringify(form.const)
  if (Array.isArray(values)) return JSON.stringify(values[0])
  if (type === 'integer') return String(minimum ?? 0)
  if (typeof pattern === 'string') return patternExample(pattern)
  if (type === 'array') return `[${exampleOf(Object(items)) ?? '…'}]`
  const [first] = Object.entries<Schema>(Object(properties))
  return first === undefined ? null : `{ "${first[0]}": ${exampleOf(first[1]) ?? '…'}, … }`
}

function patternExample(pattern: string): string | null {
  const digits = /\[0-9a-f\]\{(\d+)\}\$$/.exec(pattern)?.[1]
  const known = PATTERN_EXAMPLES.find(([part]) => pattern.includes(part))
  if (known !== undefined) return known[1]
  return digits === undefined ? null : `"0a1b2c3d…", ${digits} digits of 0-9 and a-f`
}

const nearLetters = 3
const namesMax = 4

/** Adds the names that begin as the unknown one, or, if the object is small, all of its names. */
function withNear(message: string, schema: Schema | null, unknown: string): string {
  const names = schema === null ? [] : formsOf(schema).flatMap(form => Object.keys(Object(form.properties)))
  const begin = unknown.slice(0, nearLetters).toLowerCase()
  const near = names.filter(name => name.toLowerCase().startsWith(begin)).slice(0, namesMax)
  if (near.length > 0) return `${message}; did you mean ${near.join(' or ')}?`
  return names.length === 0 || names.length > 2 * namesMax ? message : `${message}; there are ${names.join(', ')}`
}
