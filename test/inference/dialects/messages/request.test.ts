// Requests of the Messages API: what they become, and what is refused, by the client's own names.

import { describe, expect, test } from 'bun:test'
import { messagesDialect } from '../../../../src/inference/dialects/messages/dialect.ts'
import { checkNearlyRight, type Json, translated } from '../../../rigs/dialects/requests.ts'

const hi = [{ role: 'user', content: 'Hi' }]
const base = { model: 'm', max_tokens: 5, messages: hi }
const cached = { cache_control: { type: 'ephemeral' } }
const schema = { type: 'object', properties: { city: { type: 'string' } } }
const tool = { name: 'f', description: 'd', input_schema: schema }
const chatTool = { type: 'function', function: { name: 'f', description: 'd', parameters: schema } }
const use = { type: 'tool_use', id: 'c', name: 'f', input: { a: 1 } }
const chatCall = { id: 'c', type: 'function', function: { name: 'f', arguments: '{"a":1}' } }
const result = { type: 'tool_result', tool_use_id: 'c', content: 'four' }
const text = (value: string) => ({ type: 'text', text: value })
const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AA==' } }
const linked = { type: 'image', source: { type: 'url', url: 'https://example.org/x.png' } }
const pdf = {
  type: 'document',
  source: { type: 'base64', media_type: 'application/pdf', data: 'AA==' },
  title: 'a.pdf',
}

describe('a request', () => {
  // Goal: each field goes to its place in the chat, and what has no effect is named.
  test.each<[more: Json, chat: unknown, ignored?: string[]]>([
    [{}, {}],
    [
      { stream: true, temperature: 0, top_p: 0.5, top_k: 3, stop_sequences: ['x'] },
      { stream: true, temperature: 0, top_p: 0.5, top_k: 3, stop: ['x'] },
    ],
    [{ stop_sequences: [], tools: null }, {}],
    [
      { tools: [tool], tool_choice: { type: 'auto' } },
      { tools: [chatTool], tool_choice: 'auto' },
    ],
    [
      { tools: [{ ...tool, type: 'custom', ...cached }], tool_choice: { type: 'any' } },
      { tools: [chatTool], tool_choice: 'required' },
      ['cache_control'],
    ],
    [
      { tools: [tool], tool_choice: { type: 'tool', name: 'f', disable_parallel_tool_use: true } },
      { tools: [chatTool], tool_choice: { type: 'function', function: { name: 'f' } }, parallel_tool_calls: false },
    ],
    [{ tool_choice: { type: 'none' } }, { tool_choice: 'none' }],
    [
      { metadata: { user_id: 'u' }, thinking: { type: 'adaptive' }, service_tier: 'auto', from_next_year: 1 },
      {},
      ['metadata', 'thinking', 'service_tier', 'from_next_year'],
    ],
    [
      { context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] }, mcp_servers: [], user: 'u' },
      {},
      ['context_management', 'user'],
    ],
    [
      {
        tools: [
          { type: 'web_search_20250305', name: 'web_search' },
          { ...tool, defer_loading: true, input_schema: { ...schema, maxLength: 524_288 } },
          { type: 'tool_search_tool_regex_20251119', name: 'tool_search_tool_regex' },
        ],
      },
      { tools: [chatTool] },
      ['tools.web_search_20250305', 'tools.defer_loading', 'tools.tool_search_tool_regex_20251119'],
    ],
    [{ tools: [{ type: 'web_search_20250305', name: 'web_search' }] }, { tools: [] }, ['tools.web_search_20250305']],
    [
      { output_format: { type: 'json_schema', schema, x: 1 }, output_config: { effort: 'low', y: 1 } },
      {
        reasoning_effort: 'low',
        response_format: { type: 'json_schema', json_schema: { name: 'output', strict: true, schema } },
      },
      ['output_config.y', 'output_format.x'],
    ],
    [{ output_config: { effort: 'low' } }, { reasoning_effort: 'low' }],
    [
      { output_config: { format: { type: 'json_schema', schema } } },
      { response_format: { type: 'json_schema', json_schema: { name: 'output', strict: true, schema } } },
    ],
  ])('%j', (more, chat, ignored = []) => {
    expect(translated(messagesDialect, { ...base, ...(more as object) })).toEqual({
      chat: { ...base, ...(chat as object) },
      ignored,
    })
  })
})

