// Goal: messages come whole and in order however their bytes are cut, and what is no frame ends the reading.

import { expect, test } from 'bun:test'
import { encodeFrame, FrameReader, frameBytesMax } from '../../../src/inference/relay/frames.codec.ts'

const messages = [{ a: 1 }, { text: 'Grüße 👋', list: [1, 2, 3] }, 'x'.repeat(70_000), null, 7]
const bytes = Buffer.concat([
  encodeFrame(messages.slice(0, 2).map(message => JSON.stringify(message))),
  encodeFrame([JSON.stringify(messages[2])]),
  encodeFrame(messages.slice(3).map(message => JSON.stringify(message))),
])

test.each([1, 2, 3, 5, 1_000, 65_536, bytes.length])('goal: in pieces of %p bytes', size => {
  const reader = new FrameReader()
  const found: unknown[] = []
  for (let at = 0; at < bytes.length; at += size) {
    // The same memory each time, as the runtime gives it.
    const piece = Buffer.from(bytes.subarray(at, at + size))
    found.push(...reader.push(piece))
    piece.fill(0)
  }
  expect(found).toEqual(messages)
})

test('goal: what is no frame throws', () => {
  const tooLong = Buffer.alloc(4)
  tooLong.writeUInt32LE(frameBytesMax + 1)
  expect(() => new FrameReader().push(tooLong)).toThrow(RangeError)
  const noList = Buffer.from('\u0002\u0000\u0000\u0000{}')
  expect(() => new FrameReader().push(noList)).toThrow(TypeError)
  expect(() => new FrameReader().push(Buffer.from('\u0002\u0000\u0000\u0000[,'))).toThrow(SyntaxError)
})
