// Clients' regular expressions in time linear in the text: translates a JavaScript pattern (ECMA-262, flag u) to RE2's
// syntax and runs it with RE2JS. Pure. Refuses look-around and back references, which RE2 cannot run in linear time,
// and constructs that the two syntaxes interpret differently.

import { RE2JS } from 're2js'

export type Pattern = { readonly test: (text: string) => boolean; readonly toString: () => string }

export const patternCharsMax = 4_096

/** Compiles a pattern. Throws for a pattern that is not valid in JavaScript, or that is not supported. */
export function linearPattern(pattern: string): Pattern {
  if (pattern.length > patternCharsMax) throw new RangeError(`longer than ${patternCharsMax} characters`)
  // Compiles the pattern only to check it: the syntax must be JavaScript's, without RE2's extensions.
  new RegExp(pattern, 'u')
  const compiled = RE2JS.compile(toRe2(pattern))
  // ajv treats patterns with the same text as the same pattern.
  return { test: text => compiled.test(text), toString: () => `/${pattern}/u` }
}

/**
 * Returns the pattern in RE2's syntax (https://github.com/google/re2/wiki/Syntax); it is valid in ECMA-262 with the
 * flag u.
 */
function toRe2(pattern: string): string {
  let out = ''
  let isInClass = false
  for (let at = 0; at < pattern.length; ) {
    const rest = pattern.slice(at, at + tokenCharsMax)
    const token: string = (isInClass ? CLASS_TOKEN : TOKEN).exec(rest)?.[0] ?? ''
    if (token === '') throw new SyntaxError('a part of it is not supported')
    out += isInClass ? inClass(token) : outsideClass(token)
    if (!isInClass && token.startsWith('[')) isInClass = !(token === '[]' || token === '[^]')
    else if (token === ']') isInClass = false
    at += token.length
  }
  return out
}

const tokenCharsMax = 160
const ESCAPE = String.raw`\\u\{[0-9a-fA-F]+\}|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|\\c[a-zA-Z]|\\[pP]\{[^}]{1,128}\}|\\[^cuxpP]`
/**
 * Supported groups: not captured, named or plain. Other `(?…` are look-around, which RE2 lacks, or modifiers of `.`.
 */
const TOKEN = new RegExp(String.raw`^(?:${ESCAPE}|\[\^?\]|\[\^?|\(\?:|\(\?<[A-Za-z_]\w{0,63}>|\((?!\?)|[^\\[(])`, 'su')
const CLASS_TOKEN = new RegExp(String.raw`^(?:${ESCAPE}|[^\\])`, 'su')

/** WhiteSpace and LineTerminator of ECMA-262, which differ from RE2's \s; and every other character. */
const SPACE = String.raw`\x{9}-\x{d}\x{20}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}`
const NOT_SPACE = String.raw`\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}\x{ff00}-\x{10ffff}`
const ANY = String.raw`\x{0}-\x{10ffff}`

function outsideClass(token: string): string {
  // Captures are unused, and JavaScript lets two alternatives share a name.
  if (token.startsWith('(?<')) return '(?:'
  if (token === '.') return String.raw`[^\n\r\x{2028}\x{2029}]`
  if (token === '[]') return `[^${ANY}]`
  if (token === '[^]') return `[${ANY}]`
  if (token === String.raw`\s`) return `[${SPACE}]`
  if (token === String.raw`\S`) return `[${NOT_SPACE}]`
  return token.startsWith('\\') ? escaped(token) : token
}

function inClass(token: string): string {
  // RE2 would read [[:alpha:]] as a POSIX class.
  if (token === '[') return String.raw`\[`
  if (token === String.raw`\s`) return SPACE
  if (token === String.raw`\S`) return NOT_SPACE
  if (token === String.raw`\b`) return String.raw`\x{8}`
  return token.startsWith('\\') ? escaped(token) : token
}

function escaped(token: string): string {
  const kind = token[1] ?? ''
  if (kind === 'u') return `\\x{${codePointOf(token).toString(16)}}`
  if (kind === 'x') return `\\x{${token.slice(2)}}`
  if (kind === 'c') return `\\x{${(token.charCodeAt(2) % 32).toString(16)}}`
  if (kind === '0') return String.raw`\x{0}`
  if (kind === 'p' || kind === 'P') return token.replace(/\{(?:Script|sc|General_Category|gc)=/, '{')
  // References to groups: \1 to \9, \k<name>.
  if (/[1-9k]/.test(kind)) throw new SyntaxError('back references are not supported')
  return token
}

function codePointOf(token: string): number {
  const units = [...token.matchAll(/\\u\{?([0-9a-fA-F]+)/g)].map(([, hex]) => Number.parseInt(hex ?? '', 16))
  const [first = 0, second] = units
  return second === undefined ? first : (first - 0xd800) * 0x400 + (second - 0xdc00) + 0x10000
}