describe('messages', () => {
  // Goal: messages become those that a chat has for them; each result of a tool is a message, and the order stays.
  test.each<[messages: Json, chat: unknown, ignored?: string[]]>([
    [[{ role: 'user', content: [text('Hi')] }], hi],
    [
      [{ role: 'system', content: 'x' }, ...hi],
      [{ role: 'system', content: 'x' }, ...hi],
    ],
    [
      [{ role: 'user', content: [text('a'), { ...text('b'), ...cached }, image, linked, pdf] }],
      [
        {
          role: 'user',
          content: [
            text('a'),
            text('b'),
            { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } },
            { type: 'image_url', image_url: { url: 'https://example.org/x.png' } },
            { type: 'file', file: { file_data: 'data:application/pdf;base64,AA==', filename: 'a.pdf' } },
          ],
        },
      ],
      ['cache_control'],
    ],
    [
      [
        {
          role: 'user',
          content: [{ type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'Hi' } }],
        },
      ],
      hi,
    ],
    [
      [
        {
          role: 'assistant',
          content: [{ type: 'thinking', thinking: 't', signature: '' }, text('a'), use, { ...use, id: 'd' }],
        },
        {
          role: 'user',
          content: [result, { ...result, tool_use_id: 'd', content: [text('x'), image], is_error: true }, text('b')],
        },
      ],
      [
        {
          role: 'assistant',
          content: 'a',
          reasoning_content: 't',
          tool_calls: [chatCall, { ...chatCall, id: 'd' }],
        },
        { role: 'tool', tool_call_id: 'c', content: 'four' },
        {
          role: 'tool',
          tool_call_id: 'd',
          content: [text('x'), { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } }],
        },
        { role: 'user', content: 'b' },
      ],
      ['is_error'],
    ],
    [
      [
        { role: 'assistant', content: [use] },
        { role: 'user', content: [text('a'), { ...result, content: null }] },
      ],
      [
        { role: 'assistant', content: null, tool_calls: [chatCall] },
        { role: 'user', content: 'a' },
        { role: 'tool', tool_call_id: 'c', content: '' },
      ],
    ],
    [
      [...hi, { role: 'assistant', content: [{ type: 'redacted_thinking', data: 'x' }] }],
      [...hi, { role: 'assistant', content: '' }],
      ['messages.redacted_thinking'],
    ],
  ])('%j', (messages, chat, ignored = []) => {
    const body = { ...base, messages }
    expect(translated(messagesDialect, body)).toEqual({ chat: { ...base, messages: chat }, ignored })
    const all = [{ role: 'system', content: 'Be brief.' }, ...(chat as unknown[])]
    for (const system of ['Be brief.', [text('Be brief.')]]) {
      expect(translated(messagesDialect, { ...body, system })).toEqual({ chat: { ...base, messages: all }, ignored })
    }
  })
})

/** In a place that another one has in the chat, because of the result before it. */
const inUser = (block: Json) => ({ messages: [{ role: 'user', content: [result, text('a'), block] }] })
const inAssistant = (block: Json) => ({ messages: [...hi, { role: 'assistant', content: [text('a'), block] }] })

