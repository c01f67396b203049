// Parts of a history that another server produced, as when a session is resumed here. Their texts
// stay, because the model may need them; the rest is left out and named. Pure.

import { isObject, type JsonObject } from '../json-text.ts'

/** Fields of such parts that may have text, in the order in which a reader expects them. */
const TEXT_FIELDS = ['title', 'url', 'code', 'text', 'summary', 'content', 'output', 'outputs', 'results', 'logs']
/** Deeper texts are left out. The parser bounds the number of values. */
const depthMax = 8

/** Returns the texts of an item or a block, one per line; empty if there are none. Base64 is in other fields. */
export function foreignText(part: JsonObject): string {
  return textsOf(part, depthMax).join('\n')
}

function textsOf(value: unknown, depth: number): string[] {
  if (typeof value === 'string') return value === '' ? [] : [value]
  if (depth === 0) return []
  if (Array.isArray(value)) return value.flatMap(item => textsOf(item, depth - 1))
  if (!isObject(value)) return []
  return TEXT_FIELDS.flatMap(name => (Object.hasOwn(value, name) ? textsOf(value[name], depth - 1) : []))
}
