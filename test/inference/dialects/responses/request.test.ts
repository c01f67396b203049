// Requests of the Responses API: what they become, and what is refused, by the client's own names.

import { describe, expect, test } from 'bun:test'
import { responsesDialect } from '../../../../src/inference/dialects/responses/dialect.ts'
import { checkNearlyRight, type Json, translated } from '../../../rigs/dialects/requests.ts'

const base = { model: 'm', input: 'Hi' }
const tool = { type: 'function', name: 'f', description: 'd', parameters: { type: 'object' }, strict: true }
const call = { type: 'function_call', id: 'fc_1', call_id: 'c', name: 'f', arguments: '{}', status: 'completed' }
const output = { type: 'function_call_output', call_id: 'c', output: 'four' }
const said = { type: 'message', role: 'assistant', id: 'msg_1', status: 'completed' }
const text = (value: string) => ({ type: 'output_text', text: value, annotations: [], logprobs: [] })
const image = { type: 'input_image', image_url: 'data:image/png;base64,AA==', detail: 'low' }
const file = { type: 'input_file', file_data: 'AA==', filename: 'a.pdf' }
const audio = { type: 'input_audio', input_audio: { data: 'AA==', format: 'wav' } }
const hi = [{ role: 'user', content: 'Hi' }]
const chatCall = { id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } }
const chatTool = {
  type: 'function',
  function: { name: 'f', description: 'd', parameters: { type: 'object' }, strict: true },
}
const custom = {
  type: 'custom',
  name: 'patch',
  description: 'd',
  format: { type: 'grammar', syntax: 'lark', definition: 'start: "x"' },
}
const chatCustom = {
  type: 'function',
  function: {
    name: 'patch',
    description: 'd\n\nThe input has this grammar (lark):\nstart: "x"',
    parameters: {
      type: 'object',
      properties: { input: { type: 'string' } },
      required: ['input'],
      additionalProperties: false,
    },
  },
}
const customCall = { type: 'custom_tool_call', id: 'ctc_1', call_id: 'c', name: 'patch', input: '*** "x"' }
const customOutput = { type: 'custom_tool_call_output', call_id: 'c', output: 'done' }
const schema = { type: 'object', properties: {}, additionalProperties: false }

