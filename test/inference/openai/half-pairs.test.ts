// Half a surrogate pair becomes U+FFFD before an engine gets it.

import { expect, test } from 'bun:test'
import { utf8 } from '../../../src/base/bytes.ts'
import { replaceLoneSurrogates } from '../../../src/inference/json-text.ts'
import { parseRequest, readSource } from '../../../src/inference/openai/request.ts'

// Goal: every half is replaced, whole pairs and plain text that only looks like an escape stay.
test.each([
  ['"a"', '"a"'],
  [String.raw`"\ud83d"`, String.raw`"\ufffd"`],
  [String.raw`"\uD83D x"`, String.raw`"\ufffd x"`],
  [String.raw`"\ude00"`, String.raw`"\ufffd"`],
  [String.raw`"\ud83d\ude00"`, String.raw`"\ud83d\ude00"`],
  [String.raw`"\uD83D\uDE00"`, String.raw`"\uD83D\uDE00"`],
  [String.raw`"\ud83d\ud83d\ude00"`, String.raw`"\ufffd\ud83d\ude00"`],
  [String.raw`"\ude00\ud83d"`, String.raw`"\ufffd\ufffd"`],
  [String.raw`"\ud83d\n\ude00"`, String.raw`"\ufffd\n\ufffd"`],
  [String.raw`"\\ud83d"`, String.raw`"\\ud83d"`],
  [String.raw`"\\\ud83d"`, String.raw`"\\\ufffd"`],
  [String.raw`"\ud83d\\ude00"`, String.raw`"\ufffd\\ude00"`],
  [String.raw`"\ud83dude00"`, String.raw`"\ufffdude00"`],
  [String.raw`{"\udc00":["\udbff","\u00e9","\udfff"]}`, String.raw`{"\ufffd":["\ufffd","\u00e9","\ufffd"]}`],
  [String.raw`"\ud83`, String.raw`"\ud83`],
  [String.raw`"\u`, String.raw`"\u`],
  [String.raw`"\ud8zz"`, String.raw`"\ud8zz"`],
  [String.raw`"\ud7ff\ue000"`, String.raw`"\ud7ff\ue000"`],
])('%s becomes %s', (given, replaced) => {
  expect(replaceLoneSurrogates(given)).toBe(replaced)
})

// Goal: the value and the text are whole, and the change is named; two names that become one are refused.
test('of a body', () => {
  const source = readSource(utf8(String.raw`{"a":"x\ud83d","\ud800":1}`))
  expect(source).toMatchObject({ body: { a: 'x\ufffd', '\ufffd': 1 }, changes: ['text.surrogates'] })
  expect(source.text).toBe(String.raw`{"a":"x\ufffd","\ufffd":1}`)
  expect(readSource(utf8(String.raw`{"a":"\ud83d\ude00"}`)).changes).toEqual([])
  expect(() => readSource(utf8(String.raw`{"\ud800":1,"\ud801":2}`))).toThrow('The body has a field twice.')
})

// Goal: engines parse the arguments of a replayed call, which are JSON inside of JSON.
test('of the arguments of a call', () => {
  const sent = (args: string) => {
    const calls = [{ id: 'c', type: 'function', function: { name: 'f', arguments: args } }]
    const messages = [
      { role: 'user', content: String.raw`keep \ud83d` },
      { role: 'assistant', content: null, tool_calls: calls },
    ]
    const { source } = parseRequest('chat', utf8(JSON.stringify({ model: 'm', messages })))
    const [kept, called] = JSON.parse(source.text).messages
    expect(kept.content).toBe(String.raw`keep \ud83d`)
    return [called.tool_calls[0].function.arguments, source.changes]
  }
  expect(sent(String.raw`{"a":"\ud83d"}`)).toEqual([String.raw`{"a":"\ufffd"}`, ['text.surrogates']])
  expect(sent(String.raw`{"a":"\ud83d`)).toEqual([
    JSON.stringify({ unparsed_arguments: String.raw`{"a":"\ufffd` }),
    ['text.surrogates'],
  ])
  expect(sent(String.raw`{"a":"\ud83d\ude00"}`)).toEqual([String.raw`{"a":"\ud83d\ude00"}`, []])
})
