// TOML 1.0 text to plain values, and the line of each, so that a wrong value can be reported where it stands. Pure.

import { type AST, ParseError, parseTOML } from 'toml-eslint-parser'

/** Line (from 1) by path: `tls`, `tls.names`, `tls.names.0`. A path that is written twice has its first line. */
export type Lines = ReadonlyMap<string, number>

type TomlVerdict =
  | { readonly ok: true; readonly table: object; readonly lines: Lines }
  | { readonly ok: false; readonly line: number; readonly message: string }

/** Integers that a number cannot hold exactly are bigints; dates are Dates. The first syntax error ends it. */
export function readToml(text: string): TomlVerdict {
  try {
    // TOML allows one byte order mark; the parser does not know it.
    const program = parseTOML(text.replace(/^\uFEFF/, ''), { tomlVersion: '1.0.0' })
    const reading: Reading = { table: {}, lines: new Map() }
    for (const entry of program.body[0].body) {
      if (entry.type === 'TOMLTable') readTable(reading, entry)
      else readPair(reading, entry, [])
    }
    return { ok: true, table: reading.table, lines: reading.lines }
  } catch (error) {
    if (!(error instanceof ParseError)) throw error
    return { ok: false, line: error.lineNumber, message: error.message }
  }
}

/** The line of the path, or of the nearest table that holds it; 1 when not even that is in the text. */
export function lineOf(lines: Lines, path: readonly string[]): number {
  for (let length = path.length; length > 0; length -= 1) {
    const line = lines.get(path.slice(0, length).join('.'))
    if (line !== undefined) return line
  }
  return 1
}

/** Names of tables, and indexes in arrays. */
type Path = readonly (string | number)[]

type Reading = { readonly table: object; readonly lines: Map<string, number> }

/** The schema is far shallower. Deeper values are left out: the schema refuses what holds them anyway. */
const depthMax = 32

/** A `[header]` or `[[header]]` with the pairs below it. */
function readTable(reading: Reading, { resolvedKey, body, loc }: AST.TOMLTable): void {
  noteLines(reading, resolvedKey, loc.start.line)
  containerAt(reading.table, resolvedKey)
  for (const pair of body) readPair(reading, pair, resolvedKey)
}

function readPair(reading: Reading, { key, value, loc }: AST.TOMLKeyValue, parent: Path): void {
  const path = [...parent, ...key.keys.map(part => (part.type === 'TOMLBare' ? part.name : part.value))]
  noteLines(reading, path, loc.start.line)
  readValue(reading, value, path)
}

function readValue(reading: Reading, node: AST.TOMLContentNode, path: Path): void {
  if (path.length > depthMax) return
  if (node.type === 'TOMLArray') {
    setOwn(reading.table, path, [])
    for (const [index, element] of node.elements.entries()) {
      noteLines(reading, [...path, index], element.loc.start.line)
      readValue(reading, element, [...path, index])
    }
  } else if (node.type === 'TOMLInlineTable') {
    setOwn(reading.table, path, {})
    for (const pair of node.body) readPair(reading, pair, path)
  } else {
    setOwn(reading.table, path, scalarOf(node))
  }
}

function scalarOf(node: AST.TOMLValue): unknown {
  return node.kind === 'integer' && !Number.isSafeInteger(node.value) ? node.bigint : node.value
}

function noteLines({ lines }: Reading, path: Path, line: number): void {
  for (let length = 1; length <= Math.min(path.length, depthMax); length += 1) {
    const name = path.slice(0, length).join('.')
    if (!lines.has(name)) lines.set(name, line)
  }
}

function setOwn(root: object, path: Path, value: unknown): void {
  const name = path.at(-1) ?? ''
  // Not by assignment: `__proto__` is a name like any other here. The parser's own conversion follows prototypes.
  Object.defineProperty(containerAt(root, path.slice(0, -1)), name, {
    value,
    configurable: true,
    enumerable: true,
    writable: true,
  })
}

/** The table or array at a path; what is missing on the way is made. */
function containerAt(root: object, path: Path): object {
  let container = root
  for (const [index, name] of path.slice(0, depthMax).entries()) {
    if (!Object.hasOwn(container, name)) setOwn(container, [name], typeof path[index + 1] === 'number' ? [] : {})
    container = Object(Reflect.get(container, name))
  }
  return container
}
