// Base64 by the runtime and by older methods: the same, in what they write, read and refuse.

import { expect, test } from 'bun:test'
import {
  fromBase64,
  fromBase64Portably,
  fromBase64Url,
  toBase64,
  toBase64Portably,
  toBase64Url,
} from '../../src/base/bytes.ts'
import { generator } from '../rigs/hostile/fuzz.ts'

test('goal: bytes of any length are written alike, and read back', () => {
  const below = generator(7)
  for (let length = 0; length < 400; length += 1) {
    const bytes = Uint8Array.from({ length }, () => below(256))
    const text = toBase64(bytes)
    expect([text, toBase64Portably(bytes)]).toEqual([Buffer.from(bytes).toString('base64'), text])
    expect(toBase64Url(bytes)).toBe(Buffer.from(bytes).toString('base64url'))
    expect([fromBase64(text), fromBase64Portably(text), fromBase64Url(toBase64Url(bytes))]).toEqual([
      bytes,
      bytes,
      bytes,
    ])
  }
})

test('goal: of a large array, too', () => {
  const bytes = new Uint8Array(100_003).map((_, at) => (at * 31) % 251)
  expect(toBase64Portably(bytes)).toBe(toBase64(bytes))
})

test('goal: both refuse the same texts', () => {
  const below = generator(11)
  // Few characters, so that endings which are nearly right are many; of bits that must be zero, too.
  const alphabet = 'AQBg09+/'
  const outcomes = { read: 0, refused: 0 }
  for (let count = 0; count < 40_000; count += 1) {
    const body = Array.from({ length: below(8) }, () => alphabet[below(alphabet.length)]).join('')
    const text = body + '='.repeat(below(3))
    const found = fromBase64(text)
    expect({ text, found }).toEqual({ text, found: fromBase64Portably(text) })
    outcomes[found === null ? 'refused' : 'read'] += 1
  }
  expect(Math.min(outcomes.read, outcomes.refused)).toBeGreaterThan(1_000)
})

// Goal: what is nearly base64 has no second reading.
test.each(['A', 'AA', 'AB==', 'AAA', 'AAB=', 'A===', '====', 'AA==AA==', 'AAAA\n', ' AAAA', 'AA-_', 'AAAA=', 'ÄAAA'])(
  '%p is not canonical base64',
  text => expect(fromBase64(text)).toBeNull(),
)
