// JSON Schemas from clients: compiled by ajv, with a limit on steps, because a small schema can demand 2^n of them. Pure but for its cache.

import { Ajv2020 } from 'ajv/dist/2020.js'
import type { Fault } from '../../base/fault.ts'
import { invalidRequest, isObject, type JsonObject } from './json-text.ts'

/** Whether a value is valid. A value whose check takes too many steps is not. */
export type SchemaCheck = (value: unknown) => boolean

export type SchemaChecks = {
  /** Fault invalid_request: not a JSON Schema (2020-12), or one whose check could take too long. */
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
        // A Map keeps the order of insertion: the first entry is the one that was used longest ago.
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
  const counted = countSteps(own, 0)
  let isValid: unknown
  try {
    isValid = metaSchema.validateSchema(own)
  } catch {
    isValid = false
  }
  if (isValid !== true) throw invalid('is not a JSON Schema')
  let steps = 0
  // A new instance for each schema: the `$id` of one client's must not be found by another's.
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
      if (steps > stepsMax) throw new RangeError('too many steps')
      return true
    },
  })
  let validate: (value: unknown) => unknown
  try {
    validate = ajv.compile(counted)
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

/** The schema with every `$ref` counting steps: only references multiply work beyond the sizes of schema and value. */
function countSteps(node: JsonObject, depth: number): JsonObject {
  if (depth > schemaDepthMax) throw invalid(`is nested deeper than ${schemaDepthMax} levels`)
  if (node.uniqueItems === true) throw invalid('has uniqueItems, which is not supported')
  if (Object.hasOwn(node, '$dynamicRef') || Object.hasOwn(node, '$async')) {
    throw invalid('has $dynamicRef or $async, which are not supported')
  }
  const out: Record<string, unknown> = Object.create(null)
  for (const [key, value] of Object.entries(node)) {
    out[key] = DATA.has(key) ? value : countStepsIn(value, depth + 1)
  }
  if (typeof node.$ref === 'string') out[stepKeyword] = true
  return { ...out }
}

function countStepsIn(value: unknown, depth: number): unknown {
  if (Array.isArray(value)) return value.map(item => countStepsIn(item, depth + 1))
  return isObject(value) ? countSteps(value, depth) : value
}

/** A regular expression whose work is bounded: no repetition within a repetition, few of them, and only short texts where there are several. */
function boundedPattern(pattern: string, flags: string): { test: (text: string) => boolean } {
  const repeats = countRepeats(pattern)
  if (pattern.length > patternCharsMax || repeats > patternRepeatsMax)
    throw invalid('has a pattern that is too complex')
  const expression = new RegExp(pattern, flags)
  return { test: text => (repeats <= 1 || text.length <= patternTextCharsMax) && expression.test(text) }
}

/** Number of repetitions. Infinite where one may contain another, and for back references and lookarounds. */
function countRepeats(pattern: string): number {
  const bare = pattern.replace(/\\[^1-9k]/gs, 'x').replace(/\[[^\]]*\]/g, 'x')
  if (/\\[1-9k]|\(\?(?!:)/.test(bare)) return Number.POSITIVE_INFINITY
  if (/\)(?:[*+]|\{)/.test(bare)) return Number.POSITIVE_INFINITY
  return [...bare.matchAll(/[*+]|\{\d+,?\d*\}/g)].length
}

function invalid(what: string): Fault {
  return invalidRequest(`The schema of response_format ${what}.`)
}
