// Bounds of a client's JSON Schema. A schema that the gateway's checker compiles is refused beyond them. In any other,
// which only an engine may compile to a grammar, the keywords beyond them are left out. Pure: one walk, linear in the
// schema. Fault invalid_request.

import { resultOr } from '../../base/result-or.ts'
import { invalidField, isObject, type JsonObject } from '../json-text.ts'

const nodesMax = 20_000
const depthMax = 64
const patternCharsMax = 512
/** Bound of one repetition, `{n,m}`. */
const repeatMax = 1_000
/** Characters and classes of a pattern once its counted repetitions are written out. */
const patternSizeMax = 10_000
const countMax = 100_000
/** Maximum number of keys of all patternProperties of a schema, because each is compiled. */
const keyPatternsMax = 1_000

/** Keywords that set a number of repetitions. */
const COUNTS: ReadonlySet<string> = new Set([
  ...['minItems', 'maxItems', 'minLength', 'maxLength'],
  ...['minProperties', 'maxProperties', 'minContains', 'maxContains'],
])

/** Keywords whose values are not schemas. */
const VALUES: ReadonlySet<string> = new Set(['const', 'enum', 'default', 'examples'])

/** Keywords whose members are named by the client. */
const MAPS: ReadonlySet<string> = new Set([
  ...['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas', 'dependentRequired'],
])

/** Checks a schema. `path`: place of the schema in the request. */
export function checkSchemaBounds(schema: JsonObject, path: string): void {
  let nodes = 0
  let keyPatterns = 0
  const visit = (node: unknown, depth: number): void => {
    if (typeof node !== 'object' || node === null) return
    nodes += 1
    if (nodes > nodesMax) throw invalidField(path, `has more than ${nodesMax} objects and lists in it.`)
    if (depth > depthMax) throw invalidField(path, `is nested deeper than ${depthMax} levels.`)
    if (isObject(node)) checkKeywords(node, path)
    const patterns = isObject(node) && isObject(node.patternProperties) ? node.patternProperties : {}
    for (const pattern in patterns) {
      keyPatterns += 1
      if (keyPatterns > keyPatternsMax)
        throw invalidField(path, `has more than ${keyPatternsMax} keys of patternProperties.`)
      const problem = patternProblem(pattern)
      if (problem !== null) throw invalidField(path, `has a key of patternProperties that ${problem}`)
    }
    // Not Object.values: of a list with millions of items it takes seconds.
    if (Array.isArray(node)) for (const inner of node) visit(inner, depth + 1)
    else for (const name in node) visit((node as JsonObject)[name], depth + 1)
  }
  visit(schema, 0)
}

function checkKeywords(node: JsonObject, path: string): void {
  for (const name of COUNTS) {
    const count = node[name]
    if (typeof count === 'number' && !isGoodCount(count)) {
      throw invalidField(path, `has a ${name} that is not a whole number from 0 to ${countMax}.`)
    }
  }
  const problem = typeof node.pattern === 'string' ? patternProblem(node.pattern) : null
  if (problem !== null) throw invalidField(path, `has a pattern that ${problem}`)
  if (typeof node.$ref === 'string' && !node.$ref.startsWith('#')) {
    throw invalidField(path, 'has a $ref to another document; only references within the schema (#…) are followed.')
  }
}

/**
 * Removes keywords beyond the bounds and returns their names: an engine that compiles `maxLength: 524288` to a grammar
 * may hang, and all of its other requests with it. The caller bounds depth and size. A count in the form of a string is
 * too large for a double (dialects/long-numbers.ts).
 */
export function relaxSchema(schema: JsonObject): ReadonlySet<string> {
  let removed: Set<string> | null = null
  let keyPatterns = 0
  const isKeyBeyond = (pattern: string) => {
    keyPatterns += 1
    return keyPatterns > keyPatternsMax || patternProblem(pattern) !== null
  }
  /** `map`: the keyword whose members these are, if the client names them. */
  const visit = (node: unknown, map: string | null): void => {
    if (typeof node !== 'object' || node === null) return
    if (Array.isArray(node)) {
      for (const inner of node) visit(inner, null)
      return
    }
    const fields = node as Record<string, unknown>
    for (const name in fields) {
      const value = fields[name]
      const isRemoved = map === null ? isBeyond(name, value) : map === 'patternProperties' && isKeyBeyond(name)
      if (isRemoved) {
        delete fields[name]
        removed ??= new Set()
        removed.add(map ?? name)
      } else if (map !== null || !VALUES.has(name)) visit(value, map === null && MAPS.has(name) ? name : null)
    }
  }
  visit(schema, null)
  return removed ?? NONE
}

const NONE: ReadonlySet<string> = new Set()

function isBeyond(name: string, value: unknown): boolean {
  if (typeof value === 'number') return COUNTS.has(name) && !isGoodCount(value)
  if (typeof value !== 'string') return false
  if (name === 'pattern') return patternProblem(value) !== null
  return name === '$ref' ? !value.startsWith('#') : COUNTS.has(name)
}

/** Returns why no engine may get the regular expression; null if it may. */
export function patternProblem(pattern: string): string | null {
  if (pattern.length > patternCharsMax) return `must have at most ${patternCharsMax} characters.`
  if (pattern.includes('{') && sizeOf(pattern) > patternSizeMax) {
    return `must repeat at most ${repeatMax} times in each {n,m}, and ${patternSizeMax} times in all of them together.`
  }
  const isValid = ['u', ''].some(flags => resultOr(() => new RegExp(pattern, flags), null) !== null)
  return isValid ? null : 'must be a valid regular expression.'
}

const patternToken = /\\u\{[\da-fA-F]*\}|\\.|\[(?:\\.|[^\]\\])*(?:\]|$)|\{(\d*)(?:,(\d*))?\}|./gsu

/** Returns the size as `patternSizeMax` counts it; Infinity if a repetition exceeds `repeatMax`. */
function sizeOf(pattern: string): number {
  const outer: number[] = []
  let sum = 0
  let last = 0
  for (const [token, least, most] of pattern.matchAll(patternToken)) {
    let size = 1
    if (least !== undefined) {
      const count = Math.max(Number(least), Number(most ?? 0))
      if (count > repeatMax) return Number.POSITIVE_INFINITY
      size = last * Math.max(count, 1)
      sum -= last
    } else if (token === '(') {
      outer.push(sum)
      sum = 0
      continue
    } else if (token === ')') {
      size = sum
      sum = outer.pop() ?? 0
    }
    last = size
    sum += size
  }
  return sum
}

function isGoodCount(count: number): boolean {
  return Number.isInteger(count) && count >= 0 && count <= countMax
}
