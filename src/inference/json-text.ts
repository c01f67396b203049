// Strict JSON from untrusted text, for bodies of megabytes: bounded depth, no duplicate names; native search skips
// strings. Also an object's members as text, so that a body is changed without converting its numbers. Pure.

import { Fault } from '../base/fault.ts'
import { stringEnd } from '../base/json.ts'

export type JsonObject = { readonly [key: string]: unknown }

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export type JsonLimits = {
  readonly depthMax: number
  /**
   * Maximum number of fields of all objects together. JSON.parse takes far longer for a field than for as many bytes of
   * text.
   */
  readonly namesMax: number
  /**
   * Maximum number of values of all lists and objects. JSON.parse takes a tenth of a second and much memory for a
   * million empty lists.
   */
  readonly valuesMax: number
  /**
   * Maximum number of escapes of all texts together. JSON.parse takes 20 to 25 ns for one, and less than 1 ns for a
   * plain character.
   */
  readonly escapesMax: number
}

/** Returns the value. Throws Fault invalid_request. */
export function parseJsonText(text: string, limits: JsonLimits): unknown {
  return readJsonText(text, limits).value
}

/** Returns the value, and its text with U+FFFD for each half of a surrogate pair. Throws Fault invalid_request. */
export function readJsonText(given: string, limits: JsonLimits): { readonly text: string; readonly value: unknown } {
  checkEscapes(given, limits)
  const text = replaceLoneSurrogates(given)
  const nameCount = checkBounds(text, limits)
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw invalidRequest('The body is not valid JSON.')
  }
  // JSON.parse takes the last of duplicate names, an upstream may take the first. The value then has fewer names than
  // the text.
  if (countNames(value) !== nameCount) throw invalidRequest('The body has a field twice.')
  return { text, value }
}

/** Finds escapes by native search, because JSON uses the backslash for nothing else. Stops counting at the bound. */
function checkEscapes(text: string, { escapesMax }: JsonLimits): void {
  let left = escapesMax
  for (let at = text.indexOf('\\'); at >= 0; at = text.indexOf('\\', at + 2)) {
    if (left === 0) {
      throw invalidRequest(`The body has more than ${escapesMax} escapes in its strings; send UTF-8 without escapes.`)
    }
    left -= 1
  }
}

/** Returns the number of names in a text. Runs before JSON.parse, which recurses, so the text need not be JSON. */
function checkBounds(text: string, { depthMax, namesMax, valuesMax }: JsonLimits): number {
  let depth = 0
  let names = 0
  let values = 0
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at)
    if (code === 0x22) at = stringEnd(text, at)
    else if (code === 0x3a) names += 1
    else if (code === 0x2c) values += 1
    else if (code === 0x7b || code === 0x5b) {
      depth += 1
      values += 1
      if (depth > depthMax) {
        throw invalidRequest(`The body is nested deeper than ${depthMax} levels.`)
      }
    } else if (code === 0x7d || code === 0x5d) depth -= 1
  }
  if (names > namesMax) throw invalidRequest(`The body has more than ${namesMax} fields.`)
  if (values > valuesMax) throw invalidRequest(`The body has more than ${valuesMax} values.`)
  return names
}

/** Counts the names in a value. Recursion is bounded by the depth that was checked before. */
function countNames(value: unknown): number {
  if (!isNested(value)) return 0
  let sum = 0
  if (Array.isArray(value)) {
    for (const item of value) if (isNested(item)) sum += countNames(item)
    return sum
  }
  // `for in` takes a quarter of the time of Object.entries, and objects made by JSON.parse inherit no names.
  for (const name in value) {
    sum += 1
    const field = value[name]
    if (isNested(field)) sum += countNames(field)
  }
  return sum
}

function isNested(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null
}

/** Digits of U+FFFD, which stands for half a surrogate pair: agents cut texts in two, and engines fail on a half. */
const replacement = 'fffd'

/** Returns the JSON with U+FFFD for each half of a pair. In text from UTF-8 only an escape can make one. */
export function replaceLoneSurrogates(json: string): string {
  if (!/\\u[dD]/.test(json)) return json
  let replaced: Buffer | null = null
  let escapeChars = 2
  for (let at = json.indexOf('\\'); at >= 0; at = json.indexOf('\\', at + escapeChars)) {
    const half = halfAt(json, at)
    escapeChars = half === null ? 2 : 6
    if (half === null) continue
    if (half === 'high' && halfAt(json, at + 6) === 'low') {
      escapeChars = 12
      continue
    }
    // In place, because as many pieces of text as a body may have halves would take five times as long.
    replaced ??= Buffer.from(json, 'utf16le')
    for (let digit = 0; digit < 4; digit += 1) replaced[2 * (at + 2 + digit)] = replacement.charCodeAt(digit)
  }
  return replaced?.toString('utf16le') ?? json
}

/** Returns which half of a pair the escape represents; null for other text. */
function halfAt(json: string, at: number): 'high' | 'low' | null {
  if (json.charCodeAt(at) !== 0x5c || json.charCodeAt(at + 1) !== 0x75) return null
  if (digitAt(json, at + 2) !== 0xd || digitAt(json, at + 4) < 0 || digitAt(json, at + 5) < 0) return null
  const digit = digitAt(json, at + 3)
  if (digit < 8) return null
  return digit < 0xc ? 'high' : 'low'
}

/** Returns the value of a hexadecimal digit; -1 for other text. */
function digitAt(json: string, at: number): number {
  const code = json.charCodeAt(at)
  if (code >= 0x30 && code <= 0x39) return code - 0x30
  const letter = code | 0x20
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : -1
}

/** One member of an object: its name, its value's text, and the text of both. */
export type Member = { readonly name: string; readonly value: string; readonly text: string }

/** Returns the members of an object's checked text, exactly as written. */
export function membersOf(text: string): Member[] {
  return partsOf(text).map(part => {
    const start = part.indexOf('"')
    const end = stringEnd(part, start) + 1
    const quoted = part.slice(start, end)
    const name: string = quoted.includes('\\') ? JSON.parse(quoted) : quoted.slice(1, -1)
    return { name, value: part.slice(part.indexOf(':', end) + 1), text: part }
  })
}

/** Returns the text of each member or item of a checked object or list. */
export function partsOf(text: string): string[] {
  const parts: string[] = []
  let depth = 0
  let start = 0
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at)
    if (code === 0x22) at = stringEnd(text, at)
    else if (code === 0x7b || code === 0x5b) {
      depth += 1
      if (depth === 1) start = at + 1
    } else if (code === 0x7d || code === 0x5d) {
      depth -= 1
      if (depth === 0) parts.push(text.slice(start, at))
    } else if (code === 0x2c && depth === 1) {
      parts.push(text.slice(start, at))
      start = at + 1
    }
  }
  return parts.filter(part => part.trim() !== '')
}

/** Returns a fault of the body as a whole. */
export function invalidRequest(message: string): Fault {
  return new Fault('invalid_request', message)
}

/** Longest path that an error shows, because clients choose the names of fields. */
const pathCharsMax = 256

/**
 * Builds the error for one field, which it names. `path` as in `messages[0].content`, `problem` as in `must be a
 * string.`
 */
export function invalidField(path: string, problem: string): Fault {
  const shown = path.length > pathCharsMax ? `${path.slice(0, pathCharsMax)}…` : path
  return new Fault('invalid_request', `${shown} ${problem}`, { param: shown })
}
