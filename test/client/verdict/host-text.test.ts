// Goal: a name or address that a host chose fills no line, ends none, and does not read as words of the verdict.

import { expect, test } from 'bun:test'
import { hostAddress, hostName, hostNames, listed } from '../../../src/client/verdict/host-text.ts'

test('goal: plain names and addresses are shown as they are', () => {
  expect([hostName('llama-70b'), hostAddress('https://10.0.0.5:8000/v1')]).toEqual([
    'llama-70b',
    'https://10.0.0.5:8000/v1',
  ])
})

test('goal: anything else is a string without blanks, and long ones are cut', () => {
  expect(hostName('only inside')).toBe('"only\\u0020inside"')
  for (const text of ['a\nb', 'a\u001b[2J', `a${' '.repeat(300)}b`, 'x'.repeat(10_000), 'ä']) {
    const shown = hostAddress(text)
    expect(shown).toStartWith('"')
    expect(shown).not.toMatch(/\s/)
    expect(shown.length).toBeLessThan(1_600)
  }
})

test('goal: of many names eight are shown, and the others are counted', () => {
  expect(hostNames(Array.from({ length: 11 }, (_, at) => `m${at}`))).toBe('m0, m1, m2, m3, m4, m5, m6, m7 and 3 more')
  expect(hostNames(['m'])).toBe('m')
})

test('goal: of many lines seven are shown with one that counts the others', () => {
  const lines = Array.from({ length: 64 }, (_, at) => `OUTSIDE: ${at}`)
  expect(listed(lines, 'upstreams OUTSIDE')).toEqual([
    ...lines.slice(0, 7),
    'and 57 more upstreams OUTSIDE; --verbose prints each',
  ])
  expect(listed(lines.slice(0, 8), 'x')).toHaveLength(8)
})
