// Changes to a request before an engine gets it, where a client's text is no reason to refuse it.

import { describe, expect, test } from 'bun:test'
import { utf8 } from '../../../src/base/bytes.ts'
import { parseRequest } from '../../../src/inference/openai/request.ts'
import { upstreamBody } from '../../../src/inference/openai/upstream-body.ts'
import { faultOf } from '../../rigs/fault-of.ts'

const hi = { role: 'user', content: 'Hi' }

function sent(fields: Record<string, unknown>) {
  const parsed = parseRequest('chat', utf8(JSON.stringify({ model: 'm', messages: [hi], ...fields })))
  const body = JSON.parse(upstreamBody(parsed, { engine: 'openai', cacheSalt: () => '' }).text)
  return { body, ignored: parsed.request.ignored }
}

const call = (args: string) => ({ id: 'c', type: 'function', function: { name: 'f', arguments: args } })
const tool = (parameters: unknown, name = 'f') => ({ type: 'function', function: { name, parameters } })

describe('replayed answers', () => {
  // Goal: a call that an engine generated without arguments, or not to its end, does not end the session.
  test.each([
    ['{"a":1}', '{"a":1}'],
    ['', '{}'],
    [' \n', '{}'],
    ['{"a":', JSON.stringify({ unparsed_arguments: '{"a":' })],
  ])('arguments %j', (args, expected) => {
    const messages = [hi, { role: 'assistant', content: null, tool_calls: [call(args)] }]
    const { body, ignored } = sent({ messages })
    expect(body.messages[1].tool_calls[0].function.arguments).toBe(expected)
    expect(ignored).toEqual([])
  })

  // Goal: arguments that take long to be read go up unread, for their own sender's engine to judge; those before them
  // are read.
  test('arguments with many values', () => {
    const many = `[${'[],'.repeat(70_000)}`
    const messages = [hi, { role: 'assistant', content: null, tool_calls: ['{', many, '{'].map(call) }]
    const { body } = sent({ messages })
    expect(body.messages[1].tool_calls.map((made: ReturnType<typeof call>) => made.function.arguments)).toEqual([
      JSON.stringify({ unparsed_arguments: '{' }),
      many,
      '{',
    ])
  })

  // Goal: an answer without text or calls comes back as it went out.
  test.each([
    { role: 'assistant', content: null, refusal: null },
    { role: 'assistant', content: null },
    { role: 'assistant', content: null, reasoning_content: 'so', tool_calls: null },
    { role: 'assistant', content: '', tool_calls: [] },
  ])('%j', message => {
    expect(sent({ messages: [hi, message] }).body.messages[1]).toEqual(message)
  })
})

describe('tools', () => {
  // Goal: bounds that an engine could hang over do not reach it; properties of that name, and values, stay.
  test('schemas beyond the bounds', () => {
    const kept = {
      type: 'object',
      properties: { maxLength: { type: 'string', maxLength: 100_000 }, pattern: { const: { maxLength: 1e9 } } },
    }
    const beyond = {
      ...kept,
      properties: { ...kept.properties, a: { maxLength: 524_288, minItems: -1 }, b: { $ref: 'https://example.org/s' } },
      anyOf: [{ pattern: 'a'.repeat(513) }, { maxItems: 1.5 }],
      patternProperties: { maxLength: { minLength: 1e9 }, 'a{2000}': {}, ['b'.repeat(513)]: {}, '(': {} },
    }
    const { body, ignored } = sent({ tools: [tool(kept), tool(beyond, 'g')], seed: 1 })
    expect(body.tools[0].function.parameters).toEqual(kept)
    expect(body.tools[1].function.parameters).toEqual({
      ...kept,
      properties: { ...kept.properties, a: {}, b: {} },
      anyOf: [{}, {}],
      patternProperties: { maxLength: {} },
    })
    expect(ignored.toSorted()).toEqual([
      ...['tools.$ref', 'tools.maxItems', 'tools.maxLength', 'tools.minItems', 'tools.minLength', 'tools.pattern'],
      'tools.patternProperties',
    ])
    expect(body.seed).toBe(1)
    const loose = { type: 'json_schema', json_schema: { name: 'n', schema: { maxLength: 1e9, type: 'string' } } }
    const format = sent({ response_format: loose })
    expect(format.body.response_format.json_schema.schema).toEqual({ type: 'string' })
    expect(format.ignored).toEqual(['response_format.maxLength'])
  })

  // Goal: tools that run elsewhere are left out and named, but not where one of them is chosen.
  test('built-in types', () => {
    const search = { type: 'web_search_preview', user_location: {} }
    const { body, ignored } = sent({ tools: [search, tool({}), { type: 'mcp' }] })
    expect(body.tools).toEqual([tool({})])
    expect(ignored).toEqual(['tools.web_search_preview', 'tools.mcp'])
    expect(sent({ tools: [search] }).body.tools).toBeUndefined()
    for (const tool_choice of ['required', { type: 'web_search_preview' }]) {
      expect(faultOf(() => sent({ tools: [search], tool_choice }))).toMatchObject({ param: 'tool_choice' })
    }
  })

  // Goal: as many and as long as agents have them, and no more.
  test('1,024 of names of 128', () => {
    const many = Array.from({ length: 1025 }, (_, at) => tool({}, `${at}`.padStart(128, 'n')))
    expect(sent({ tools: many.slice(1) }).body.tools).toHaveLength(1024)
    expect(faultOf(() => sent({ tools: many }))).toMatchObject({ param: 'tools' })
    expect(faultOf(() => sent({ tools: [tool({}, 'n'.repeat(129))] }))).toMatchObject({
      param: 'tools[0].function.name',
    })
  })

  // Goal: tools that the client runs go up as functions, in the client's place for them.
  test('that the client runs', () => {
    const { body, ignored } = sent({
      tools: [{ type: 'bash_20250124', name: 'bash' }, tool({}), { type: 'local_shell' }],
      tool_choice: { type: 'function', function: { name: 'bash' } },
    })
    expect(ignored).toEqual([])
    expect(body.tools).toMatchObject([{ type: 'function', function: { name: 'bash' } }])
    expect(sent({ tools: [{ type: 'local_shell' }, { type: 'shell' }] }).body.tools).toMatchObject([
      { type: 'function', function: { name: 'local_shell' } },
      { type: 'function', function: { name: 'shell' } },
    ])
  })

  // Goal: of allowed tools the engine is offered these alone.
  test.each([
    ['auto', 'auto'],
    ['required', 'required'],
  ])('allowed, %s', (mode, choice) => {
    const named = (name: string) => ({ type: 'function', function: { name } })
    const allowed = (name: string) => ({
      type: 'allowed_tools',
      allowed_tools: { mode, tools: [named('g'), named(name)] },
    })
    const tools = ['f', 'g', 'h'].map(name => tool({}, name))
    const { body } = sent({ tools, tool_choice: allowed('h') })
    expect(body.tools).toEqual(tools.slice(1))
    expect(body.tool_choice).toBe(choice)
    expect(faultOf(() => sent({ tools, tool_choice: allowed('x') }))).toMatchObject({
      param: 'tool_choice.allowed_tools.tools[1]',
    })
  })
})

// Goal: what would change the answer, and nothing here does, is refused by its name.
test.each([
  ['web_search_options', {}],
  ['audio', { voice: 'alloy' }],
  ['modalities', ['text', 'audio']],
  ['functions', []],
])('%s', (param, value) => {
  expect(faultOf(() => sent({ [param]: value }))).toMatchObject({ code: 'invalid_request', param })
  expect(sent({ modalities: ['text'] }).ignored).toEqual([])
})
