// Adds an entry to a list of tables in the text of a configuration file, or removes one; everything else of the text
// stays, comments included. A list in brackets with comments inside is left alone: which entry has which comment is
// unknown. Pure.

import { parseTOML } from 'toml-eslint-parser'
import { inlineToml, isListEntry, keyText, type Path, pairAt, spliced, type TomlEntry } from './edit.ts'

/**
 * Adds an entry behind the last one, in the form that the text uses: `[[path]]`, or a list on one line. The text must
 * be TOML; the caller checks that the result means what was requested. Returns the same text if the list cannot be
 * edited.
 */
export function appendEntry(text: string, path: Path, entry: object): string {
  const body = bodyOf(text)
  const inline = pairAt(body, path)?.value
  if (inline !== undefined) {
    if (inline.type !== 'TOMLArray' || hasComment(text, inline.range)) return text
    const last = inline.elements.at(-1)
    if (last === undefined) return spliced(text, inline.range, `[${inlineToml(entry)}]`)
    return spliced(text, [last.range[1], last.range[1]], `, ${inlineToml(entry)}`)
  }
  const eol = text.includes('\r\n') ? '\r\n' : '\n'
  const lines = Object.entries(entry).map(([name, value]) => `${keyText(name)} = ${inlineToml(value)}${eol}`)
  const table = `[[${path.map(keyText).join('.')}]]${eol}${lines.join('')}`
  const last = body.findLast(found => isListEntry(found, path))
  if (last === undefined) return text.trim() === '' ? table : `${text.trimEnd()}${eol}${eol}${table}`
  const end = lineEnd(text, last.range[1])
  const head = text.slice(0, end)
  return `${head}${head.endsWith('\n') ? '' : eol}${eol}${table}${text.slice(end)}`
}

/**
 * Removes the entry of this index, from 0. A comment above it stays. Returns the same text if there is none, or the
 * list cannot be edited.
 */
export function removeEntry(text: string, path: Path, index: number): string {
  const body = bodyOf(text)
  const inline = pairAt(body, path)?.value
  if (inline !== undefined) {
    const element = inline.type === 'TOMLArray' ? inline.elements[index] : undefined
    if (inline.type !== 'TOMLArray' || element === undefined || hasComment(text, inline.range)) return text
    const before = inline.elements[index - 1]
    const after = inline.elements[index + 1]
    if (before !== undefined) return spliced(text, [before.range[1], element.range[1]], '')
    return spliced(text, [element.range[0], after?.range[0] ?? element.range[1]], '')
  }
  const tables = body.filter(found => isListEntry(found, path)).filter(found => indexOf(found, path) === index)
  return tables.toReversed().reduce((rest, { range: [from, to] }) => {
    const end = lineEnd(rest, to)
    // One empty line behind it goes, too, so that the former neighbours keep their distance.
    const empty = /^\r?\n/.exec(rest.slice(end, end + 2))?.[0] ?? ''
    return spliced(rest, [from, end + empty.length], '')
  }, text)
}

function bodyOf(text: string): readonly TomlEntry[] {
  return parseTOML(text, { tomlVersion: '1.0.0' }).body[0].body
}

function hasComment(text: string, [from, to]: readonly [number, number]): boolean {
  const { comments } = parseTOML(text, { tomlVersion: '1.0.0' })
  return comments.some(({ range }) => range[0] >= from && range[1] <= to)
}

function indexOf(entry: TomlEntry, path: Path): unknown {
  return entry.type === 'TOMLTable' ? entry.resolvedKey[path.length] : undefined
}

/** Behind the line break of the line that this offset is on. */
function lineEnd(text: string, offset: number): number {
  const at = text.indexOf('\n', offset)
  return at === -1 ? text.length : at + 1
}
