// Goal: pasted hexadecimal is read with and without 0x, and nothing else is.

import { expect, test } from 'bun:test'
import { pastedHex } from '../../src/terminal/hex.ts'
import { hexOption, hexUpToOption } from '../../src/terminal/options.ts'

const bytes = Uint8Array.of(0xab, 0x0c)

test('goal: one reader, in either case', () => {
  for (const text of ['ab0c', 'AB0C', '0xab0c', '0XAB0C']) expect([text, pastedHex(text)]).toEqual([text, bytes])
  for (const text of ['0x', '0xa', '0x0xab0c', 'x', '0', ' 0xab', 'ab 0c']) {
    expect([text, pastedHex(text)]).toEqual([text, null])
  }
})

test('goal: options count the bytes and not the 0x', () => {
  expect([hexOption(2)('0xab0c'), hexUpToOption(2)('0xab0c')]).toEqual([bytes, bytes])
  for (const text of ['0xab', '0xab0cdd', '0x']) expect(() => hexOption(2)(text)).toThrow('2 bytes in hexadecimal')
  for (const text of ['0x', '0xab0cdd']) expect(() => hexUpToOption(2)(text)).toThrow('1 to 2 bytes')
  expect(() => hexUpToOption(2, 'Do this.')('secret')).toThrow('two characters for each. Do this.')
})
