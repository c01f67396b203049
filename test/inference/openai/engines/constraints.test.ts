// Constraints on an answer, in the form of every engine. The expected bodies are written out.

import { expect, test } from 'bun:test'
import { utf8 } from '../../../../src/base/bytes.ts'
import { Fault } from '../../../../src/base/fault.ts'
import type { Engine as AnyEngine } from '../../../../src/config/upstream/kinds.ts'
import { parseChat } from '../../../../src/inference/dialects/chat.ts'
import { DIALECTS } from '../../../../src/inference/dialects/dialects.ts'
import { parseDialect } from '../../../../src/inference/dialects/request.ts'
import { constraintProblem } from '../../../../src/inference/openai/engines/constraints.ts'
import { parseRequest, readSource } from '../../../../src/inference/openai/request.ts'
import { upstreamBody } from '../../../../src/inference/openai/upstream-body.ts'
import type { CompletionOperation } from '../../../../src/inference/types.ts'

type Fields = Record<string, unknown>
type Api = CompletionOperation | 'responses' | 'messages'

const PROMPTS: Record<Api, Fields> = {
  chat: { messages: [{ role: 'user', content: 'Hi' }] },
  text_completion: { prompt: 'Hi' },
  responses: { input: 'Hi' },
  messages: { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 9 },
}

function parsed(api: Api, fields: Fields) {
  const bytes = utf8(JSON.stringify({ model: 'm', ...PROMPTS[api], ...fields }))
  if (api === 'text_completion') return parseRequest(api, bytes)
  if (api === 'chat') return parseChat(readSource(bytes))
  return parseDialect(DIALECTS[api], readSource(bytes))
}

/** Returns the fields that the engine gets beyond model, prompt and cache; or the reason why it cannot. */
/** Engines that have chats. */
type Engine = Exclude<AnyEngine, 'text-embeddings-inference'>

function sent(api: Api, engine: Engine, fields: Fields): Fields | string {
  const request = parsed(api, fields)
  const { constraint } = request.request
  const problem = constraint === null ? null : constraintProblem(constraint, engine)
  if (problem !== null) return `${constraint?.field} ${problem}`
  const { text, ignored } = upstreamBody(request, { engine, cacheSalt: () => 'salt' })
  expect(ignored).toEqual([])
  const { model, messages, prompt, cache_salt, cache_prompt, max_tokens, ...rest } = JSON.parse(text)
  return rest
}

function faultOf(api: Api, fields: Fields): Fault | null {
  try {
    parsed(api, fields)
    return null
  } catch (error) {
    if (error instanceof Fault) return error
    throw error
  }
}

const schema = { type: 'object', properties: { a: { type: 'string' } }, required: ['a'] }
const json = JSON.stringify(schema)
const strict = (name: string) => ({
  response_format: { type: 'json_schema', json_schema: { name, strict: true, schema } },
})
const ANY_OBJECT = {
  response_format: { type: 'json_schema', json_schema: { name: 'output', strict: true, schema: { type: 'object' } } },
}

// Goal: every engine gets a schema of a chat, in whatever field a client has it, and the gateway checks the answer.
test.each<[Api, Fields, Fields]>([
  ['chat', strict('s'), strict('s')],
  ['chat', { guided_json: schema }, strict('output')],
  ['chat', { guided_json: json }, strict('output')],
  ['chat', { json_schema: schema }, strict('output')],
  ['chat', { json_schema: json }, strict('output')],
  ['chat', { structured_outputs: { json: schema } }, strict('output')],
  ['chat', { structured_outputs: { json, regex: null } }, strict('output')],
  ['chat', { structured_outputs: { json_object: true } }, ANY_OBJECT],
  ['chat', { response_format: { type: 'json_object', schema } }, strict('output')],
  ['chat', { guided_json: schema, response_format: { type: 'text' } }, strict('output')],
  ['responses', { text: { format: { type: 'json_schema', name: 's', strict: true, schema } } }, strict('s')],
  ['messages', { output_format: { type: 'json_schema', schema } }, strict('output')],
  ['messages', { output_config: { format: { type: 'json_schema', schema } } }, strict('output')],
])('schema in %s %j', (api, fields, expected) => {
  for (const engine of ['openai', 'vllm', 'sglang', 'llama-server'] as const) {
    expect([engine, sent(api, engine, fields)]).toEqual([engine, expected])
  }
  const { format } = parsed(api, fields).request
  expect(format.kind).toBe('json_schema')
})

