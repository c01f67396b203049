// Goal: an entry of a list of tables is added or removed in the text of a configuration, and nothing else changes.

import { describe, expect, test } from 'bun:test'
import { settingsOf } from '../../src/config/edit.ts'
import { appendEntry, removeEntry } from '../../src/config/edit-list.ts'
import { configReference } from '../../src/config/reference.ts'

const path = ['a', 'list']

describe('goal: a new entry stands behind the last, in the form of the text, and comments stay', () => {
  const rows: [what: string, text: string, edited: string][] = [
    ['an empty file', '', '[[a.list]]\nx = 1\n'],
    ['other tables alone', '# t\n[b]\ny = 2', '# t\n[b]\ny = 2\n\n[[a.list]]\nx = 1\n'],
    [
      'a list in the middle',
      '[[a.list]] # first\nx = 0 # mine\n# of b\n\n[b]\ny = 2\n',
      '[[a.list]] # first\nx = 0 # mine\n\n[[a.list]]\nx = 1\n# of b\n\n[b]\ny = 2\n',
    ],
    ['a list at an end without a line break', '[[a.list]]\nx = 0', '[[a.list]]\nx = 0\n\n[[a.list]]\nx = 1\n'],
    [
      'tables of the last entry',
      '[[a.list]]\n[a.list.c]\nz = 1\n',
      '[[a.list]]\n[a.list.c]\nz = 1\n\n[[a.list]]\nx = 1\n',
    ],
    ['an empty list on a line', '[a]\nlist = [] # none\n', '[a]\nlist = [{ x = 1 }] # none\n'],
    ['a list over lines', '[a]\nlist = [\n  { x = 0 },\n]\n', '[a]\nlist = [\n  { x = 0 }, { x = 1 },\n]\n'],
    // The comment would be that of the new entry.
    ['a list with comments', '[a]\nlist = [\n  { x = 0 }, # mine\n]\n', '[a]\nlist = [\n  { x = 0 }, # mine\n]\n'],
    ['an empty list with a comment', '[a]\nlist = [ # none\n]\n', '[a]\nlist = [ # none\n]\n'],
    ['lines that end by CR and LF', '[[a.list]]\r\nx = 0\r\n', '[[a.list]]\r\nx = 0\r\n\r\n[[a.list]]\r\nx = 1\r\n'],
    ['a list in an inline table', 'a = { list = [{ x = 0 }] }\n', 'a = { list = [{ x = 0 }, { x = 1 }] }\n'],
    ['another list of tables', '[[a.other]]\nx = 0\n', '[[a.other]]\nx = 0\n\n[[a.list]]\nx = 1\n'],
  ]
  // Goal: each row's text becomes what stands beside it.
  test.each(rows)('%s', (_what, text, edited) => {
    expect(appendEntry(text, path, { x: 1 })).toBe(edited)
  })
})

describe('goal: the entry of an index goes, with its tables, and its neighbours stay', () => {
  const tables = '[[a.list]]\nx = 0\n\n# second\n[[a.list]]\nx = 1\n[a.list.c]\nz = 1\n\n[[a.list]]\nx = 2\n\n[b]\n'
  const commented = '[a]\nlist = [\n  { x = 0 }, # first\n  { x = 1 }, # second\n]\n'
  const rows: [what: string, text: string, index: number, edited: string][] = [
    ['the first', tables, 0, tables.slice('[[a.list]]\nx = 0\n\n'.length)],
    ['one with a table', tables, 1, '[[a.list]]\nx = 0\n\n# second\n[[a.list]]\nx = 2\n\n[b]\n'],
    ['none', tables, 3, tables],
    ['the only one of a line', '[a]\nlist = [{ x = 0 }]\n', 0, '[a]\nlist = []\n'],
    ['the first of a line', '[a]\nlist = [{ x = 0 }, { x = 1 }]\n', 0, '[a]\nlist = [{ x = 1 }]\n'],
    ['one of a list with comments', commented, 1, commented],
    ['lines that end by CR and LF', '[[a.list]]\r\nx = 0\r\n\r\n[b]\r\n', 0, '[b]\r\n'],
    ['the last of a line', '[a]\nlist = [{ x = 0 }, { x = 1 }]\n', 1, '[a]\nlist = [{ x = 0 }]\n'],
  ]
  // Goal: each row's text becomes what stands beside it.
  test.each(rows)('%s', (_what, text, index, edited) => {
    expect(removeEntry(text, path, index)).toBe(edited)
  })
})

test('goal: in the whole reference, an entry comes and goes, and the text is as before', () => {
  const reference = configReference()
  const list = ['inference', 'upstreams']
  const entry = { name: 'a "b"\\', url: 'https://h/v1', models: ['m', 'n'] }
  const edited = appendEntry(reference, list, entry)
  const found = settingsOf(edited)?.find(({ path: at }) => at.join('.') === 'inference.upstreams')
  expect(found?.value).toEqual([entry])
  expect(removeEntry(edited, list, 0)).toBe(reference)
})
