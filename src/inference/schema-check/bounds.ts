// Bounds a client's JSON Schema before the gateway's checker, or an engine's grammar, compiles it. Pure: one walk,
// linear in the schema. Fault invalid_request.

import { invalidField, isObject, type JsonObject } from '../json-text.ts'

const nodesMax = 20_000
const depthMax = 64
const patternCharsMax = 512
const countMax = 100_000

/** Keywords that say how often something is repeated. */
const COUNTS = [
  'minItems',
  'maxItems',
  'minLength',
  'maxLength',
  'minProperties',
  'maxProperties',
  'minContains',
  'maxContains',
]

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
    if (typeof count === 'number' && !(Number.isInteger(count) && count >= 0 && count <= countMax)) {
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
