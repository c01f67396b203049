// Parts of content, refusals, log probabilities and choices of every API, as each engine gets them. The expected
// messages are written out.

import { expect, test } from 'bun:test'
import { utf8 } from '../../../../src/base/bytes.ts'
import { Fault } from '../../../../src/base/fault.ts'
import { type Engine as AnyEngine, CONTENT_KINDS } from '../../../../src/config/upstream/kinds.ts'
import { type AskedCompletion, readCompletion } from '../../../../src/inference/gateway/bodies/read-body.ts'
import { unmetNeed } from '../../../../src/inference/openai/messages.ts'
import { readSource } from '../../../../src/inference/openai/request.ts'
import { upstreamBody } from '../../../../src/inference/openai/upstream-body.ts'

type Json = Record<string, unknown>

function read(operation: AskedCompletion, body: Json) {
  const source = readSource(utf8(JSON.stringify({ model: 'm', ...body })))
  return readCompletion(operation, source, { earlier: null, hasLabels: false })
}

/** Returns the body that the engine gets; or why it gets none. */
/** Engines that have chats. */
type Engine = Exclude<AnyEngine, 'text-embeddings-inference'>
const ENGINES: readonly Engine[] = ['openai', 'llama-server', 'vllm', 'sglang']

function sent(operation: AskedCompletion, engine: Engine, body: Json): Json | string {
  const parsed = read(operation, body)
  const problem = unmetNeed(parsed.request.needs, { engine, content: CONTENT_KINDS, remoteUrls: false })
  if (problem !== null) return problem
  return JSON.parse(upstreamBody(parsed, { engine, cacheSalt: () => 'salt' }).text)
}

const messagesOf = (answer: Json | string) => (typeof answer === 'string' ? answer : answer.messages)

const PNG = 'data:image/png;base64,AA=='
const PDF = 'data:application/pdf;base64,AA=='
const sound = { data: 'AA==', format: 'wav' }
const source = (media_type: string) => ({ type: 'base64', media_type, data: 'AA==' })
const ask = (...content: Json[]) => [{ role: 'user', content }]
const text = { type: 'text', text: 'a' }

const image = ask(text, { type: 'image_url', image_url: { url: PNG } })
const audio = ask(text, { type: 'input_audio', input_audio: sound })
const file = ask(text, { type: 'file', file: { file_data: PDF, filename: 'f.pdf' } })
const no = (kind: string) => `This model does not take content parts of the kind ${kind}.`

// Goal: each engine gets the kinds of content that it knows; the others are refused by their name.
test.each<[string, AskedCompletion, Json, Record<Engine, unknown>]>([
  ...(
    [
      ['chat', { messages: image }],
      ['responses', { input: ask({ ...text, type: 'input_text' }, { type: 'input_image', image_url: PNG }) }],
      ['messages', { messages: ask(text, { type: 'image', source: source('image/png') }), max_tokens: 5 }],
    ] as const
  ).map(([api, body]): [string, AskedCompletion, Json, Record<Engine, unknown>] => [
    `an image in ${api}`,
    api,
    body,
    { openai: image, vllm: image, sglang: image, 'llama-server': image },
  ]),
  ...(
    [
      ['chat', { messages: audio }],
      ['responses', { input: ask({ ...text, type: 'input_text' }, { type: 'input_audio', input_audio: sound }) }],
    ] as const
  ).map(([api, body]): [string, AskedCompletion, Json, Record<Engine, unknown>] => [
    `audio in ${api}`,
    api,
    body,
    { openai: audio, vllm: audio, sglang: no('audio'), 'llama-server': audio },
  ]),
  ...(
    [
      ['chat', { messages: file }],
      [
        'responses',
        { input: ask({ ...text, type: 'input_text' }, { type: 'input_file', file_data: PDF, filename: 'f.pdf' }) },
      ],
      [
        'messages',
        {
          messages: ask(text, { type: 'document', source: source('application/pdf'), title: 'f.pdf' }),
          max_tokens: 5,
        },
      ],
    ] as const
  ).map(([api, body]): [string, AskedCompletion, Json, Record<Engine, unknown>] => [
    `a file in ${api}`,
    api,
    body,
    { openai: file, vllm: no('file'), sglang: no('file'), 'llama-server': no('file') },
  ]),
])('%s', (_name, operation, body, expected) => {
  for (const engine of ENGINES) {
    expect([engine, messagesOf(sent(operation, engine, body))]).toEqual([engine, expected[engine]])
  }
})

