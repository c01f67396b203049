// Streams of the Messages API: blocks one after the other, and in them all that the chunks say.

import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { gatewayError } from '../../../../src/contract/http/gateway-error.ts'
import { MessagesStream } from '../../../../src/inference/dialects/messages/stream.ts'
import { UpstreamFault } from '../../../../src/inference/failure.ts'
import { namedEventsOf } from '../../../rigs/dialects/apis.ts'
import { anyPieces, callsOf, chunksOf, joinText, type Piece } from '../../../rigs/gateway/chat-chunks.ts'

const usage = { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 }

function openStream(keptCharsMax = 1_000): MessagesStream {
  return new MessagesStream({ id: '0a', createdS: 7, model: 'm', keep: null }, { keptCharsMax, obfuscate: null })
}

/** The reason of an upstream's failure, or the events of the whole stream. */
function told(pieces: readonly Piece[], finish = 'stop') {
  const stream = openStream()
  try {
    const text = chunksOf(pieces, finish)
      .map(chunk => stream.push(chunk))
      .join('')
    return namedEventsOf(text + stream.finish(usage) + stream.end)
  } catch (error) {
    if (error instanceof UpstreamFault) return error.reason
    throw error
  }
}

type Block = { type: string; name?: string; said: string }

/** Puts blocks together as their events demand: each begins where the last one ended. */
function blocksOf(events: ReturnType<typeof namedEventsOf>): Block[] {
  const blocks: Block[] = []
  let isOpen = false
  for (const event of events as {
    type: string
    index?: number
    content_block?: Block
    delta?: Record<string, string>
  }[]) {
    if (event.type === 'content_block_start') {
      expect([isOpen, event.index]).toEqual([false, blocks.length])
      blocks.push({
        type: event.content_block?.type ?? '',
        ...(event.content_block?.name === undefined ? {} : { name: event.content_block.name }),
        said: '',
      })
      isOpen = true
    } else if (event.type.startsWith('content_block')) {
      expect([isOpen, event.index]).toEqual([true, blocks.length - 1])
      const block = blocks.at(-1)
      if (block !== undefined)
        block.said += event.delta?.text ?? event.delta?.thinking ?? event.delta?.partial_json ?? ''
      isOpen = event.type !== 'content_block_stop'
    }
  }
  expect(isOpen).toBe(false)
  return blocks
}

// Goal: for any chunks blocks follow each other and hold everything in order; the last events give reason and usage.
test('any chunks', () => {
  fc.assert(
    fc.property(
      fc.oneof(anyPieces('whole'), anyPieces('inTurns')),
      fc.constantFrom('stop', 'length', 'tool_calls'),
      (pieces, finish) => {
        const events = told(pieces, finish)
        if (typeof events === 'string') throw new Error(events)
        expect(events[0]?.type).toBe('message_start')
        const blocks = blocksOf(events)
        const said = (type: string) =>
          blocks
            .filter(block => block.type === type)
            .map(block => block.said)
            .join('')
        const texts = pieces
          .map(piece => ('content' in piece ? piece.content : 'refusal' in piece ? piece.refusal : ''))
          .join('')
        expect([said('text'), said('thinking')]).toEqual([texts, joinText(pieces, 'reasoning_content')])
        const uses = blocks.filter(block => block.type === 'tool_use')
        // Calls that wait for the end keep the order in which they began.
        expect(uses.map(({ name, said: args }) => ({ name, args }) as unknown)).toEqual(callsOf(pieces))
        const isRefused = joinText(pieces, 'refusal') !== ''
        const reason = isRefused
          ? 'refusal'
          : { stop: 'end_turn', length: 'max_tokens', tool_calls: 'tool_use' }[finish]
        expect(events.slice(-2)).toEqual([
          {
            type: 'message_delta',
            delta: { stop_reason: reason ?? '', stop_sequence: null },
            usage: { input_tokens: 1, cache_creation_input_tokens: 0, cache_read_input_tokens: 0, output_tokens: 2 },
          },
          { type: 'message_stop' },
        ])
      },
    ),
    { numRuns: 500 },
  )
})

// Goal: several calls are several blocks, whatever their arguments are; pieces of an ended call break the stream.
test.each<[pieces: Piece[], finish: string, outcome: unknown]>([
  [
    [
      { call: 0, args: '{"a"' },
      { call: 0, args: ':1}' },
      { call: 1, args: '' },
      { call: 2, args: '{}' },
    ],
    'tool_calls',
    3,
  ],
  [
    [
      { call: 0, args: '{"a"' },
      { call: 1, args: '{}' },
    ],
    'tool_calls',
    2,
  ],
  [[{ call: 0, args: '[]' }], 'tool_calls', 1],
  [[{ call: 0, args: '{"a"' }], 'stop', 1],
  [[{ call: 0, args: '{"a"' }], 'length', 1],
  [
    [
      { call: 0, args: '{}' },
      { call: 1, args: '{' },
      { call: 0, args: '}' },
    ],
    'tool_calls',
    'malformed',
  ],
  [[{ call: 0, args: '{}' }, { content: 'a' }, { call: 0, args: ' ' }], 'tool_calls', 'malformed'],
])('calls %j, %s', (pieces, finish, outcome) => {
  const events = told(pieces, finish)
  expect(typeof events === 'string' ? events : blocksOf(events).length).toBe(outcome as never)
})

// Goal: calls that an engine sends in turns are blocks one after the other; the first is sent as it comes.
test('calls in turns', () => {
  const pieces = [
    { call: 0, args: '' },
    { call: 1, args: '{"b"' },
    { content: 'text' },
    { call: 0, args: '{"a":' },
    { call: 1, args: ':2}' },
    { call: 0, args: '1}' },
  ]
  const stream = openStream()
  const sent = chunksOf(pieces, 'tool_calls').map(chunk => stream.push(chunk))
  expect(sent.map(text => text.includes('partial_json'))).toEqual([false, false, false, false, true, false, true, true])
  const said = blocksOf(namedEventsOf(sent.join('')))
  expect(said).toEqual([
    { type: 'tool_use', name: 'f0', said: '{"a":1}' },
    { type: 'tool_use', name: 'f1', said: '{"b":2}' },
    { type: 'text', said: 'text' },
  ])
})

// Goal: what is kept of arguments is bounded, also of calls that wait; of text nothing is kept.
test('too much', () => {
  const [, first = '', second = ''] = chunksOf(
    [
      { call: 0, args: 'x'.repeat(60) },
      { call: 0, args: 'x'.repeat(60) },
    ],
    'stop',
  )
  const stream = openStream(100)
  stream.push(first)
  expect(() => stream.push(second)).toThrow(UpstreamFault)
  const held = openStream(100)
  const turns = chunksOf(
    [{ call: 0, args: '{' }, { call: 1, args: 'x'.repeat(60) }, { content: 'y'.repeat(60) }],
    'stop',
  )
  for (const chunk of turns.slice(0, 3)) held.push(chunk)
  expect(() => held.push(turns[3] ?? '')).toThrow(UpstreamFault)
  expect(openStream(100).push(chunksOf([{ content: 'x'.repeat(200) }], 'stop')[1] ?? '')).toContain('x'.repeat(200))
})

// Goal: a stream that breaks ends with this API's error, and the gateway's own fields in it.
test('failure', () => {
  const [event] = namedEventsOf(openStream().fail(gatewayError('rate_limited', 'Too many.')))
  expect(event).toEqual({
    type: 'error',
    error: { type: 'rate_limit_error', code: 'rate_limited', message: 'Too many.', param: null },
  })
})