// Goal: formats that are not a strict schema reach every engine as they are.
test.each<Fields>([
  { response_format: { type: 'text' } },
  { response_format: { type: 'json_object' } },
  { response_format: { type: 'json_schema', json_schema: { name: 's', schema } } },
])('format %j', fields => {
  for (const engine of ['openai', 'vllm', 'sglang', 'llama-server'] as const) {
    expect([engine, sent('chat', engine, fields)]).toEqual([engine, fields])
  }
})

const REGEX = String.raw`\d{3}-\d{4}`
const CHOICES = ['yes', 'no "really"\n', 'a+b']
const WRITTEN = {
  vllmRegex: { guided_regex: REGEX, structured_outputs: { regex: REGEX } },
  vllmChoice: { guided_choice: CHOICES, structured_outputs: { choice: CHOICES } },
  sglangChoice: { regex: '(yes|no "really"\n|a\\+b)' },
  llamaChoice: { grammar: String.raw`root ::= "yes" | "no \"really\"\x0a" | "a+b"` },
}
const isOpenAi = 'is not supported for this model; send a JSON schema in response_format of a chat.'
const isLlama =
  'is not supported for this model: llama-server takes no regular expressions; send a JSON schema or choices.'

type Row = Record<Engine, Fields | string>
const regexRow = (field: string): Row => ({
  openai: `${field} ${isOpenAi}`,
  vllm: WRITTEN.vllmRegex,
  sglang: { regex: REGEX },
  'llama-server': `${field} ${isLlama}`,
})
const choiceRow = (field: string): Row => ({
  openai: `${field} ${isOpenAi}`,
  vllm: WRITTEN.vllmChoice,
  sglang: WRITTEN.sglangChoice,
  'llama-server': WRITTEN.llamaChoice,
})
const schemaRow = (field: string): Row => ({
  openai: `${field} ${isOpenAi}`,
  vllm: strict('output'),
  sglang: strict('output'),
  'llama-server': { json_schema: schema },
})

// Goal: constraints that OpenAI has no field for reach each engine in its own form, or are refused by their name.
test.each<[Fields, Row]>([
  [{ guided_regex: REGEX }, regexRow('guided_regex')],
  [{ regex: REGEX }, regexRow('regex')],
  [{ structured_outputs: { regex: REGEX } }, regexRow('structured_outputs.regex')],
  [{ guided_choice: CHOICES }, choiceRow('guided_choice')],
  [{ structured_outputs: { choice: CHOICES, regex: null } }, choiceRow('structured_outputs.choice')],
])('%j', (fields, row) => {
  for (const engine of ['openai', 'vllm', 'sglang', 'llama-server'] as const) {
    for (const api of ['chat', 'text_completion'] as const) {
      expect([engine, api, sent(api, engine, fields)]).toEqual([engine, api, row[engine]])
    }
  }
})

// Goal: text completions have schemas too, in the fields of their engines.
test.each<[Fields, Row]>([
  [{ guided_json: schema }, schemaRow('guided_json')],
  [{ json_schema: json }, schemaRow('json_schema')],
  [{ structured_outputs: { json: schema } }, schemaRow('structured_outputs.json')],
  [strict('s'), schemaRow('response_format.json_schema.schema')],
])('text completion %j', (fields, row) => {
  for (const engine of ['openai', 'vllm', 'sglang', 'llama-server'] as const) {
    expect([engine, sent('text_completion', engine, fields)]).toEqual([engine, row[engine]])
  }
})

// Goal: a body without a constraint loses nothing of its text, and one with it keeps every other member's.
test('text around a constraint', () => {
  const body = `{"model":"m","prompt":"x" , "seed":9007199254740993,"guided_json":{"type":"object"},"guided_regex":null}`
  const request = parseRequest('text_completion', utf8(body))
  const { text } = upstreamBody(request, { engine: 'llama-server', cacheSalt: () => 'salt' })
  expect(text).toBe(
    `{"model":"m","prompt":"x" , "seed":9007199254740993,"cache_prompt":false,"json_schema":{"type":"object"}}`,
  )
})

// Goal: an option of a constraint that only shapes white space is named, not refused.
test('options', () => {
  const { request } = parsed('chat', { structured_outputs: { json: schema, whitespace_pattern: ' ?' } })
  expect(request.ignored).toEqual(['structured_outputs.whitespace_pattern'])
})

