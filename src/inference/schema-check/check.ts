// Compiles the JSON Schema of a strict response_format with ajv and checks contents against it. Pure. Runs only in a
// child process (program.ts): the limits here keep honest work short, and the child's deadline and memory limit stop
// the rest.

import { Ajv2020 } from 'ajv/dist/2020.js'
import { messageOf } from '../../base/fault.ts'
import { resultOr } from '../../base/result-or.ts'
import { isObject, type JsonObject } from '../json-text.ts'
import { linearPattern } from './pattern.ts'

/** Checks whether the text of one choice is JSON that the schema accepts. A check with too many steps fails. */
export type ContentCheck = (text: string) => 'valid' | 'not_json' | 'violated'

/** The schema cannot be used. The message goes to the client, after `The schema of response_format `. */
export class SchemaRefusal extends Error {}

const depthMax = 64
/** Maximum number of nodes of the schema, including those behind its references, counted per reference. */
const nodesMax = 20_000
const patternsMax = 256
/** Maximum number of fields in one object: ajv nests the code of each in the code of the previous one. */
const fieldsMax = 2_000
const stepsMax = 1_000_000
const quotedCharsMax = 100

/** Compiles a schema. Throws SchemaRefusal if it is not a JSON Schema (2020-12), or exceeds the limits. */
export function compileSchema(text: string): ContentCheck {
  const schema: unknown = JSON.parse(text)
  if (!isObject(schema)) throw new SchemaRefusal('is not an object')
  const { $schema: _dialect, ...own } = schema
  const counted = new Walk().schema(own, 0, '#')
  const validate = compile(own, counted)
  return content => {
    let value: unknown
    try {
      value = JSON.parse(content)
    } catch {
      return 'not_json'
    }
    return validate(value) ? 'valid' : 'violated'
  }
}

function compile(own: JsonObject, counted: JsonObject): (value: unknown) => boolean {
  if (!isJsonSchema(own)) throw new SchemaRefusal('is not a JSON Schema')
  let steps = 0
  // A new instance for each schema, because one client's `$id` must not be found by another's.
  const ajv = new Ajv2020({
    strict: false,
    validateFormats: false,
    validateSchema: false,
    meta: false,
    // ajv would repeat a schema's code at every reference: n references to a schema of n fields make n² of code.
    inlineRefs: false,
    // The compiler would print megabytes of code made from the client's text.
    logger: false,
    // Optimizing the code takes time that grows with the square of the number of properties.
    code: { optimize: false, regExp: Object.assign(supportedPattern, { code: 'supportedPattern' }) },
  })
  ajv.addKeyword({
    keyword: stepKeyword,
    before: '$ref',
    validate: () => {
      steps += 1
      if (steps > stepsMax) throw new RangeError('too many steps')
      return true
    },
  })
  let validate: (value: unknown) => unknown
  try {
    validate = ajv.compile(counted)
  } catch (error) {
    throw error instanceof SchemaRefusal ? error : new SchemaRefusal(`cannot be compiled: ${quoted(messageOf(error))}`)
  }
  return value => {
    steps = 0
    return resultOr(() => validate(value) === true, false)
  }
}

const metaSchema = new Ajv2020({ strict: false, validateFormats: false, logger: false })

function isJsonSchema(schema: JsonObject): boolean {
  return resultOr(() => metaSchema.validateSchema(schema) === true, false)
}

const stepKeyword = 'x-strongroom-step'

/** Keywords whose value is data, not a schema. */
const DATA = new Set(['const', 'enum', 'default', 'examples', 'required'])
const UNSUPPORTED = ['$dynamicRef', '$recursiveRef', '$async'] as const

/** Counts a schema and makes every `$ref` count as steps, because only references multiply work beyond the sizes. */
class Walk {
  #nodes = 0
  #patterns = 0
  readonly #sizes = new Map<string, number>()
  readonly #references = new Set<string>()

  schema(root: JsonObject, depth: number, place: string): JsonObject {
    const counted = this.#object(root, depth, place)
    const whole = this.#nodes
    // A reference that is not a JSON pointer, such as an $anchor, counts as the whole schema.
    for (const reference of this.#references) this.#add(this.#sizes.get(reference) ?? whole)
    return counted
  }

  #object(node: JsonObject, depth: number, place: string): JsonObject {
    if (depth > depthMax) throw new SchemaRefusal(`is nested deeper than ${depthMax} levels`)
    const before = this.#nodes
    this.#add(1)
    if (node.uniqueItems === true) throw new SchemaRefusal('has uniqueItems, which is not supported')
    for (const name of UNSUPPORTED) {
      if (Object.hasOwn(node, name)) throw new SchemaRefusal(`has ${name}, which is not supported`)
    }
    if (typeof node.pattern === 'string') this.#addPattern()
    if (Object.keys(node).length > fieldsMax) throw new SchemaRefusal(`has more than ${fieldsMax} fields in one object`)
    const out: Record<string, unknown> = Object.create(null)
    for (const [key, value] of Object.entries(node)) {
      const inner = `${place}/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`
      if (key === 'patternProperties' && isObject(value)) for (const _ of Object.keys(value)) this.#addPattern()
      if (DATA.has(key)) this.#addData(value)
      out[key] = DATA.has(key) ? value : this.#value(value, depth + 1, inner)
    }
    if (typeof node.$ref === 'string') {
      this.#references.add(node.$ref)
      out[stepKeyword] = true
    }
    this.#sizes.set(place, this.#nodes - before)
    return { ...out }
  }

  #value(value: unknown, depth: number, place: string): unknown {
    if (Array.isArray(value) && value.length > fieldsMax) {
      throw new SchemaRefusal(`has more than ${fieldsMax} items in one list`)
    }
    if (Array.isArray(value)) return value.map((item, at) => this.#value(item, depth + 1, `${place}/${at}`))
    if (isObject(value)) return this.#object(value, depth, place)
    this.#add(1)
    return value
  }

  #addData(value: unknown): void {
    this.#add(1)
    if (typeof value !== 'object' || value === null) return
    for (const item of Array.isArray(value) ? value : Object.values(value)) this.#addData(item)
  }

  #add(nodes: number): void {
    this.#nodes += nodes
    if (this.#nodes > nodesMax) {
      throw new SchemaRefusal(`has more than ${nodesMax} parts, counting what each $ref refers to`)
    }
  }

  #addPattern(): void {
    this.#patterns += 1
    if (this.#patterns > patternsMax) throw new SchemaRefusal(`has more than ${patternsMax} patterns`)
  }
}

function supportedPattern(pattern: string): { test: (text: string) => boolean } {
  try {
    return linearPattern(pattern)
  } catch (error) {
    throw new SchemaRefusal(`has the pattern ${quoted(pattern)}, which is not supported: ${quoted(messageOf(error))}`)
  }
}

function quoted(text: string): string {
  const short = text.length > quotedCharsMax ? `${text.slice(0, quotedCharsMax)}…` : text
  return JSON.stringify(short)
}