// Goal: a block of another kind, which the Messages API has no field for, is left out and named.
test('audio in messages', () => {
  const body = { messages: ask(text, { type: 'audio', source: source('audio/wav') }), max_tokens: 5 }
  const { ignored, source: own } = read('messages', body)
  expect(ignored).toEqual(['messages.audio'])
  expect(own.body.messages).toEqual([{ role: 'user', content: 'a' }])
})

const hi = { role: 'user', content: 'Hi' }
const more = { role: 'user', content: 'Why?' }
const said = (content: unknown, fields: Json = {}) => [hi, { role: 'assistant', content, ...fields }, more]

// Goal: a refusal that a client replays is text for every engine, since some refuse such parts.
test.each<[AskedCompletion, Json, Json[]]>([
  ['chat', { messages: said([{ type: 'refusal', refusal: 'no' }]) }, said([{ type: 'text', text: 'no' }])],
  ['chat', { messages: said(null, { refusal: 'no' }) }, said('no', { refusal: null })],
  ['chat', { messages: said('a', { refusal: null }) }, said('a', { refusal: null })],
  ['responses', { input: said([{ type: 'refusal', refusal: 'no' }]) }, said([{ type: 'text', text: 'no' }])],
])('a refusal in %s %#', (operation, body, expected) => {
  for (const engine of ENGINES) expect(messagesOf(sent(operation, engine, body))).toEqual(expected)
})

const CHAT = { messages: [hi] }
const RESPONSES = { input: 'Hi' }
const MESSAGES = { messages: [hi], max_tokens: 5 }

// Goal: log probabilities and choices reach every engine, from the APIs that have them.
test.each<[AskedCompletion, Json, Json]>([
  ['chat', { ...CHAT, logprobs: true, top_logprobs: 2 }, { logprobs: true, top_logprobs: 2 }],
  ['chat', { ...CHAT, n: 2 }, { n: 2 }],
  ['text_completion', { prompt: 'x', logprobs: 3, n: 2 }, { logprobs: 3, n: 2 }],
  ['responses', { ...RESPONSES, include: ['message.output_text.logprobs'] }, { logprobs: true }],
  ['responses', { ...RESPONSES, top_logprobs: 2 }, { logprobs: true, top_logprobs: 2 }],
])('%s with %j', (operation, body, expected) => {
  for (const engine of ENGINES) expect(sent(operation, engine, body)).toMatchObject(expected)
})

// Goal: the other APIs refuse them with a 400 that names the field.
test.each<[AskedCompletion, Json, string]>([
  ['responses', { ...RESPONSES, n: 2 }, 'n'],
  ['responses', { ...RESPONSES, logprobs: true }, 'logprobs'],
  ['messages', { ...MESSAGES, n: 2 }, 'n'],
  ['messages', { ...MESSAGES, logprobs: true }, 'logprobs'],
  ['messages', { ...MESSAGES, top_logprobs: 2 }, 'top_logprobs'],
  ['chat', { ...CHAT, modalities: ['text', 'audio'], audio: { voice: 'a', format: 'wav' } }, 'audio'],
])('%s without %j', (operation, body, param) => {
  let fault: unknown = null
  try {
    read(operation, body)
  } catch (error) {
    fault = error
  }
  expect(fault).toBeInstanceOf(Fault)
  expect(fault).toMatchObject({ code: 'invalid_request', param })
})
