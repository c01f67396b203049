// Strict JSON from untrusted text, for bodies of megabytes: bounded depth and no name twice, found with native string search; and its parts
// as text, so that a body can be changed without its numbers going through doubles. Pure.

import { Fault } from '../../base/fault.ts'

export type JsonLimits = {
  readonly depthMax: number
  /** Fields of all objects together: JSON.parse takes far longer for one than for as many bytes of text. */
  readonly namesMax: number
}

/** The value. Fault invalid_request. */
export function checkJsonText(text: string, limits: JsonLimits): unknown {
  const nameCount = scan(text, limits)
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw new Fault('invalid_request', 'The body is not valid JSON.')
  }
  // JSON.parse lets the last of two equal names win, where an upstream may take the first: then fewer names come out than went in.
  if (countNames(value) !== nameCount) throw new Fault('invalid_request', 'The body has a field twice.')
  return value
}

/** Number of names in a text. Bounded before JSON.parse, which recurses. Any text comes out without harm. */
function scan(text: string, { depthMax, namesMax }: JsonLimits): number {
  let depth = 0
  let names = 0
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at)
    if (code === 0x22) at = stringEnd(text, at)
    else if (code === 0x3a) names += 1
    else if (code === 0x7b || code === 0x5b) {
      depth += 1
      if (depth > depthMax) {
        throw new Fault('invalid_request', `The body is nested deeper than ${depthMax} levels.`)
      }
    } else if (code === 0x7d || code === 0x5d) depth -= 1
  }
  if (names > namesMax) throw new Fault('invalid_request', `The body has more than ${namesMax} fields.`)
  return names
}

/** Index of the closing quote, or of the end of the text. */
function stringEnd(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let backslashes = 0
    while (text.charCodeAt(end - 1 - backslashes) === 0x5c) backslashes += 1
    if (backslashes % 2 === 0) return end
  }
  return text.length
}

/** Recursion is bounded by the depth that was checked before. */
function countNames(value: unknown): number {
  if (!isNested(value)) return 0
  let sum = 0
  if (Array.isArray(value)) {
    for (const item of value) if (isNested(item)) sum += countNames(item)
    return sum
  }
  // What JSON.parse makes inherits no names, and `for in` makes no list of them: a quarter of the time.
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

/** One member of an object: its name, its value's text, and the text of both as it is written. */
export type Member = { readonly name: string; readonly value: string; readonly text: string }

/** The members of an object's checked text, as they are written: digits, spelling and all. */
export function membersOf(text: string): Member[] {
  return partsOf(text).map(part => {
    const start = part.indexOf('"')
    const end = stringEnd(part, start) + 1
    const quoted = part.slice(start, end)
    const name: string = quoted.includes('\\') ? JSON.parse(quoted) : quoted.slice(1, -1)
    return { name, value: part.slice(part.indexOf(':', end) + 1), text: part }
  })
}

/** What the outermost brackets of a checked text hold, between its commas; nothing for empty ones. */
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
