// Whole responses and responses that broke off.

import { expect, test } from 'bun:test'
import { createWholeCheck } from '../../../src/attest/ehbp/whole.ts'
import { utf8 } from '../../../src/base/bytes.ts'

function isWhole(contentType: string | null, pieces: readonly string[]): boolean {
  const check = createWholeCheck(contentType)
  for (const piece of pieces) check.push(utf8(piece))
  return check.isWhole()
}

const OBJECTS = [
  ['{}', true],
  ['  {"a":"}{\\"","b":[{"c":"\\\\"}]}\r\n', true],
  ['{"error":{"message":"ü"}}', true],
  ['', false],
  ['{', false],
  ['{"a":"}', false],
  ['{"a":"\\"}', false],
  ['{}{}', false],
  ['{} x', false],
  ['[]', false],
  ['"a"', false],
  ['null', false],
  ['x{}', false],
] as const

const done = 'data: [DONE]\n\n'
const STREAMS = [
  [done, true],
  [`data: {"choices":[]}\n\n${done}`, true],
  [`: comment\n\n${done}`, true],
  ['data: {"error":{"code":"upstream_failed"}}\n\n', true],
  // U+2028 ends a line of JavaScript, and none of an event.
  ['data: {"error":{"message":"a\u2028b"}}\n\n', true],
  ['event: error\ndata: {"error":{"code":"upstream_failed"}}\n\n', true],
  ['event: response.failed\ndata: {"response":{"error":{}}}\n\n', false],
  ['event: message_stop\ndata: {"type":"message_stop"}\n\n', true],
  ['event: message_delta\ndata: {"type":"message_delta","delta":{"type":"message_stop"}}\n\n', false],
  ['event: x\nevent: y\ndata: [DONE]\n\n', false],
  ['', false],
  ['data: {"choices":[]}\n\n', false],
  [`${done}data: {"choices":[]}\n\n`, false],
  [`${done}data`, false],
  [`${done}\n`, false],
  ['data: [DONE]\n', false],
  ['data: [DONE]', false],
  ['data:[DONE]\n\n', false],
  ['data: {"choices":[{"delta":{"content":"data: [DONE]"}}]}\n\n', false],
  ['data: x\ndata: [DONE]\n\n', false],
  ['data: {"error"\n\n', false],
  ['data: "error"\n\n', false],
  ['data: null\n\n', false],
  [`data: {"error":"${'x'.repeat(70_000)}"}\n\n`, false],
  [`data: ${'x'.repeat(70_000)}\n\n${done}`, true],
] as const

test('goal: an object is whole when its last brace is there, in whatever pieces it came', () => {
  for (const type of ['application/json', null, 'text/html', 'application/text/event-stream']) {
    for (const [text, whole] of OBJECTS) {
      expect([text, isWhole(type, [text])]).toEqual([text, whole])
      expect([text, isWhole(type, [...text])]).toEqual([text, whole])
    }
  }
})

test('goal: a stream is whole when its last event ends it, in whatever pieces it came', () => {
  for (const type of ['text/event-stream', 'Text/Event-Stream; charset=utf-8']) {
    for (const [text, whole] of STREAMS) {
      expect([text.slice(0, 80), isWhole(type, [text])]).toEqual([text.slice(0, 80), whole])
      expect([text.slice(0, 80), isWhole(type, text.match(/[\s\S]{1,3}/g) ?? [])]).toEqual([text.slice(0, 80), whole])
    }
  }
})

test('goal: no beginning of a whole response is whole', () => {
  const stream =
    'data: {"choices":[{"delta":{"content":"\\n\\ndata: [DONE]\\n\\n"}}]}\n\n: strongroom-receipt abc\n\ndata: [DONE]\n\n'
  const object = '{"choices":[{"message":{"content":"} \\" {"}}],"usage":{}}'
  for (const [type, text] of [
    ['text/event-stream', stream],
    ['application/json', object],
  ] as const) {
    expect(isWhole(type, [text])).toBe(true)
    for (let length = 0; length < text.length; length += 1) expect(isWhole(type, [text.slice(0, length)])).toBe(false)
  }
})

test('goal: bytes that are no text end no stream', () => {
  const check = createWholeCheck('text/event-stream')
  check.push(Uint8Array.of(0x64, 0xff, 0x0a, 0x0a))
  expect(check.isWhole()).toBe(false)
})