describe('a refusal', () => {
  // Goal: a request for an unsupported feature gets an alternative; every other error has the client's own field name.
  test.each<[more: Json, param: string, words: RegExp]>([
    [{ container: 'c' }, 'container', /leave it out/],
    [{ mcp_servers: [{}] }, 'mcp_servers', /pass their tools/],
    [{ inference_geo: 'eu' }, 'inference_geo', /the attestation states/],
    [
      { context_management: { edits: [{ type: 'compact_20260112' }] } },
      'context_management.edits[0].type',
      /shorten messages/,
    ],
    [
      {
        tools: [{ type: 'web_search_20250305', name: 'web_search' }, tool],
        tool_choice: { type: 'tool', name: 'web_search' },
      },
      'tool_choice',
      /not in tools/,
    ],
    [
      {
        tools: [
          { type: 'bash_20250124', name: 'b' },
          { ...tool, name: 'a b' },
        ],
      },
      'tools[1].name',
      /letters/,
    ],
    [{ n: 2 }, 'n', /leave it out/],
    [{ response_format: {} }, 'response_format', /leave it out/],
    [{ max_tokens: null }, 'max_tokens', /is required/],
    [{ stop_sequences: 'x' }, 'stop_sequences', /list of strings/],
    [{ tool_choice: { type: 'any' } }, 'tool_choice', /"any" needs tools/],
    [{ tool_choice: { type: 'tool', name: 'g' }, tools: [tool] }, 'tool_choice', /not in tools/],
    [{ tool_choice: { type: 'required' } }, 'tool_choice.type', /auto, any, tool or none/],
    [{ output_config: { format: { type: 'text' } } }, 'output_config.format.type', /json_schema/],
    [{ messages: [{ role: 'tool', content: 'x' }] }, 'messages[0].role', /assistant/],
    // An object that makes no text of itself.
    [inAssistant({ type: { toString: 1, valueOf: 1 } }), 'messages[1].content[1].type', /must be text, image/],
    [inUser(use), 'messages[0].content[2].type', /tool_result/],
    [inUser({ ...result, tool_use_id: '' }), 'messages[0].content[2].tool_use_id', /non-empty/],
    [inUser({ ...result, content: [{ type: 5 }] }), 'messages[0].content[2].content[0].type', /text/],
    [
      inUser({ type: 'image', source: { type: 'file', file_id: 'f' } }),
      'messages[0].content[2].source.type',
      /stores no files/,
    ],
    [inUser({ type: 'document', source: { type: 'url', url: 'x' } }), 'messages[0].content[2].source.type', /base64/],
    [inAssistant(result), 'messages[1].content[1].type', /tool_use/],
    [inAssistant({ ...use, input: 'x' }), 'messages[1].content[1].input', /object/],
    [inAssistant({ ...use, name: '' }), 'messages[1].content[1].name', /non-empty/],
    // Errors of the chat parser.
    [{ model: '' }, 'model', /id of a model/],
    [{ messages: [] }, 'messages', /at least one message/],
    [{ max_tokens: 0 }, 'max_tokens', /whole number/],
    [{ temperature: 3 }, 'temperature', /from 0 to 2/],
    [{ top_k: 'x' }, 'top_k', /whole number/],
    [{ stop_sequences: [5] }, 'stop_sequences', /string/],
    [{ stream: 'x' }, 'stream', /true or false/],
    [{ tools: [{ ...tool, name: 'a b' }] }, 'tools[0].name', /letters/],
    [{ tools: [tool, tool] }, 'tools[1].name', /twice/],
    [{ output_config: { effort: 5 } }, 'output_config.effort', /string/],
    [{ output_config: { format: { type: 'json_schema', schema: 5 } } }, 'output_config.format.schema', /object/],
    [inUser({ type: 'image', source: { type: 'url', url: 'x' } }), 'messages[0].content[2].source.url', /data: URL/],
  ])('%j', (more, param, words) => {
    const outcome = translated(messagesDialect, { ...base, ...(more as object) })
    expect(outcome).toEqual({ param, message: expect.stringMatching(words) })
    expect('message' in outcome && outcome.message.startsWith(`${param} `)).toBe(true)
  })

  // Goal: no body with one wrong place reaches an upstream unchecked, or is refused under names that its sender does
  // not know.
  test('by any value in any place', () => {
    const full = {
      ...base,
      messages: [
        { role: 'user', content: [text('a'), { ...image, ...cached }, linked, pdf] },
        { role: 'assistant', content: [{ type: 'thinking', thinking: 't', signature: '' }, text('a'), use] },
        { role: 'user', content: [result, { ...result, content: [text('x'), image], is_error: true }, text('b')] },
        { role: 'user', content: [{ ...result, content: [{ type: 'tool_reference', tool_name: 'f' }] }] },
      ],
      system: [text('s')],
      tools: [tool, { type: 'bash_20250124', name: 'bash' }],
      tool_choice: { type: 'tool', name: 'f', disable_parallel_tool_use: true },
      output_config: { effort: 'low', format: { type: 'json_schema', schema } },
      metadata: { user_id: 'u' },
      thinking: { type: 'enabled', budget_tokens: 1024 },
      stop_sequences: ['x'],
      stream: true,
    }
    const more = { temperature: 1, top_p: 1, top_k: 1, tool_choice: { type: 'any' }, tools: [tool] }
    checkNearlyRight(
      messagesDialect,
      [full, { ...base, ...more }],
      [...['response_format', 'stop', 'reasoning_effort', 'parallel_tool_calls']],
    )
  })
})
