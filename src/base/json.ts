// Strict JSON (RFC 8259) from untrusted bytes: UTF-8, limited depth, no duplicate names, NUL or lone surrogates. Pure.

import { fromUtf8 } from './bytes.ts'
import { Fault } from './fault.ts'

const paramCharsMax = 64

type JsonLimits = {
  readonly depthMax: number
  /** The document's name if it is no body: messages begin with it, and name the duplicate field. */
  readonly what?: string
}

/**
 * Parses JSON. Throws Fault invalid_request, with `param` if the mistake is in one top-level field. The caller limits
 * the length.
 */
export function parseJson(bytes: Uint8Array, limits: JsonLimits): unknown {
  const what = limits.what ?? 'The body'
  const text = decode(bytes, what)
  if (nestsDeeper(text, limits.depthMax)) {
    throw new Fault('invalid_request', `${what} is nested deeper than ${limits.depthMax} levels.`)
  }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw new Fault('invalid_request', `${what} is not valid JSON.`)
  }
  checkNames(text, limits.what)
  checkStrings(value, what)
  return value
}

function decode(bytes: Uint8Array, what: string): string {
  try {
    // One byte order mark is ignored, as RFC 8259 section 8.1 allows.
    return fromUtf8(bytes).replace(/^\uFEFF/, '')
  } catch {
    throw new Fault('invalid_request', `${what} is not valid UTF-8.`)
  }
}

/**
 * Check before JSON.parse, which recurses: 128 KiB of brackets take 10 ms. Accepts any text; JSON.parse refuses what is
 * no JSON.
 */
export function nestsDeeper(text: string, depthMax: number): boolean {
  let depth = 0
  for (let at = 0; at < text.length; at += 1) {
    // By codes: `text[at]` makes a string of each character that is not Latin-1.
    const code = text.charCodeAt(at)
    if (code === 0x22) at = stringEnd(text, at)
    else if (code === 0x7b || code === 0x5b) depth += 1
    else if (code === 0x7d || code === 0x5d) depth -= 1
    if (depth > depthMax) return true
  }
  return false
}

/** JSON.parse takes the last of two equal names; another reader may take the first. Expects valid JSON. */
function checkNames(text: string, what: string | undefined): void {
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
      if (atName) addName(open, JSON.parse(text.slice(at, end + 1)), what)
      atName = false
      at = end
    }
  }
}

function addName(open: readonly (Set<string> | null)[], name: string, what: string | undefined): void {
  const names = open.at(-1)
  if (names?.has(name)) {
    const field = what === undefined || name.length > paramCharsMax ? 'a field' : `the field ${JSON.stringify(name)}`
    const message = `${what ?? 'The body'} has ${field} twice.`
    throw new Fault('invalid_request', message, open.length === 1 ? paramOf(name) : {})
  }
  names?.add(name)
}

/** Whether a value of JSON is an object. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Index of the closing quote, or of the end of the text. */
export function stringEnd(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let backslashes = 0
    while (text.charCodeAt(end - 1 - backslashes) === 0x5c) backslashes += 1
    if (backslashes % 2 === 0) return end
  }
  return text.length
}

function checkStrings(value: unknown, what: string): void {
  if (!isRecord(value)) {
    if (!isClean(value)) throw unclean(what, {})
    return
  }
  for (const [name, field] of Object.entries(value)) {
    if (!isClean(name)) throw unclean(what, {})
    if (!isClean(field)) throw unclean(what, paramOf(name))
  }
}

/** Recursion is limited by the depth that was checked before. */
function isClean(value: unknown): boolean {
  if (typeof value === 'string') return !value.includes('\0') && value.isWellFormed()
  if (typeof value !== 'object' || value === null) return true
  return Object.entries(value).every(([name, field]) => isClean(name) && isClean(field))
}

function unclean(what: string, param: { param?: string }): Fault {
  return new Fault('invalid_request', `${what} has a string with a NUL or a lone surrogate in it.`, param)
}

function paramOf(name: string): { param?: string } {
  return name.length <= paramCharsMax ? { param: name } : {}
}
