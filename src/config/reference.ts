// The documented configuration file, made from the schema, and a Config as TOML text. Pure.

import { Kind, type TSchema } from '@sinclair/typebox'
import { stringify } from 'smol-toml'
import { allowedText } from './parse.ts'
import { Config } from './schema.ts'

/** Every field with its description, allowed values and default. As a configuration file it means the defaults. */
export function configReference(): string {
  const title = '# Configuration of strongroom. Every field may be left out; the values here are the defaults.'
  return `${[title, ...tableTexts([], Config.properties)].join('\n\n')}\n`
}

/**
 * Description, allowed values and default of one field, such as `network.tap_prefix`; of a table, all its fields. A
 * list of tables is named without a number: `inference.upstreams.url`. Null if there is no such field.
 */
export function configFieldText(path: string): string | null {
  let schema: TSchema = Config
  const names = path.split('.')
  for (const name of names) {
    const table = isTableList(schema) ? schema.items : schema
    if (table[Kind] !== 'Object' || !Object.hasOwn(table.properties, name)) return null
    schema = table.properties[name]
  }
  if (schema[Kind] === 'Object') return tableTexts(names, schema.properties).join('\n\n')
  return isTableList(schema) ? exampleText(names, schema.items) : fieldText(names.at(-1) ?? '', schema)
}

/** The fields of a table, then the tables in it: in TOML, fields after a table's header belong to that table. */
function tableTexts(path: readonly string[], properties: Readonly<Record<string, TSchema>>): string[] {
  const entries = Object.entries(properties)
  const fields = entries
    .filter(([, schema]) => schema[Kind] !== 'Object')
    .map(([name, schema]) => fieldText(name, schema))
  const heading = path.length === 0 ? [] : [`[${path.join('.')}]`]
  return [
    ...heading,
    ...fields,
    ...entries.flatMap(([name, schema]) => (isTableList(schema) ? [exampleText([...path, name], schema.items)] : [])),
    ...entries.flatMap(([name, schema]) =>
      schema[Kind] === 'Object' ? tableTexts([...path, name], schema.properties) : [],
    ),
  ]
}

function isTableList(schema: TSchema): schema is TSchema & { items: TSchema } {
  return schema[Kind] === 'Array' && schema.items[Kind] === 'Object'
}

/** An entry of a list of tables, as a comment: by default the list is empty. */
function exampleText(path: readonly string[], schema: TSchema): string {
  const fields = Object.entries<TSchema>(schema.properties).map(([name, field]) => fieldText(name, field))
  const lines = [`# Instead of the empty list above, once per entry:`, `# [[${path.join('.')}]]`]
  return [
    ...lines,
    ...fields
      .join('\n')
      .split('\n')
      .map(line => (line.startsWith('#') ? `#${line}` : `# ${line}`)),
  ].join('\n')
}

/** A whole configuration as TOML text. */
export function configToml(config: Config): string {
  return stringify(config)
}

function fieldText(name: string, schema: TSchema): string {
  const description = typeof schema.description === 'string' ? wrap(schema.description) : []
  const allowed = wrap(`Allowed: ${allowedText(schema)}.`)
  const value = schema.default === undefined ? '…' : tomlValue(schema.default)
  return [...description, ...allowed, `${name} = ${value}`].join('\n')
}

function tomlValue(value: unknown): string {
  // The library writes whole documents only: `x = …`.
  return stringify({ x: value }).trim().slice('x = '.length)
}

const lineCharsMax = 110

function wrap(text: string): string[] {
  const lines: string[] = []
  let line = '#'
  for (const word of text.split(' ')) {
    if (line.length + word.length + 1 > lineCharsMax) {
      lines.push(line)
      line = '#'
    }
    line += ` ${word}`
  }
  return [...lines, line]
}
