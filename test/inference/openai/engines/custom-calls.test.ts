// Calls of custom tools in a chat: a client that adds up the pieces has the text once, in either of its two places.

import { expect, test } from 'bun:test'
import { utf8 } from '../../../../src/base/bytes.ts'
import { ChunkConverter } from '../../../../src/inference/openai/chunk.ts'
import { parseCompletion } from '../../../../src/inference/openai/completion.ts'
import { parseRequest } from '../../../../src/inference/openai/request.ts'

const plan = (stream: boolean) => {
  const tools = [{ type: 'custom', custom: { name: 'patch' } }]
  const body = { model: 'm', messages: [{ role: 'user', content: 'x' }], tools, stream }
  const { request } = parseRequest('chat', utf8(JSON.stringify(body)))
  return { request, id: 'chatcmpl-0123456789ab', createdS: 7, schema: null, obfuscate: null, dialect: null }
}

type Piece = { index: number; id?: string; custom: { input: string }; function: { arguments: string } }

/** Pieces that the client gets for the deltas of an engine, which repeats the finish reason. */
function piecesFor(deltas: readonly object[]): Piece[] {
  const converter = new ChunkConverter(plan(true), 999)
  const chunk = (delta: object, finish_reason: string | null) =>
    converter.convert(JSON.stringify({ choices: [{ index: 0, delta, finish_reason }] }))
  const chunks = [...deltas.map(delta => chunk(delta, null)), chunk({}, 'tool_calls'), chunk({}, 'tool_calls')]
  return chunks.flatMap(text => (text === null ? [] : (JSON.parse(text).choices[0].delta.tool_calls ?? [])))
}

const call = (args: string, more: object = {}) => ({ index: 0, function: { arguments: args, ...more } })
const text = 'line "1"\nline 2'

// Goal: neither pieces nor a repeated end double the text, however the engine cuts the arguments.
test.each([1, 3, 99])('pieces of %d characters', length => {
  const args = JSON.stringify({ input: text })
  const cuts = args.match(new RegExp(`.{1,${length}}`, 'gs')) ?? []
  const pieces = piecesFor([
    { tool_calls: [{ ...call('', { name: 'patch' }), id: 'c1' }] },
    ...cuts.map(cut => ({ tool_calls: [call(cut)] })),
  ])
  expect(pieces.map(piece => piece.custom.input).join('')).toBe(text)
  expect(pieces.map(piece => piece.function.arguments).join('')).toBe(text)
  expect(pieces.filter(({ id }) => id !== undefined)).toHaveLength(1)
})

// Goal: the same of a call in one piece, and of a whole completion.
test('a call in one piece', () => {
  const whole = { id: 'c1', type: 'function', function: { name: 'patch', arguments: JSON.stringify({ input: text }) } }
  const pieces = piecesFor([{ tool_calls: [{ index: 0, ...whole }] }])
  expect(pieces.map(piece => piece.custom.input).join('')).toBe(text)
  expect(pieces.map(piece => piece.function.arguments).join('')).toBe(text)
  const message = { role: 'assistant', content: null, tool_calls: [whole] }
  const completion = JSON.stringify({ choices: [{ index: 0, message, finish_reason: 'tool_calls' }] })
  const counts = { bounds: { promptTokensMax: 9, completionTokensMax: 99 }, promptEstimate: 1, showsCached: false }
  expect(parseCompletion(completion, plan(false), counts).body.choices).toMatchObject([
    { message: { tool_calls: [{ custom: { input: text }, function: { arguments: text } }] } },
  ])
})
