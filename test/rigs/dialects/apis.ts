// The APIs that are translated to chat completions, as tests speak them: the same request in each, and what a stream
// of each says.

import { Value } from '@sinclair/typebox/value'
import { MODEL } from '../../../scripts/rigs/gateway/server.ts'
import { GatewayError } from '../../../src/contract/http/inference.ts'

type Json = { [name: string]: unknown }

export type TestShape = {
  readonly path: string
  /** A request for the answer to "Hello". */
  readonly body: (more?: Json) => Json
  /** The chat request that the upstream gets for it. */
  readonly chat: (more?: Json) => Json
  /** The pieces of text, in a stream. */
  readonly pieceOf: (event: Json) => string | null
  /** The whole text, of a response that is no stream. */
  readonly textOf: (response: Json) => string
  /** The last event of a stream that is whole. */
  readonly end: string
  /** Tokens that a response or the last event with usage tells of: those of the prompt, and of the completion. */
  readonly usageOf: (value: Json) => [number, number] | null
}

const hello = { model: MODEL, messages: [{ role: 'user', content: 'Hello' }] }

function fields(value: unknown): Json {
  return typeof value === 'object' && value !== null ? (value as Json) : {}
}

function list(value: unknown): Json[] {
  return Array.isArray(value) ? value.map(fields) : []
}

export const TEST_SHAPES = {
  responses: {
    path: '/v1/responses',
    body: more => ({ model: MODEL, input: 'Hello', ...more }),
    chat: more => ({ ...hello, ...more }),
    pieceOf: event => (event.type === 'response.output_text.delta' ? String(event.delta) : null),
    textOf: ({ output }) =>
      list(output)
        .flatMap(item => list(item.type === 'message' ? item.content : []).map(part => String(part.text)))
        .join(''),
    end: 'data: [DONE]\n\n',
    usageOf: value => {
      const usage = fields(fields(value.response ?? value).usage)
      return 'input_tokens' in usage ? [Number(usage.input_tokens), Number(usage.output_tokens)] : null
    },
  },
  messages: {
    path: '/v1/messages',
    body: more => ({ ...hello, max_tokens: 100, ...more }),
    chat: more => ({ ...hello, max_tokens: 100, ...more }),
    pieceOf: event => {
      const { type, text } = fields(event.delta)
      return type === 'text_delta' ? String(text) : null
    },
    textOf: ({ content }) =>
      list(content)
        .filter(block => block.type === 'text')
        .map(block => String(block.text))
        .join(''),
    end: 'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    usageOf: value => {
      const usage = fields(value.usage)
      return 'input_tokens' in usage ? [Number(usage.input_tokens), Number(usage.output_tokens)] : null
    },
  },
} as const satisfies Record<string, TestShape>

/** The data of each event, [DONE] left out; each has the name that its data says. */
export function namedEventsOf(text: string): Json[] {
  return text
    .split('\n\n')
    .filter(event => event !== '' && event !== 'data: [DONE]' && !event.startsWith(':'))
    .map(event => {
      const [, name, data = ''] = /^event: ([a-z_.]+)\ndata: ([^\n]*)$/.exec(event) ?? []
      const value = fields(JSON.parse(data))
      if (value.type !== name) throw new Error(`an event ${name} that says ${value.type}`)
      return value
    })
}

/** The gateway's own error in a document or event of any shape; its `type` may be that API's. */
export function gatewayErrorIn(value: Json): Pick<GatewayError['error'], 'code' | 'message' | 'param'> {
  const { code, message, param } = fields(value.error)
  const error = { code, message, param, type: 'server_error' }
  return Value.Decode(GatewayError, { error }).error
}
