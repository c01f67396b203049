// The configuration file: TOML text to a checked Config. Pure.
// All mistakes are reported at once, each as `file:line: field: what is wrong; allowed: what is`.

import { Kind, type TObject, type TSchema } from '@sinclair/typebox'
import { Value, type ValueError, ValueErrorType } from '@sinclair/typebox/value'
import { type Lines, lineOf, readToml } from '../linux/toml.ts'
import { crossCheck } from './checks/checks.ts'
import { withFreeSnapshotPort } from './checks/snapshots.ts'
import { takeRemoved } from './removed.ts'
import { Config } from './schema.ts'

export type ConfigProblem = {
  readonly file: string
  readonly line: number
  /** Dotted path; empty when the text is not TOML. */
  readonly field: string
  readonly message: string
}

type ConfigVerdict =
  | {
      readonly ok: true
      readonly config: Config
      /** Fields that this release no longer has; the file is read as if they were not in it. */
      readonly warnings: readonly ConfigProblem[]
    }
  | { readonly ok: false; readonly problems: readonly ConfigProblem[] }

/** Never throws. Problems come in the order of their lines. */
export function parseConfig(text: string, file: string): ConfigVerdict {
  const toml = readToml(text)
  if (!toml.ok) {
    return { ok: false, problems: [{ file, line: toml.line, field: '', message: `${toml.message} (TOML syntax)` }] }
  }
  const { table, lines } = toml
  const warnings = takeRemoved(table).map(({ field, since, instead }) => {
    const message = `has no effect any more, since ${since}: ${instead}`
    return { file, line: lineOf(lines, field.split('.')), field, message }
  })
  const filled = Value.Default(Config, table)
  const problems = [...Value.Errors(Config, filled)].flatMap(error => schemaProblem(error, { file, lines }))
  if (problems.length > 0) return { ok: false, problems: inOrder(problems) }
  const decoded = Value.Decode(Config, filled)
  const config = lines.has('snapshots.port') ? decoded : withFreeSnapshotPort(decoded)
  const crossed = crossCheck(config).map(({ field, message }) => {
    return { file, line: lineOf(lines, field.split('.')), field, message }
  })
  return crossed.length > 0
    ? { ok: false, problems: inOrder(crossed) }
    : { ok: true, config, warnings: inOrder(warnings) }
}

/** One line of text for a problem. */
export function problemText({ file, line, field, message }: ConfigProblem): string {
  return `${file}:${line}: ${field === '' ? '' : `${field}: `}${message}`
}

/** The values that this schema allows, in words. */
export function allowedText(schema: TSchema): string {
  if (typeof schema.allowed === 'string') return schema.allowed
  const choices = choicesOf(schema)
  if (choices !== null) return `one of ${choices.map(choice => JSON.stringify(choice)).join(', ')}`
  switch (schema[Kind]) {
    case 'Integer':
      return `an integer from ${schema.minimum} to ${schema.maximum}`
    case 'Array':
      return `a list of ${schema.minItems ?? 0} to ${schema.maxItems} entries, each ${allowedText(schema.items)}`
    case 'Object':
      return 'a table'
    case 'Boolean':
      return 'true or false'
    default:
      return `text of ${schema.minLength ?? 0} to ${schema.maxLength ?? 'any number of'} characters`
  }
}

type SourcePosition = { readonly file: string; readonly lines: Lines }

function schemaProblem(error: ValueError, { file, lines }: SourcePosition): ConfigProblem[] {
  const path = error.path.split('/').slice(1).map(unescapePointer)
  const field = path.join('.')
  const line = lineOf(lines, path)
  if (error.type === ValueErrorType.ObjectAdditionalProperties) {
    return [{ file, line, field, message: `unknown field; ${suggestion(path)}` }]
  }
  // A missing field is reported a second time, as a value that is undefined.
  if (error.type === ValueErrorType.ObjectRequiredProperty) return []
  const what = error.value === undefined ? 'is missing' : `${shown(error.value)} is not allowed`
  return [{ file, line, field, message: `${what}; allowed: ${allowedText(error.schema)}` }]
}

/** RFC 6901 4. */
function unescapePointer(part: string): string {
  return part.replaceAll('~1', '/').replaceAll('~0', '~')
}

function shown(value: unknown): string {
  // JSON has neither NaN nor infinity nor bigints.
  const exact = (_name: string, part: unknown) => (typeof part === 'bigint' ? String(part) : part)
  const isNumber = typeof value === 'number' || typeof value === 'bigint'
  const text = isNumber ? String(value) : (JSON.stringify(value, exact) ?? '')
  return text.length > shownCharsMax ? `${text.slice(0, shownCharsMax)}…` : text
}

const shownCharsMax = 80

function suggestion(path: readonly string[]): string {
  const name = path.at(-1) ?? ''
  const siblings = Object.keys(tableAt(path.slice(0, -1))?.properties ?? {})
  const nearest = nearestName(name, siblings)
  if (nearest !== null) return `did you mean ${nearest}?`
  const elsewhere = Object.entries(Config.properties)
    .filter(([, schema]) => schema[Kind] === 'Object' && Object.hasOwn(schema.properties, name))
    .map(([table]) => `[${table}]`)
  if (elsewhere.length > 0) return `it belongs in ${elsewhere.join(' or ')}`
  if (Object.hasOwn(Config.properties, name)) return 'it belongs at the top of the file, before any [table]'
  return `allowed: ${siblings.join(', ')}`
}

function tableAt(path: readonly string[]): TObject | null {
  let schema: TSchema = Config
  for (const part of path) {
    const properties: unknown = schema.properties
    if (typeof properties !== 'object' || properties === null || !Object.hasOwn(properties, part)) return null
    schema = Reflect.get(properties, part)
  }
  return schema[Kind] === 'Object' ? (schema as TObject) : null
}

/** The candidate with the fewest edits to the name, or null when those are many for the length of the name. */
export function nearestName(name: string, candidates: readonly string[]): string | null {
  const ranked = candidates
    .map(candidate => ({ candidate, edits: editDistance(name.toLowerCase(), candidate) }))
    .sort((a, b) => a.edits - b.edits)
  const best = ranked[0]
  return best !== undefined && best.edits <= Math.max(1, Math.floor(name.length / 3)) ? best.candidate : null
}

/** Levenshtein; names are short. */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, column) => column)
  for (let i = 1; i <= from.length; i += 1) {
    const next = [i]
    for (let j = 1; j <= to.length; j += 1) {
      const changed = (row[j - 1] ?? 0) + (from[i - 1] === to[j - 1] ? 0 : 1)
      next.push(Math.min(changed, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1))
    }
    row = next
  }
  return row[to.length] ?? 0
}

function choicesOf(schema: TSchema): unknown[] | null {
  const members: unknown = schema.anyOf
  if (!Array.isArray(members)) return null
  return members.map(member => Reflect.get(member, 'const'))
}

/** By line; problems of one line stay in the order in which they were found. Each field is reported once. */
function inOrder(problems: readonly ConfigProblem[]): ConfigProblem[] {
  const seen = new Set<string>()
  return problems.filter(problem => !seen.has(problem.field) && seen.add(problem.field)).sort((a, b) => a.line - b.line)
}
