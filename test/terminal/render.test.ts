// Goal: text for people is aligned whatever the colours, and nothing a guest wrote can drive the operator's terminal.

import { expect, test } from 'bun:test'
import { harmless } from '../../src/base/harmless.ts'
import { bytesText, fields, paintFor, table, timeText, verdictText, wantsColour } from '../../src/terminal/render.ts'

const plain = paintFor(false)

test('goal: columns align by what is seen, coloured or not', () => {
  const paint = paintFor(true)
  const text = table(
    paint,
    ['A', 'LONGER'],
    [
      [paint.word('ready'), 'x'],
      ['no', paint.bad('y')],
    ],
  )
  expect(text.replace(/\u001b\[[0-9;]*m/g, '')).toBe('A      LONGER\nready  x\nno     y\n')
  expect(text).toContain('\u001b[32mready\u001b[0m')
  expect(table(plain, ['A', 'B'], [])).toBe('A  B\n')
})

test('goal: a value of several lines stays under itself', () => {
  expect(
    fields(plain, [
      ['a', '1\n2'],
      ['long', '3'],
    ]),
  ).toBe('a:    1\n      2\nlong: 3\n')
})

test('goal: colour is for terminals whose user did not refuse it', () => {
  expect(wantsColour({ isTerminal: true, env: {} })).toBe(true)
  expect(wantsColour({ isTerminal: false, env: {} })).toBe(false)
  expect(wantsColour({ isTerminal: true, env: { NO_COLOR: '1' } })).toBe(false)
  expect(wantsColour({ isTerminal: true, env: { NO_COLOR: '' } })).toBe(true)
  expect(wantsColour({ isTerminal: true, env: { TERM: 'dumb' } })).toBe(false)
})

test('goal: every control character but tab and line ends becomes visible', () => {
  expect(harmless('a\tb\r\nc\n')).toBe('a\tb\r\nc\n')
  expect(harmless('\u001b]0;x\u0007')).toBe('\\x1b]0;x\\x07')
  expect(harmless('over\rwritten')).toBe('over\\x0dwritten')
  expect(harmless('\u009b2J\u007f\u0000é')).toBe('\\x9b2J\\x7f\\x00é')
  for (let code = 0; code < 0xa0; code += 1) {
    const kept = code === 9 || code === 10 || (code >= 0x20 && code < 0x7f)
    expect([code, harmless(String.fromCodePoint(code)) === String.fromCodePoint(code)]).toEqual([code, kept])
  }
})

test('goal: sizes and times are short and exact enough', () => {
  expect([0, 1, 1023, 1024, 1536, 5_368_709_120].map(bytesText)).toEqual([
    '0 B',
    '1 B',
    '1023 B',
    '1.0 KiB',
    '1.5 KiB',
    '5.0 GiB',
  ])
  expect([timeText(null), timeText('2026-11-20T12:00:00.123Z')]).toEqual(['-', '2026-11-20T12:00:00Z'])
})

// Goal: a check that is named after something of the other side is one line without escapes, as its reason is.
test('a hostile name of a check', () => {
  const check = { name: 'a\n\u001b[2Jb', outcome: 'fail', reason: 'c', required: true } as const
  const [line] = verdictText({ ok: false, checks: [check] }, paintFor(false)).split('\n')
  expect(line).toBe('FAIL a \\x1b[2Jb: c')
})
