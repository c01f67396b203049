// Goal: events of another host are read whatever their pieces are, each once, and a flood without an end is cut.

import { expect, test } from 'bun:test'
import { ServerSentEvents } from '../../../src/builds/events/server-sent.codec.ts'

const event = (id: number, data = `{"n":${id}}`, type = 'build') => `event: ${type}\nid: ${id}\ndata: ${data}\n\n`

function read(text: string, { afterId = 0, pieceBytes = 5 } = {}) {
  const reader = new ServerSentEvents(afterId)
  const bytes = new TextEncoder().encode(text)
  const lines = []
  for (let at = 0; at < bytes.length; at += pieceBytes) lines.push(...reader.push(bytes.subarray(at, at + pieceBytes)))
  return lines
}

test('goal: each event comes out once it is whole, characters that a piece cuts in two included', () => {
  const text = event(1, '{"msg":"é€"}', 'init') + event(2)
  for (const pieceBytes of [1, 2, 3, 7, 1_000]) {
    expect(read(text, { pieceBytes })).toEqual([
      { id: 1, seq: null, type: 'init', data: '{"msg":"é€"}' },
      { id: 2, seq: null, type: 'build', data: '{"n":2}' },
    ])
  }
  expect(read(event(1).slice(0, -1))).toEqual([])
})

test('goal: events that were read before, and repeated ones, are left out', () => {
  expect(read(event(3) + event(4) + event(4) + event(2) + event(5), { afterId: 3 }).map(({ id }) => id)).toEqual([4, 5])
})

test('goal: what is no event of ours is left out', () => {
  const bad = [': a comment\n\n', event(1, '[1]'), event(1, '{}', 'B'), event(1, '{}', 'a'.repeat(17)), 'id: 1\n\n']
  expect(read(bad.join('') + event(7))).toEqual([{ id: 7, seq: null, type: 'build', data: '{"n":7}' }])
})

test('goal: 262,144 characters without an end are kept, one more throws', () => {
  const reader = new ServerSentEvents(0)
  expect(reader.push(new Uint8Array(262_144).fill(0x61))).toEqual([])
  expect(() => reader.push(new Uint8Array(1).fill(0x61))).toThrow('has no end')
})