// Goal: what no engine gets is refused with the client's own field; two constraints have no meaning.
test.each<[Api, Fields, string, RegExp]>([
  ['chat', { guided_grammar: 'root ::= "a"' }, 'guided_grammar', /grammar can stop an engine/],
  ['chat', { grammar: 'root ::= "a"' }, 'grammar', /grammar can stop an engine/],
  ['text_completion', { ebnf: 'root ::= "a"' }, 'ebnf', /grammar can stop an engine/],
  ['chat', { structured_outputs: { grammar: 'x' } }, 'structured_outputs.grammar', /grammar can stop/],
  ['chat', { structural_tag: '{}' }, 'structural_tag', /grammar can stop/],
  ['chat', { structured_outputs: 'x' }, 'structured_outputs', /must be an object/],
  ['chat', { guided_json: 5 }, 'guided_json', /must be a JSON Schema object/],
  ['chat', { guided_json: '{' }, 'guided_json', /must be a JSON Schema object/],
  ['chat', { guided_json: '{"a":1,"a":2}' }, 'guided_json', /must be a JSON Schema object/],
  ['chat', { guided_json: { minItems: 1e9 } }, 'guided_json', /has a minItems/],
  ['chat', { guided_regex: 'a'.repeat(513) }, 'guided_regex', /at most 512/],
  ['chat', { regex: '' }, 'regex', /must be a regular expression/],
  ['chat', { guided_regex: '(' }, 'guided_regex', /must be a valid regular expression/],
  ['chat', { regex: '(((a{9999}){9999}){9999}){9999}' }, 'regex', /at most 1000 times in each/],
  ['chat', { structured_outputs: { regex: 'a{1001,}' } }, 'structured_outputs.regex', /at most 1000 times/],
  ['chat', { regex: '((a{100}){100}b){2}' }, 'regex', /10000 times in all/],
  ['chat', { regex: '(?:[}a]|x{1000}){11}' }, 'regex', /10000 times in all/],
  ['chat', { guided_json: { pattern: '((a{100}){100}b){2}' } }, 'guided_json', /has a pattern that .* 10000 times/],
  ['text_completion', { guided_json: { items: { pattern: '[' } } }, 'guided_json', /valid regular expression/],
  ['chat', { guided_choice: [] }, 'guided_choice', /1 to 256 non-empty strings/],
  ['chat', { guided_choice: ['a', ''] }, 'guided_choice', /1 to 256 non-empty strings/],
  ['chat', { guided_choice: Array(257).fill('a') }, 'guided_choice', /1 to 256 non-empty strings/],
  ['chat', { guided_choice: ['a'.repeat(8_193)] }, 'guided_choice', /8192 characters/],
  ['chat', { guided_json: schema, guided_regex: 'a' }, 'guided_regex', /guided_json are both/],
  ['chat', { structured_outputs: { json: schema, choice: ['a'] } }, 'structured_outputs.choice', /are both/],
  ['chat', { guided_json: schema, ...strict('s') }, 'response_format', /guided_json are both/],
  ['responses', { guided_json: schema }, 'guided_json', /field of chat completions/],
  ['responses', { structured_outputs: { json: schema } }, 'structured_outputs', /field of chat completions/],
  ['messages', { guided_regex: 'a' }, 'guided_regex', /field of chat completions/],
  ['messages', { grammar: 'a' }, 'grammar', /field of chat completions/],
])('refusal %#', (api, fields, param, words) => {
  const fault = faultOf(api, fields)
  expect(fault?.code).toBe('invalid_request')
  expect(fault?.param).toBe(param)
  expect(fault?.message).toMatch(words)
})

// Goal: common patterns stay within the bounds, whichever flag they need.
test.each([String.raw`^\u{10000}\{9999}[{9999}]{0,64}$`, '(a{10}){1000}', String.raw`(?<year>\d{4})-\-{1,2}`])(
  'regex %s',
  regex => {
    expect(faultOf('chat', { regex })).toBeNull()
  },
)

// Goal: a body of the Responses API that is sent to chats keeps the constraint of chats.
test('constraint beside input', () => {
  const source = readSource(utf8(JSON.stringify({ model: 'm', input: 'Hi', guided_choice: ['a', 'b'] })))
  const { text } = upstreamBody(parseChat(source), { engine: 'sglang', cacheSalt: () => 'salt' })
  expect(JSON.parse(text)).toEqual({
    model: 'm',
    messages: [{ role: 'user', content: 'Hi' }],
    cache_salt: 'salt',
    regex: '(a|b)',
  })
})
