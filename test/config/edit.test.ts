// Fields of a configuration are set in its text: everything else of the text stays.

import { describe, expect, test } from 'bun:test'
import { changesTo, editToml, inlineToml, type Setting, settingsOf } from '../../src/config/edit.ts'
import { parseConfig } from '../../src/config/parse.ts'
import { configReference } from '../../src/config/reference.ts'

const set = (path: string, value: unknown): Setting => ({ path: path.split('.'), value })

describe('goal: a field goes where it belongs, and comments stay', () => {
  const rows: [what: string, text: string, settings: Setting[], edited: string][] = [
    ['an empty file', '', [set('domain', 'a.test')], 'domain = "a.test"\n'],
    ['a value that is there', 'domain = "b" # mine\n', [set('domain', 'a.test')], 'domain = "a.test" # mine\n'],
    [
      'a table that is there',
      '# t\n\n[vm]\nvcpus = 2\n',
      [set('vm.tpm', 'off')],
      '# t\n\n[vm]\ntpm = "off"\nvcpus = 2\n',
    ],
    ['a table that is not', 'domain = "b"\n', [set('pool.warm', 1)], 'domain = "b"\n\n[pool]\nwarm = 1\n'],
    [
      'a commented default',
      '# t\n\n# Why.\n#domain = "x"\n\n[vm]\n',
      [set('domain', 'a')],
      '# t\n\n# Why.\n#domain = "x"\ndomain = "a"\n\n[vm]\n',
    ],
    ['top level before tables', '# t\n\n[vm]\n', [set('domain', 'a')], '# t\n\ndomain = "a"\n[vm]\n'],
    ['an inline table', 'vm = { vcpus = 2 }\n', [set('vm.vcpus', 4)], 'vm = { vcpus = 4 }\n'],
    ['a dotted key', 'vm.vcpus = 2\n', [set('vm.vcpus', 4)], 'vm.vcpus = 4\n'],
    ['a list over lines', 'x = [\n  "a",\n]\n', [set('x', ['b', 'c'])], 'x = ["b", "c"]\n'],
    ['a list of tables', '[[a.b]]\nx = 1\n\n[c]\n', [set('a.b', [{ x: 2 }])], '[c]\n\n[a]\nb = [{ x = 2 }]\n'],
  ]
  // Goal: each row's text becomes what stands beside it.
  test.each(rows)('%s', (_what, text, settings, edited) => {
    expect(editToml(text, settings).trim()).toBe(edited.trim())
    expect(changesTo(editToml(text, settings), settings)).toEqual([])
  })
})

test('goal: the whole reference, set field by field in its own commented text, means the same', () => {
  const reference = configReference()
  const settings = settingsOf(reference) ?? []
  expect(settings.length).toBeGreaterThan(100)
  const commented = reference.replaceAll(/^(?=[a-z])/gm, '#')
  expect(settingsOf(commented)).toEqual([])
  const edited = editToml(commented, settings)
  expect(parseConfig(edited, 'f')).toEqual(parseConfig(reference, 'f'))
  expect(edited.split('\n').filter(line => line.startsWith('#'))).toEqual(
    commented.split('\n').filter(line => line.startsWith('#')),
  )
})

test('goal: values are TOML on one line, whatever is in them', () => {
  const values = ['a"b\\c\n\u007f', 1, true, 2.5, ['x', ['y']], { 'a b': 1, c: { d: 'e' } }]
  for (const value of values) expect(settingsOf(`x = [${inlineToml(value)}]\n`)).toEqual([set('x', [value])])
})

test('goal: text that is no TOML has no settings', () => {
  expect(settingsOf('x = \n')).toBeNull()
})
