// JSON Schemas from strangers: compiled by ajv, with a budget of steps, because a small schema can ask for 2^n of them. Pure but for its cache.

import { Ajv2020 } from 'ajv/dist/2020.js'
import { Fault } from '../../base/fault.ts'
import { isObject, type JsonObject } from './request.ts'

/** Whether a value keeps to the schema. A value whose check runs over the budget does not. */
export type SchemaCheck = (value: unknown) => boolean

export type SchemaChecks = {
  /** Fault invalid_request: no JSON Schema (2020-12), or one that could be used to keep us busy. */
  readonly compile: (schema: JsonObject) => SchemaCheck
}

const cacheEntriesMax = 128
const schemaCharsMax = 262_144
const schemaDepthMax = 64
const stepsMax = 1_000_000
const patternCharsMax = 512
const patternRepeatsMax = 3
/** Longest text that a pattern with several repetitions is tried on: the work grows with a power of it. */
const patternTextCharsMax = 256

export function createSchemaChecks(): SchemaChecks {
  const cache = new Map<string, SchemaCheck>()
  return {
    compile: schema => {
      const text = JSON.stringify(schema)
      if (text.length > schemaCharsMax) throw invalid(`is longer than ${schemaCharsMax} characters`)
      const known = cache.get(text)
      if (known !== undefined) {
        // The youngest is last, so the first is the one to go.
        cache.delete(text)
        cache.set(text, known)
        return known
      }
      const check = compileSchema(schema)
      cache.set(text, check)
      const oldest = cache.keys().next()
      if (cache.size > cacheEntriesMax && !oldest.done) cache.delete(oldest.value)
      return check
    },
  }
}

const metaSchema = new Ajv2020({ strict: false, validateFormats: false })

function compileSchema(schema: JsonObject): SchemaCheck {
  const { $schema: _dialect, ...own } = schema
  const guarded = guard(own, 0)
  let isValid: unknown
  try {
    isValid = metaSchema.validateSchema(own)
  } catch {
    isValid = false
  }
  if (isValid !== true) throw invalid('is not a JSON Schema')
  let steps = 0
  // An instance each: `$id` of one client's schema must not meet that of another's.
  const ajv = new Ajv2020({
    strict: false,
    validateFormats: false,
    validateSchema: false,
    meta: false,
    code: { regExp: Object.assign(boundedPattern, { code: 'boundedPattern' }) },
  })
  ajv.addKeyword({
    keyword: stepKeyword,
    before: '$ref',
    validate: () => {
      steps += 1
      if (steps > stepsMax) throw new RangeError('over the budget')
      return true
    },
  })
  let validate: (value: unknown) => unknown
  try {
    validate = ajv.compile(guarded)
  } catch {
    throw invalid('cannot be compiled')
  }
  return value => {
    steps = 0
    try {
      return validate(value) === true
    } catch {
      return false
    }
  }
}

const stepKeyword = 'x-strongroom-step'

/** Keywords whose value is data, not a schema. */
const DATA = new Set(['const', 'enum', 'default', 'examples', 'required'])

/** Every `$ref` counts its steps: only references multiply work beyond the sizes of schema and value. */
function guard(node: JsonObject, depth: number): JsonObject {
  if (depth > schemaDepthMax) throw invalid(`is nested deeper than ${schemaDepthMax} levels`)
  if (node.uniqueItems === true) throw invalid('has uniqueItems, which is not supported')
  if (Object.hasOwn(node, '$dynamicRef') || Object.hasOwn(node, '$async')) {
    throw invalid('has $dynamicRef or $async, which are not supported')
  }
  const out: Record<string, unknown> = Object.create(null)
  for (const [key, value] of Object.entries(node)) {
    out[key] = DATA.has(key) ? value : guardAny(value, depth + 1)
  }
  if (typeof node.$ref === 'string') out[stepKeyword] = true
  return { ...out }
}

function guardAny(value: unknown, depth: number): unknown {
  if (Array.isArray(value)) return value.map(item => guardAny(item, depth + 1))
  return isObject(value) ? guard(value, depth) : value
}

/** A regular expression that cannot run away: no repetition within a repetition, few of them, short texts where there are several. */
function boundedPattern(pattern: string, flags: string): { test: (text: string) => boolean } {
  const repeats = countRepeats(pattern)
  if (pattern.length > patternCharsMax || repeats > patternRepeatsMax)
    throw invalid('has a pattern that is too complex')
  const expression = new RegExp(pattern, flags)
  return { test: text => (repeats <= 1 || text.length <= patternTextCharsMax) && expression.test(text) }
}

/** Number of repetitions; infinite where one may hold another, or where text is matched by reference or by looking around. */
function countRepeats(pattern: string): number {
  const bare = pattern.replace(/\\[^1-9k]/gs, 'x').replace(/\[[^\]]*\]/g, 'x')
  if (/\\[1-9k]|\(\?(?!:)/.test(bare)) return Number.POSITIVE_INFINITY
  if (/\)(?:[*+]|\{)/.test(bare)) return Number.POSITIVE_INFINITY
  return [...bare.matchAll(/[*+]|\{\d+,?\d*\}/g)].length
}

function invalid(what: string): Fault {
  return new Fault('invalid_request', `The schema of response_format ${what}.`)
}