describe('a request', () => {
  // Goal: each field goes to its place in the chat, and what has no effect is named.
  test.each<[more: Json, chat: unknown, ignored?: string[]]>([
    [{}, {}],
    [
      { stream: true, stream_options: { include_obfuscation: false } },
      { stream: true, stream_options: { include_obfuscation: false } },
    ],
    [
      { max_output_tokens: 5, temperature: 0, top_p: 0.5, user: 'u' },
      { max_tokens: 5, temperature: 0, top_p: 0.5, user: 'u' },
    ],
    [{ reasoning: { effort: 'low' } }, { reasoning_effort: 'low' }],
    [{ text: { format: { type: 'text' } } }, { response_format: { type: 'text' } }],
    [{ text: { format: { type: 'json_object' } } }, { response_format: { type: 'json_object' } }],
    [
      { text: { format: { type: 'json_schema', name: 'n', schema, strict: true } } },
      { response_format: { type: 'json_schema', json_schema: { name: 'n', schema, strict: true } } },
    ],
    [
      { tools: [tool], tool_choice: { type: 'function', name: 'f' }, parallel_tool_calls: false },
      {
        tools: [
          { type: 'function', function: { name: 'f', description: 'd', parameters: { type: 'object' }, strict: true } },
        ],
        tool_choice: { type: 'function', function: { name: 'f' } },
        parallel_tool_calls: false,
      },
    ],
    [{ include: ['message.output_text.logprobs'] }, { logprobs: true }],
    [{ top_logprobs: 2 }, { logprobs: true, top_logprobs: 2 }],
    [{ include: ['reasoning.encrypted_content'], store: false, background: false, truncation: 'disabled' }, {}],
    [{ previous_response_id: null, conversation: null, prompt: null, instructions: null, tools: null, text: null }, {}],
    [{ metadata: { a: 'b' }, store: true, service_tier: 'auto' }, {}, ['service_tier']],
    [
      { client_metadata: { a: 'b' }, max_tool_calls: 1, truncation: 'auto' },
      {},
      ['client_metadata', 'max_tool_calls', 'truncation'],
    ],
    [{ include: ['file_search_call.results'] }, {}, ['include.file_search_call.results']],
    [
      {
        tools: [{ type: 'web_search' }, { ...tool, defer_loading: true }, { type: 'namespace', name: 'n', tools: [] }],
      },
      { tools: [chatTool] },
      ['tools.web_search', 'tools.defer_loading'],
    ],
    [
      {
        tools: [tool, { ...tool, name: 'g' }],
        tool_choice: { type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', name: 'g' }] },
      },
      {
        tools: [chatTool, { type: 'function', function: { ...chatTool.function, name: 'g' } }],
        tool_choice: {
          type: 'allowed_tools',
          allowed_tools: { mode: 'required', tools: [{ type: 'function', function: { name: 'g' } }] },
        },
      },
    ],
    [
      { tools: [custom], tool_choice: { type: 'custom', name: 'patch' } },
      { tools: [chatCustom], tool_choice: { type: 'function', function: { name: 'patch' } } },
      ['tools.format'],
    ],
    [{ text: { verbosity: 'low' }, reasoning: { summary: 'auto' } }, {}, ['text.verbosity', 'reasoning.summary']],
  ])('%j', (more, chat, ignored = []) => {
    const body = { ...base, ...(more as object) }
    expect(translated(responsesDialect, body)).toEqual({
      chat: { model: 'm', messages: hi, ...(chat as object) },
      ignored,
    })
  })
})

describe('input', () => {
  // Goal: items become the messages that a chat has for them; calls join the message before them.
  test.each<[input: Json, messages: unknown]>([
    [[{ role: 'user', content: 'Hi' }], hi],
    [[{ type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Hi' }] }], hi],
    [[{ role: 'developer', content: 'x' }], [{ role: 'developer', content: 'x' }]],
    [
      [{ role: 'user', content: [{ type: 'input_text', text: 'a' }, image, file, audio] }],
      [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'a' },
            { type: 'image_url', image_url: { url: image.image_url, detail: 'low' } },
            { type: 'file', file: { file_data: 'AA==', filename: 'a.pdf' } },
            audio,
          ],
        },
      ],
    ],
    [
      [{ role: 'user', content: 'Hi' }, { ...said, content: [text('a')] }, call, { ...call, call_id: 'c2' }, output],
      [
        ...hi,
        { role: 'assistant', content: 'a', tool_calls: [chatCall, { ...chatCall, id: 'c2' }] },
        { role: 'tool', tool_call_id: 'c', content: 'four' },
      ],
    ],
    [
      [
        { type: 'reasoning', id: 'rs_1', summary: [] },
        call,
        { ...output, output: [{ type: 'input_text', text: '4' }] },
        call,
      ],
      [
        { role: 'assistant', content: null, tool_calls: [chatCall] },
        { role: 'tool', tool_call_id: 'c', content: '4' },
        { role: 'assistant', content: null, tool_calls: [chatCall] },
      ],
    ],
    [
      [customCall, customOutput],
      [
        {
          role: 'assistant',
          content: null,
          tool_calls: [
            { id: 'c', type: 'function', function: { name: 'patch', arguments: JSON.stringify({ input: '*** "x"' }) } },
          ],
        },
        { role: 'tool', tool_call_id: 'c', content: 'done' },
      ],
    ],
    // Calls without arguments, or cut off in the midst of them; an answer that was all reasoning.
    [
      [
        { ...said, content: [] },
        { ...call, arguments: '' },
        { ...call, call_id: 'c2', arguments: '{"a":' },
      ],
      [
        {
          role: 'assistant',
          content: '',
          tool_calls: [
            chatCall,
            { id: 'c2', type: 'function', function: { name: 'f', arguments: '{"unparsed_arguments":"{\\"a\\":"}' } },
          ],
        },
      ],
    ],
    [
      [{ ...said, content: [text('a'), { type: 'refusal', refusal: 'no' }] }],
      [
        {
          role: 'assistant',
          content: [
            { type: 'text', text: 'a' },
            { type: 'text', text: 'no' },
          ],
        },
      ],
    ],
  ])('%j', (input, messages) => {
    expect(translated(responsesDialect, { model: 'm', input })).toEqual({ chat: { model: 'm', messages }, ignored: [] })
    const all = [{ role: 'system', content: 'Be brief.' }, ...(messages as unknown[])]
    expect(translated(responsesDialect, { model: 'm', input, instructions: 'Be brief.' })).toEqual({
      chat: { model: 'm', messages: all },
      ignored: [],
    })
  })
})

const inItem = (item: Json) => ({
  input: ['skipped', item].map(json => (json === 'skipped' ? { type: 'reasoning' } : json)),
})
const inPart = (part: Json) => inItem({ role: 'user', content: [{ type: 'input_text', text: 'a' }, part] })

describe('a refusal', () => {
  // Goal: a request for an unsupported feature gets an alternative; every other error has the client's own field name.
  test.each<[more: Json, param: string, words: RegExp]>([
    [{ previous_response_id: 5 }, 'previous_response_id', /non-empty/],
    [{ conversation: 'c' }, 'conversation', /previous_response_id/],
    [{ background: true }, 'background', /stream the response/],
    [{ prompt: { id: 'p' } }, 'prompt', /send instructions and input/],
    [{ tools: [{ type: 'web_search' }, { ...tool, name: 'a b' }] }, 'tools[1].name', /letters/],
    [{ tools: [{ type: 5 }] }, 'tools[0].type', /must be a string/],
    [{ tool_choice: { type: 'file_search' } }, 'tool_choice.type', /function/],
    [{ tool_choice: { type: 'web_search' }, tools: [{ type: 'web_search' }] }, 'tool_choice.type', /no built-in tools/],
    [
      { tools: [tool], tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'g' }] } },
      'tool_choice.tools[0]',
      /must name a function/,
    ],
    [{ store: 'yes' }, 'store', /true or false/],
    [{ include: [5] }, 'include[0]', /must be/],
    [{ metadata: { a: 1 } }, 'metadata', /at most 16 strings/],
    [{ n: 2 }, 'n', /leave it out/],
    [{ messages: [] }, 'messages', /leave it out/],
    // Errors of the chat parser.
    [{ model: 5 }, 'model', /id of a model/],
    [{ input: [] }, 'input', /must be a list/],
    [{ input: 5 }, 'input', /string or a list/],
    [{ max_output_tokens: 0 }, 'max_output_tokens', /whole number/],
    [{ temperature: 3 }, 'temperature', /from 0 to 2/],
    [{ reasoning: { effort: 5 } }, 'reasoning.effort', /string/],
    [{ stream: 'x' }, 'stream', /true or false/],
    [{ stream_options: {} }, 'stream_options', /stream: true/],
    [{ tools: 'x' }, 'tools', /list/],
    [{ tools: [{ type: 'function', name: 'a b' }] }, 'tools[0].name', /letters/],
    [{ tools: [tool, tool] }, 'tools[1].name', /twice/],
    [{ tool_choice: 'required' }, 'tool_choice', /needs tools/],
    [{ text: { format: { type: 'x' } } }, 'text.format.type', /json_schema/],
    [{ text: { format: { type: 'json_schema', name: 'n', schema: 5 } } }, 'text.format.schema', /object/],
    [{ text: { format: { type: 'json_schema', schema } } }, 'text.format.name', /letters/],
    [inItem({ type: 5 }), 'input[1].type', /item_reference/],
    [inItem({ role: 'tool', content: 'x' }), 'input[1].role', /assistant/],
    [inItem({ role: 'user', content: [] }), 'input[1].content', /string or a list/],
    [inItem({ ...call, arguments: {} }), 'input[1].arguments', /must be a string/],
    [inItem({ ...customCall, input: 5 }), 'input[1].input', /must be a string/],
    [inItem({ ...call, call_id: '' }), 'input[1].call_id', /non-empty/],
    [inItem({ ...output, output: 5 }), 'input[1].output', /string/],
    [inPart({ type: 'input_image', file_id: 'f' }), 'input[1].content[1].file_id', /image_url/],
    [inPart({ type: 'input_image', image_url: 'x' }), 'input[1].content[1].image_url', /data: URL/],
    [inPart({ type: 'input_file', file_url: 'f' }), 'input[1].content[1].file_url', /file_data/],
    [inPart({ type: 'input_file' }), 'input[1].content[1].file_data', /base64/],
    [inPart({ type: 'input_audio' }), 'input[1].content[1].input_audio.data', /base64/],
    [inPart({ type: 'refusal' }), 'input[1].content[1].refusal', /string/],
    [inPart({ type: 'x' }), 'input[1].content[1].type', /input_text/],
  ])('%j', (more, param, words) => {
    const outcome = translated(responsesDialect, { ...base, ...(more as object) })
    expect(outcome).toEqual({ param, message: expect.stringMatching(words) })
    expect('message' in outcome && outcome.message.startsWith(`${param} `)).toBe(true)
  })

  // Goal: no body with one wrong place reaches an upstream unchecked, or is refused under names that its sender does
  // not know.
  test('by any value in any place', () => {
    const full = {
      ...base,
      input: [
        { role: 'user', content: [{ type: 'input_text', text: 'a' }, image, file, audio] },
        { ...said, content: [text('a'), { type: 'refusal', refusal: 'no' }] },
        call,
        output,
        { ...call, call_id: 'd', namespace: 'n' },
        { type: 'shell_call', call_id: 'e', action: { commands: ['ls'] } },
        { type: 'shell_call_output', call_id: 'e', output: [{ stdout: 'a', stderr: '' }] },
        { type: 'tool_search_call', call_id: 's', execution: 'client', arguments: { query: 'q' } },
        { type: 'tool_search_output', call_id: 's', execution: 'client', tools: [{ ...tool, name: 'g' }] },
        { type: 'agent_message', author: 'a', recipient: 'b', content: [{ type: 'input_text', text: 'x' }] },
      ],
      instructions: 'i',
      tools: [tool, { type: 'namespace', name: 'n', description: 'd', tools: [tool, custom] }, { type: 'shell' }],
      tool_choice: { type: 'function', name: 'f' },
      text: { format: { type: 'json_schema', name: 'n', schema, strict: true }, verbosity: 'low' },
      reasoning: { effort: 'low', summary: 'auto' },
      include: ['message.output_text.logprobs'],
      metadata: { a: 'b' },
      stream: true,
      stream_options: { include_obfuscation: true },
    }
    checkNearlyRight(
      responsesDialect,
      [full, { ...base, max_output_tokens: 5, temperature: 1, top_p: 1 }],
      [...['messages', 'response_format', 'max_tokens', 'reasoning_effort', 'logprobs']],
    )
  })
})
