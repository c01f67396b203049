// The documented configuration file, generated from the schema, and a Config as TOML. Pure.

import { Kind, type TSchema } from '@sinclair/typebox'
import { stringify } from 'smol-toml'
import { Config } from '../contract/config.ts'
import { allowedText } from './config.codec.ts'

/** Every field with its description, what it allows and its default. As it is, it configures nothing but the defaults. */
export function configReference(): string {
  const top = Object.entries(Config.properties).filter(([, schema]) => schema[Kind] !== 'Object')
  const tables = Object.entries(Config.properties).filter(([, schema]) => schema[Kind] === 'Object')
  const parts = [
    '# Configuration of strongroom. Every field may be left out; the values here are the defaults.',
    ...top.map(([name, schema]) => fieldText(name, schema)),
    ...tables.map(([name, schema]) => {
      const fields = Object.entries<TSchema>(schema.properties).map(([key, field]) => fieldText(key, field))
      return [`[${name}]`, ...fields].join('\n\n')
    }),
  ]
  return `${parts.join('\n\n')}\n`
}

/** A whole configuration as TOML text. */
export function configToml(config: Config): string {
  return stringify(config)
}

function fieldText(name: string, schema: TSchema): string {
  const description = typeof schema.description === 'string' ? wrap(schema.description) : []
  const allowed = wrap(`Allowed: ${allowedText(schema)}.`)
  return [...description, ...allowed, `${name} = ${tomlValue(schema.default)}`].join('\n')
}

function tomlValue(value: unknown): string {
  // `x = …`, as the library writes it.
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
