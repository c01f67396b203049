// Hexadecimal by the runtime and by older methods: the same, in what they write, read and refuse.

import { expect, test } from 'bun:test'
import { fromHex, fromHexPortably, toHex, toHexPortably } from '../../src/base/bytes.ts'
import { generator } from '../rigs/hostile/fuzz.ts'

test('goal: bytes of any length are written alike, and read back in either case', () => {
  const below = generator(5)
  for (let length = 0; length < 300; length += 1) {
    const bytes = Uint8Array.from({ length }, () => below(256))
    const text = toHex(bytes)
    expect([text, toHexPortably(bytes)]).toEqual([Buffer.from(bytes).toString('hex'), text])
    for (const written of [text, text.toUpperCase()]) {
      expect([fromHex(written), fromHexPortably(written)]).toEqual([bytes, bytes])
    }
  }
})

// Goal: what is nearly hexadecimal has no second reading.
test.each(['0', '0x00', '0g', ' 00', '00\n', '00 11', '00:11', '\uff10\uff11', '-1'])('%j is refused', text => {
  expect(fromHex(text)).toBeNull()
})
