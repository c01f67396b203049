// Strict JSON from untrusted text, for bodies of megabytes: bounded depth and no name twice, found with native string search. Pure.

import { Fault } from '../../base/fault.ts'

/** The value. Fault invalid_request. */
export function checkJsonText(text: string, depthMax: number): unknown {
  const nameCount = scan(text, depthMax)
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

/** Number of names in a text. Depth is bounded before JSON.parse, which recurses. Any text comes out without harm. */
function scan(text: string, depthMax: number): number {
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
  if (typeof value !== 'object' || value === null) return 0
  if (Array.isArray(value)) {
    let sum = 0
    for (const item of value) sum += countNames(item)
    return sum
  }
  const fields = Object.values(value)
  let sum = fields.length
  for (const field of fields) sum += countNames(field)
  return sum
}
