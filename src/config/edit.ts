// Sets fields in the text of a configuration file; everything else of the text stays, comments included. Pure.

import { type AST, parseTOML } from 'toml-eslint-parser'
import { readToml } from '../linux/toml.ts'

export type Path = readonly string[]
export type Setting = { readonly path: Path; readonly value: unknown }

/** Every value that the text sets, in its order. A list is one value. Null if the text is not TOML. */
export function settingsOf(text: string): Setting[] | null {
  const read = readToml(text)
  return read.ok ? leavesOf(read.table, []) : null
}

function leavesOf(table: object, above: Path): Setting[] {
  return Object.entries(table).flatMap(([name, value]: [string, unknown]) => {
    const path = [...above, name]
    const isTable = typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Date)
    return isTable ? leavesOf(value, path) : [{ path, value }]
  })
}

/** Settings whose value in the text is another, or that it does not have. */
export function changesTo(text: string, wanted: readonly Setting[]): Setting[] {
  const present = new Map((settingsOf(text) ?? []).map(({ path, value }) => [path.join('.'), inlineToml(value)]))
  return wanted.filter(({ path, value }) => present.get(path.join('.')) !== inlineToml(value))
}

/** The text must be TOML, and so is the result; the caller checks that its meaning is the requested one. */
export function editToml(text: string, settings: readonly Setting[]): string {
  return settings.reduce(withSetting, text)
}

function withSetting(text: string, { path, value }: Setting): string {
  const { body } = parseTOML(text, { tomlVersion: '1.0.0' }).body[0]
  const found = pairAt(body, path)
  if (found !== null) return spliced(text, found.value.range, inlineToml(value))
  const lists = body.filter(entry => isListEntry(entry, path))
  // The list had tables of its own; now it is one value.
  if (lists.length > 0) {
    return withSetting(
      lists.toReversed().reduce((rest, { range }) => spliced(rest, range, ''), text),
      { path, value },
    )
  }
  const line = `${path.slice(-1).map(keyText)} = ${inlineToml(value)}\n`
  const parent = path.slice(0, -1)
  const [from, to] = regionOf(text, body, parent) ?? [null, null]
  if (from === null) return `${text.trimEnd()}\n\n[${parent.map(keyText).join('.')}]\n${line}`.trimStart()
  // Behind the comment that shows its default, where there is one.
  const name = path.at(-1) ?? ''
  const shown = new RegExp(`^#[ \\t]?${name.replaceAll(/[^a-z0-9_]/gi, '.')} = .*\\n`, 'm').exec(text.slice(from, to))
  const at = shown === null ? from : from + shown.index + shown[0].length
  return `${text.slice(0, at)}${line}${text.slice(at)}`
}

export type TomlEntry = AST.TOMLKeyValue | AST.TOMLTable

/** The pair that sets this path, in a table, an inline table or by a dotted key; null if the text has none. */
export function pairAt(
  entries: readonly TomlEntry[],
  path: Path,
  above: readonly (string | number)[] = [],
): AST.TOMLKeyValue | null {
  for (const entry of entries) {
    if (entry.type === 'TOMLTable') {
      const found = pairAt(entry.body, path, entry.resolvedKey)
      if (found !== null) return found
      continue
    }
    const own = [...above, ...entry.key.keys.map(part => (part.type === 'TOMLBare' ? part.name : part.value))]
    if (own.join('\n') === path.join('\n')) return entry
    const inner = entry.value.type === 'TOMLInlineTable' ? pairAt(entry.value.body, path, own) : null
    if (inner !== null) return inner
  }
  return null
}

/** Reports whether this is `[[path]]`, or a table of one of its entries. */
export function isListEntry(entry: TomlEntry, path: Path): entry is AST.TOMLTable {
  if (entry.type !== 'TOMLTable') return false
  const key = entry.resolvedKey
  return typeof key[path.length] === 'number' && key.slice(0, path.length).join('\n') === path.join('\n')
}

/** Returns where a table's own lines begin and end; null if the text has no such table. */
function regionOf(text: string, body: readonly TomlEntry[], table: Path): [from: number, to: number] | null {
  const tables = body.filter(entry => entry.type === 'TOMLTable')
  const next = (at: number) => tables.find(({ range }) => range[0] > at)?.range[0] ?? text.length
  if (table.length === 0) return [lineAfterTitle(text, next(-1)), next(-1)]
  const found = tables.find(
    ({ kind, resolvedKey }) => kind === 'standard' && resolvedKey.join('\n') === table.join('\n'),
  )
  if (found === undefined) return null
  const end = text.indexOf('\n', found.range[0])
  return end === -1 ? null : [end + 1, next(found.range[0])]
}

/** Behind the comment at the top of the file. */
function lineAfterTitle(text: string, end: number): number {
  const title = /^(?:#.*\n)*\n?/.exec(text)?.[0] ?? ''
  return Math.min(title.length, end)
}

export function spliced(text: string, [from, to]: readonly [number, number], inserted: string): string {
  return `${text.slice(0, from)}${inserted}${text.slice(to)}`
}

/** Writes a value on one line. JSON's strings are basic strings of TOML, except for DEL. */
export function inlineToml(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(inlineToml).join(', ')}]`
  if (typeof value === 'string') return JSON.stringify(value).replaceAll('\u007f', '\\u007F')
  if (typeof value === 'object' && value !== null && !(value instanceof Date)) {
    const pairs = Object.entries(value).map(([name, inner]) => `${keyText(name)} = ${inlineToml(inner)}`)
    return `{ ${pairs.join(', ')} }`
  }
  return value instanceof Date ? value.toISOString() : String(value)
}

export function keyText(name: string): string {
  return /^[A-Za-z0-9_-]+$/.test(name) ? name : JSON.stringify(name)
}
