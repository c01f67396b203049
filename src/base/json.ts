// Strict JSON (RFC 8259) from untrusted bytes: UTF-8 only, limited depth, no duplicate names, no NUL, no lone surrogates. Pure.

import { fromUtf8 } from './bytes.ts'
import { Fault } from './fault.ts'

const paramCharsMax = 64

/** Fault: invalid_request, with `param` when the mistake is in one top-level field. The caller limits the length. */
export function parseJson(bytes: Uint8Array, limits: { readonly depthMax: number }): unknown {
  const text = decode(bytes)
  checkNesting(text, limits.depthMax)
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw new Fault('invalid_request', 'The body is not valid JSON.')
  }
  checkNames(text)
  checkStrings(value)
  return value
}

function decode(bytes: Uint8Array): string {
  try {
    // One byte order mark is ignored, as RFC 8259 section 8.1 allows.
    return fromUtf8(bytes).replace(/^\uFEFF/, '')
  } catch {
    throw new Fault('invalid_request', 'The body is not valid UTF-8.')
  }
}

/** Runs before JSON.parse, which recurses. Works on any text: text that is not JSON passes or fails here, and JSON.parse refuses it. */
function checkNesting(text: string, depthMax: number): void {
  let depth = 0
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at]
    if (char === '"') at = stringEnd(text, at)
    else if (char === '{' || char === '[') depth += 1
    else if (char === '}' || char === ']') depth -= 1
    if (depth > depthMax) throw new Fault('invalid_request', `The body is nested deeper than ${depthMax} levels.`)
  }
}

/** JSON.parse takes the last of two equal names; another reader may take the first. Expects valid JSON. */
function checkNames(text: string): void {
  const open: (Set<string> | null)[] = []
  let atName = false
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at]
    if (char === '{' || char === '[') {
      open.push(char === '{' ? new Set() : null)
      atName = char === '{'
    } else if (char === '}' || char === ']') {
      open.pop()
      atName = false
    } else if (char === ',') {
      atName = open.at(-1) instanceof Set
    } else if (char === '"') {
      const end = stringEnd(text, at)
      if (atName) addName(open, JSON.parse(text.slice(at, end + 1)))
      atName = false
      at = end
    }
  }
}

function addName(open: readonly (Set<string> | null)[], name: string): void {
  const names = open.at(-1)
  if (names?.has(name)) {
    throw new Fault('invalid_request', 'The body has a field twice.', open.length === 1 ? paramOf(name) : {})
  }
  names?.add(name)
}

/** Index of the closing quote, or of the end of the text. */
function stringEnd(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at += 1) {
    if (text[at] === '\\') at += 1
    else if (text[at] === '"') return at
  }
  return text.length
}

function checkStrings(value: unknown): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    if (!isClean(value)) throw unclean({})
    return
  }
  for (const [name, field] of Object.entries(value)) {
    if (!isClean(name)) throw unclean({})
    if (!isClean(field)) throw unclean(paramOf(name))
  }
}

/** Recursion is limited by the depth that was checked before. */
function isClean(value: unknown): boolean {
  if (typeof value === 'string') return !value.includes('\0') && value.isWellFormed()
  if (typeof value !== 'object' || value === null) return true
  return Object.entries(value).every(([name, field]) => isClean(name) && isClean(field))
}

function unclean(param: { param?: string }): Fault {
  return new Fault('invalid_request', 'The body has a string with a NUL or a lone surrogate in it.', param)
}

function paramOf(name: string): { param?: string } {
  return name.length <= paramCharsMax ? { param: name } : {}
}
