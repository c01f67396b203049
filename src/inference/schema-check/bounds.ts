// Bounds of a client's JSON Schema. One that the gateway's checker compiles is refused beyond them; in any other, which
// only an engine may compile to a grammar, the keywords beyond them are left out. Pure: one walk, linear in the schema.
// Fault invalid_request.

import { invalidField, isObject, type JsonObject } from '../json-text.ts'

const nodesMax = 20_000
const depthMax = 64
const patternCharsMax = 512
const countMax = 100_000

/** Keywords that say how often something is repeated. */
const COUNTS: ReadonlySet<string> = new Set([
  ...['minItems', 'maxItems', 'minLength', 'maxLength'],
  ...['minProperties', 'maxProperties', 'minContains', 'maxContains'],
])

/** Keywords whose values are no schemas. */
const VALUES: ReadonlySet<string> = new Set(['const', 'enum', 'default', 'examples'])

/** Keywords whose members are named by the client. */
const MAPS: ReadonlySet<string> = new Set([
  ...['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas', 'dependentRequired'],
])

/** `path`: where the schema stands in the request. */
export function checkSchemaBounds(schema: JsonObject, path: string): void {
  let nodes = 0
  const visit = (node: unknown, depth: number): void => {
    if (typeof node !== 'object' || node === null) return
    nodes += 1
    if (nodes > nodesMax) throw invalidField(path, `has more than ${nodesMax} objects and lists in it.`)
    if (depth > depthMax) throw invalidField(path, `is nested deeper than ${depthMax} levels.`)
    if (isObject(node)) checkKeywords(node, path)
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
  if (typeof node.pattern === 'string' && node.pattern.length > patternCharsMax) {
    throw invalidField(path, `has a pattern of more than ${patternCharsMax} characters.`)
  }
  if (typeof node.$ref === 'string' && !node.$ref.startsWith('#')) {
    throw invalidField(path, 'has a $ref to another document; only references within the schema (#…) are followed.')
  }
}

/**
 * Removes keywords beyond the bounds: an engine that makes a grammar of `maxLength: 524288` may hang over it, and with
 * it all of its other requests. Returns their names. The caller bounds depth and size. A count that is a text is one
 * that no double holds (dialects/long-numbers.ts).
 */
export function relaxSchema(schema: JsonObject): ReadonlySet<string> {
  let removed: Set<string> | null = null
  const visit = (node: unknown, isMap: boolean): void => {
    if (typeof node !== 'object' || node === null) return
    if (Array.isArray(node)) {
      for (const inner of node) visit(inner, false)
      return
    }
    const fields = node as Record<string, unknown>
    for (const name in fields) {
      const value = fields[name]
      if (!isMap && isBeyond(name, value)) {
        delete fields[name]
        removed ??= new Set()
        removed.add(name)
      } else if (isMap || !VALUES.has(name)) visit(value, !isMap && MAPS.has(name))
    }
  }
  visit(schema, false)
  return removed ?? NONE
}

const NONE: ReadonlySet<string> = new Set()

function isBeyond(name: string, value: unknown): boolean {
  if (typeof value === 'number') return COUNTS.has(name) && !isGoodCount(value)
  if (typeof value !== 'string') return false
  if (name === 'pattern') return value.length > patternCharsMax
  return name === '$ref' ? !value.startsWith('#') : COUNTS.has(name)
}

function isGoodCount(count: number): boolean {
  return Number.isInteger(count) && count >= 0 && count <= countMax
}
