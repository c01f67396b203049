// Goal: what we write as configuration reads back as what it was written from.

import { expect, test } from 'bun:test'
import type { TSchema } from '@sinclair/typebox'
import { defaultConfig } from '../../src/config/load.ts'
import { parseConfig } from '../../src/config/parse.ts'
import { configFieldText, configReference, configToml } from '../../src/config/reference.ts'
import { Config } from '../../src/config/schema.ts'

test('goal: the reference is a file that means the defaults, and shows every field', () => {
  const verdict = parseConfig(configReference(), 'f')
  expect(verdict).toEqual({ ok: true, config: defaultConfig(), warnings: [] })
  const namesIn = (table: object): string[] =>
    Object.entries(table).flatMap(([name, value]) =>
      typeof value === 'object' && !Array.isArray(value) ? namesIn(value) : [name],
    )
  const names = namesIn(defaultConfig())
  for (const name of names) expect(configReference()).toMatch(new RegExp(`^# .+\\n${name} = `, 'm'))
})

test('goal: a configuration written as TOML reads back the same', () => {
  const config = { ...defaultConfig(), domain: 'x.example', tls: { ...defaultConfig().tls, names: ['a', '::1'] } }
  expect(parseConfig(configToml(config), 'f')).toEqual({ ok: true, config, warnings: [] })
})

test('goal: every field says what it is for', () => {
  const undescribed = (path: string, schema: TSchema): string[] => {
    const fields: [string, TSchema][] = Object.entries(schema.properties ?? schema.items?.properties ?? {})
    if (fields.length > 0) return fields.flatMap(([name, field]) => undescribed(`${path}.${name}`, field))
    return typeof schema.description === 'string' && /[.]$/.test(schema.description) ? [] : [path]
  }
  expect(undescribed('', Config)).toEqual([])
})

test('goal: a field that is true or false says so, in the reference, by itself and in a refusal', () => {
  for (const name of [
    'tls.acme.terms_agreed',
    'inference.http2',
    'inference.usage_labels',
    'inference.traces.follow_parent',
  ])
    expect([name, configFieldText(name)?.includes('# Allowed: true or false.')]).toEqual([name, true])
  expect(configFieldText('inference.upstreams')).toContain('## Allowed: true or false.\n# remote_urls = false')
  const verdict = parseConfig('[tls.acme]\nterms_agreed = "yes"\n', 'f')
  expect(verdict).toMatchObject({ ok: false, problems: [{ message: '"yes" is not allowed; allowed: true or false' }] })
  // Text of any length is allowed nowhere, so these words are those of an unknown kind of field.
  expect(configReference()).not.toContain('any number of characters')
})
