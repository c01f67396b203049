// Goal: foreign text moves no cursor, reverses no line and hides nothing, and stays readable if it is harmless.

import { expect, test } from 'bun:test'
import { harmless, harmlessJson, harmlessLine } from '../../src/base/harmless.ts'

test('goal: what a terminal or a reader would act on is shown', () => {
  const cases: [string, string][] = [
    ['plain, ümläut, 漢字, 🦀', 'plain, ümläut, 漢字, 🦀'],
    ['\u001b[2J\u009b1m\u007f', '\\x1b[2J\\x9b1m\\x7f'],
    ['a\u202eb\u2066c\u2069\u200f\u061c', 'a\\u202eb\\u2066c\\u2069\\u200f\\u061c'],
    ['\u200b\u2060\ufeff\u00ad', '\\u200b\\u2060\\ufeff\\xad'],
    ['\u2028\u2029', '\\u2028\\u2029'],
    ['\u{e0041}\u{1d173}', '\\u{e0041}\\u{1d173}'],
    ['\ud800x', '\\ud800x'],
    ['a\r\nb\rc\n\td', 'a\r\nb\\x0dc\n\td'],
  ]
  for (const [text, shown] of cases) expect(harmless(text)).toBe(shown)
  expect(harmlessLine('a\r\nb\u202e\tc')).toBe('a b\\u202e c')
})

test('goal: a JSON text stays the same value', () => {
  const value = { a: '\u202e\u{e0041}\u009b\u2028', 'b\u200b': ['漢字', '🦀'] }
  const text = harmlessJson(JSON.stringify(value))
  expect(text).not.toMatch(/[\p{Cf}\p{Zl}\p{Zp}\x7f-\x9f]/u)
  expect(JSON.parse(text)).toEqual(value)
  expect(text).toContain('漢字')
})
