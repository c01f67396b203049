// Streams of the Responses API: for any chunks the events add up to the last event.

import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { accumulateResponse } from 'openai/lib/responses/ResponseAccumulator'
import type { Response, ResponseStreamEvent } from 'openai/resources/responses/responses'
import { present } from '../../../../src/base/assert.ts'
import { gatewayError } from '../../../../src/contract/http/gateway-error.ts'
import { chatOfResponse, responseForm } from '../../../../src/inference/dialects/responses/request.ts'
import { ResponsesStream } from '../../../../src/inference/dialects/responses/stream.ts'
import { UpstreamFault } from '../../../../src/inference/failure.ts'
import { namedEventsOf } from '../../../rigs/dialects/apis.ts'
import { anyPieces, callsOf, chunksOf, joinText, type Piece } from '../../../rigs/gateway/chat-chunks.ts'

const usage = {
  prompt_tokens: 1,
  completion_tokens: 2,
  total_tokens: 3,
  completion_tokens_details: { reasoning_tokens: 1 },
}

function openStream(keptCharsMax = 1_000): ResponsesStream {
  const { traits } = chatOfResponse({ model: 'm', input: 'x' }, null)
  const form = responseForm(present(traits, 'traits'), { id: '0a', createdS: 7, model: 'm', keep: null })
  return new ResponsesStream(form, { keptCharsMax, obfuscate: null })
}

function eventsOf(pieces: readonly Piece[], finish = 'stop') {
  const stream = openStream()
  const text =
    chunksOf(pieces, finish)
      .map(chunk => stream.push(chunk))
      .join('') + stream.finish(usage)
  return namedEventsOf(text)
}

type Output = {
  type: string
  status?: string
  content?: { text?: string; refusal?: string }[]
  name?: string
  arguments?: string
}

// Goal: OpenAI's own accumulator has the last event's output before that event, with all of the chunks in it.
test('any chunks', () => {
  fc.assert(
    fc.property(anyPieces('inTurns'), fc.constantFrom('stop', 'length', 'tool_calls'), (pieces, finish) => {
      const events = eventsOf(pieces, finish)
      expect(events.map(event => event.sequence_number)).toEqual(events.map((_, at) => at))
      const last = events.at(-1) as { response: Response }
      let snapshot: Response | undefined
      for (const event of events.slice(0, -1))
        snapshot = accumulateResponse(event as unknown as ResponseStreamEvent, snapshot)
      expect(snapshot?.output).toEqual(last.response.output)
      const output = last.response.output as unknown as Output[]
      const said = (type: string, field: 'text' | 'refusal') =>
        output
          .flatMap(item => (item.type === type ? (item.content ?? []) : []))
          .map(part => part[field] ?? '')
          .join('')
      expect(said('message', 'text')).toBe(joinText(pieces, 'content'))
      expect(said('message', 'refusal')).toBe(joinText(pieces, 'refusal'))
      expect(said('reasoning', 'text')).toBe(joinText(pieces, 'reasoning_content'))
      const calls = output.filter(item => item.type === 'function_call')
      expect(calls.map(({ name, arguments: args }) => ({ name, args }) as unknown)).toEqual(callsOf(pieces))
      expect(output.slice(0, -1).every(item => item.status === 'completed')).toBe(true)
      expect(output.at(-1)?.status).toBe(finish === 'length' ? 'incomplete' : 'completed')
    }),
    { numRuns: 500 },
  )
})

// Goal: a response with nothing in it has an empty message, and its usage.
test('nothing', () => {
  const last = eventsOf([]).at(-1) as { response: Response }
  expect(last.response.output).toMatchObject([{ type: 'message', content: [{ type: 'output_text', text: '' }] }])
  expect(last.response.usage).toEqual({
    input_tokens: 1,
    input_tokens_details: { cached_tokens: 0 } as never,
    output_tokens: 2,
    output_tokens_details: { reasoning_tokens: 1 },
    total_tokens: 3,
  })
})

// Goal: log probabilities come with the piece that they are of, and with the whole.
test('log probabilities', () => {
  const stream = openStream()
  const entry = { token: 'a', logprob: -1, bytes: null, top_logprobs: [] }
  const choice = {
    index: 0,
    delta: { content: 'a' },
    logprobs: { content: [entry], refusal: null },
    finish_reason: null,
  }
  const text = stream.push(JSON.stringify({ choices: [choice, choice] })) + stream.finish(usage)
  const events = namedEventsOf(text)
  const ofType = (type: string) => events.filter(event => event.type === type).map(event => event.logprobs)
  expect(ofType('response.output_text.delta')).toEqual([[entry], [entry]])
  expect(ofType('response.output_text.done')).toEqual([[entry, entry]])
})

// Goal: what is kept is bounded: text, reasoning, arguments and log probabilities alike.
test('too much', () => {
  const long = 'x'.repeat(60)
  for (const piece of [{ content: long }, { refusal: long }, { reasoning_content: long }, { call: 0, args: long }]) {
    const stream = openStream(100)
    const [, first = '', second = ''] = chunksOf([piece, piece], 'stop')
    stream.push(first)
    expect(() => stream.push(second)).toThrow(UpstreamFault)
  }
  const entry = { token: long, logprob: -1, bytes: null, top_logprobs: [] }
  const choice = { index: 0, delta: { content: 'a' }, logprobs: { content: [entry] }, finish_reason: null }
  expect(() => openStream(100).push(JSON.stringify({ choices: [choice] }))).toThrow(UpstreamFault)
})

// Goal: a broken stream ends with the failed response, without unchecked text, and with the error.
test('failure', () => {
  const stream = openStream()
  for (const chunk of chunksOf([{ content: 'secret' }], 'stop')) stream.push(chunk)
  const events = namedEventsOf(stream.fail(gatewayError('upstream_failed', 'The upstream fell silent.')))
  const error = { code: 'upstream_failed', message: 'The upstream fell silent.' }
  expect(events).toMatchObject([
    { type: 'response.failed', response: { status: 'failed', error, output: [], usage: null } },
    { type: 'error', ...error, param: null, error: { ...error, type: 'upstream_error' } },
  ])
})
