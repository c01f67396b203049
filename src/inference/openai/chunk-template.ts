// Chunks of one stream that differ only in one text: once one is parsed and converted, the text around it identifies
// the next. Pure.
//
// Why this is correct: JSON is read from left to right, and a string ends at its first unescaped quote. If the JSON
// before and after a string is the same, everything but the string has the same meaning. A mark proves that the place
// is the text's own; the event reader accepts only strings that JSON.stringify would write identically.

import { stringEnd } from '../../base/json.ts'
import { resultOr } from '../../base/result-or.ts'
import { isObject, type JsonObject } from '../json-text.ts'

export type ChunkTemplate = {
  /** Bytes of the upstream's JSON around the text, quotes included. */
  readonly dataBefore: string
  readonly dataAfter: string
  /** The same, for the client's chunk. */
  readonly chunkBefore: string
  readonly chunkAfter: string
}

/** Replaces the text while a template is made. */
const mark = 'strongroom text'
/** Maximum number of places tried, because a name may occur more than once in a chunk. */
const placesMax = 4

/** The fields of a chat's chunk that may contain its single text. */
const CHAT_FIELDS = ['content', 'reasoning_content', 'reasoning'] as const

/**
 * Returns the template of a chunk: valid JSON with one choice, and that choice converted for the client. `lead` and
 * `trail` surround the choices in the client's JSON. Null for a chunk with an end, without text, with more than one
 * member, or whose text cannot be located.
 */
export function templateOf(
  data: string,
  choice: JsonObject,
  { lead, trail }: { readonly lead: string; readonly trail: string },
): ChunkTemplate | null {
  if (choice.finish_reason !== null) return null
  const { delta } = choice
  const isChat = isObject(delta)
  const holder = isChat ? delta : choice
  const name = isChat ? CHAT_FIELDS.find(field => field in delta) : 'text'
  if (name === undefined || (isChat && Object.keys(delta).length > 1)) return null
  const read = splitAtText(data, name, holder[name])
  if (read === null) return null
  const other = { ...holder, [name]: mark }
  const written = splitAtMark(JSON.stringify([isChat ? { ...choice, delta: other } : other]))
  if (written === null) return null
  return {
    dataBefore: read.before,
    dataAfter: read.after,
    chunkBefore: lead + written.before,
    chunkAfter: written.after + trail,
  }
}

type Halves = { readonly before: string; readonly after: string }

/** Returns the JSON around the text of that name; `text` is the parsed value. */
function splitAtText(data: string, name: string, text: unknown): Halves | null {
  // Otherwise an occurrence of the mark could be the text's own.
  if (typeof text !== 'string' || text === '' || text === mark) return null
  const quotedName = `"${name}"`
  let at = data.indexOf(quotedName)
  for (let places = 0; at >= 0 && places < placesMax; places += 1) {
    const start = valueStart(data, at + quotedName.length)
    if (data[start] === '"') {
      const halves = { before: data.slice(0, start + 1), after: data.slice(stringEnd(data, start)) }
      if (textAt(halves.before + mark + halves.after, name) === mark) return halves
    }
    at = data.indexOf(quotedName, at + 1)
  }
  return null
}

function splitAtMark(json: string): Halves | null {
  const parts = json.split(mark)
  const [before, after] = parts
  return parts.length === 2 && before !== undefined && after !== undefined ? { before, after } : null
}

/** Returns the value at the place that the converter reads. */
function textAt(data: string, name: string): unknown {
  const value = parseOrNull(data)
  const choice = isObject(value) && Array.isArray(value.choices) ? value.choices[0] : null
  if (!isObject(choice)) return null
  if (name === 'text') return choice.text
  return isObject(choice.delta) ? choice.delta[name] : null
}

/** Returns where the value after a name begins. */
function valueStart(data: string, nameEnd: number): number {
  let at = skipBlanks(data, nameEnd)
  if (data[at] === ':') at = skipBlanks(data, at + 1)
  return at
}

/** Skips blanks as defined by RFC 8259, section 2. */
function skipBlanks(data: string, from: number): number {
  let at = from
  while (data[at] === ' ' || data[at] === '\t' || data[at] === '\n' || data[at] === '\r') at += 1
  return at
}

function parseOrNull(data: string): unknown {
  return resultOr(() => JSON.parse(data), null)
}
