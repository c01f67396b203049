// The body of the upstream's request: the client's own text where possible; elsewhere every digit of its numbers stays.

import { describe, expect, test } from 'bun:test'
import fc from 'fast-check'
import { utf8 } from '../../../src/base/bytes.ts'
import { parseRequest } from '../../../src/inference/openai/request.ts'
import { upstreamBody } from '../../../src/inference/openai/upstream-body.ts'
import { compileSchema } from '../../../src/inference/schema-check/check.ts'

const messages = '"messages":[{"role":"user","content":"Hi"}]'
const toolF = '{"type":"function","function":{"name":"f"}}'
const tools = `"tools":[${toolF},{"type":"function","function":{"name":"h"}}]`

function forwarded(text: string, operation: 'chat' | 'text_completion' = 'chat'): string {
  return upstreamBody(parseRequest(operation, utf8(text)), { engine: 'openai', cacheSalt: () => 'salt' }).text
}

describe('text', () => {
  // Goal: a request that needs no change is forwarded as it was written: spacing, order, escapes and numbers.
  test.each([
    `{"model":"m",${messages}}`,
    ` {\n\t"seed" : 9007199254740993 , "model":"m",${messages} }\r\n`,
    `{"model":"\\u006d",${messages},"logit_bias":{"2":1.0,"1":-0,"7":1E2,"8":0.10000000000000000001}}`,
    `{"model":"m",${messages},"seed":-9223372036854775808,"stream":false}`,
    `{"model":"m",${messages},"stream":true,"stream_options":{ "include_usage" : true }}`,
    `{"model":"m",${messages},${tools},"tool_choice":"required"}`,
    `{"model":"m",${messages},${tools}}`,
  ])('%s', text => {
    expect(forwarded(text)).toBe(text)
    expect(forwarded(`\uFEFF${text}`)).toBe(text)
  })

  // Goal: usage is asked for in every stream, once; the tools are those that tool_choice allows.
  test.each([
    [
      ` {"model":"m",${messages},"stream":true,"seed":9007199254740993}`,
      `{"stream_options":{"include_usage":true},"model":"m",${messages},"stream":true,"seed":9007199254740993}`,
    ],
    [
      `{"stream":true,"stream\\u005foptions":{"include_usage":false,"x":9007199254740993},"model":"m",${messages}}`,
      `{"stream":true,"model":"m",${messages},"stream_options":{"include_usage":true}}`,
    ],
    [
      `{"stream":true,"stream_options":null,${tools},"tool_choice":"none","parallel_tool_calls":true,"model":"m",${messages}}`,
      `{"stream":true,"model":"m",${messages},"stream_options":{"include_usage":true}}`,
    ],
    [
      `{"stream":true,${tools},"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":true,"model":"m",${messages}}`,
      `{"stream":true,"parallel_tool_calls":true,"model":"m",${messages},"stream_options":{"include_usage":true},"tools":[${toolF}],"tool_choice":"required"}`,
    ],
    [
      `{"stream":true,"stream_options":{ },"model":"m",${messages}}`,
      `{"stream":true,"model":"m",${messages},"stream_options":{"include_usage":true}}`,
    ],
    [
      `{"stream_options":null,"model":"m",${messages},"stream":true}`,
      `{"model":"m",${messages},"stream":true,"stream_options":{"include_usage":true}}`,
    ],
  ])('%s', (text, sent) => {
    expect(forwarded(text)).toBe(sent)
  })
})

/** Values that doubles lose, in places where requests have numbers. */
const LONG = [
  '"seed":9223372036854775807',
  '"seed":-9223372036854775808',
  '"seed":12345678901234567e2',
  '"seed":-1E-400',
  '"seed":9007199254740993.5',
  '"logit_bias":{"1":0.10000000000000000001,"2":-1E-400}',
  '"temperature":0.100000000000000000000000001',
]

describe('numbers', () => {
  // Goal: bodies that are changed keep every number as it was written.
  test.each(LONG)('%s', field => {
    const head = `"model":"m",${messages},${field}`
    const named = '"tool_choice":{"type":"function","function":{"name":"g"}}'
    const both = `${head},"tools":[{"type":"function","function":{"name":"g","parameters":{${field}}}}]`
    expect(forwarded(`{${head},"parallel_tool_calls":false,${tools},"tool_choice":"none"}`)).toBe(`{${head}}`)
    expect(forwarded(`{${head},"tools":null}`)).toBe(`{${head}}`)
    expect(forwarded(`{${both},${named}}`)).toBe(`{${both},"tool_choice":"required"}`)
    expect(forwarded(`{${head},"stream":true,"stream_options":{"include_obfuscation":false}}`)).toBe(
      `{${head},"stream":true,"stream_options":{"include_usage":true}}`,
    )
    expect(forwarded(`{"model":"m","prompt":"x",${field},"tools":[]}`, 'text_completion')).toBe(
      `{"model":"m","prompt":"x",${field}}`,
    )
  })

  // Goal: whatever JSON a field holds, taking out the tools changes nothing else of the body.
  test('any value', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 4 }), fc.string(), fc.bigInt(), (value, name, whole) => {
        const kept = `"model":"m",${messages},"response_format" : {"type":"text","x":${JSON.stringify(value, null, '\t')},"y":[${whole}]}`
        const unknown = `${JSON.stringify(`x${name}`)}:${JSON.stringify(value)}`
        const sent = forwarded(`{"tools" :[ ], ${kept},"tool_\\u0063hoice":"none",${unknown}}`)
        expect(sent).toBe(`{ ${kept}}`)
        const tool = { type: 'function', function: { name: 'g', description: name, parameters: { x: value } } }
        const choice = '"tool_choice":{"type":"function","function":{"name":"g"}}'
        const named = forwarded(`{${kept},"tools":[${toolF},${JSON.stringify(tool)}],${choice}}`)
        expect(named).toBe(`{${kept},"tools":[${JSON.stringify(tool)}],"tool_choice":"required"}`)
      }),
      { numRuns: 300 },
    )
  })

  // Goal: the checks of numbers are the same when the body is changed.
  test.each([
    ['chat', `"n":9007199254740993,${messages}`, 'n must be'],
    ['chat', `"n":1e400,${messages}`, 'n must be'],
    ['chat', `"n":1.0000000000000000000000001,${messages}`, 1],
    ['chat', `"n":2e0,${messages}`, 2],
    ['chat', `"stream_options":9007199254740993,"stream":true,${messages}`, 'stream_options must be an object'],
    ['chat', `"response_format":9007199254740993,${messages}`, 'response_format.type'],
    ['chat', '"messages":[9007199254740993]', 'must be an object'],
    ['chat', '"messages":9007199254740993', 'messages must be a list'],
    ['text_completion', '"prompt":[1,9007199254740993]', 'prompt must hold'],
    ['text_completion', '"prompt":[[1,2],[9007199254740991]]', 2],
    ['text_completion', '"prompt":9007199254740993', 'prompt must be'],
  ] as const)('%s %s', (operation, fields, expected) => {
    const parse = () => parseRequest(operation, utf8(`{"model":"m",${fields},"tools":[],"x":9007199254740993}`))
    if (typeof expected === 'number') expect(parse().request.choiceCount).toBe(expected)
    else expect(parse).toThrow(expected)
  })

  // Goal: the schema that completions are checked against is the same whether or not the body is changed.
  test('schemas', () => {
    const schema = '{"type":"integer","minimum":9007199254740993,"maximum":9223372036854775807}'
    const format = `"response_format":{"type":"json_schema","json_schema":{"name":"s","strict":true,"schema":${schema}}}`
    const body = `{"model":"m",${messages},"tools":[],${format}}`
    expect(forwarded(body)).toContain(schema)
    const { request } = parseRequest('chat', utf8(body))
    if (request.format.kind !== 'json_schema') throw new Error('not the schema')
    expect(Object.values(request.format.schema).map(value => typeof value)).toEqual(['string', 'number', 'number'])
    const check = compileSchema(JSON.stringify(request.format.schema))
    expect(['5', '9007199254740994', '1e19'].map(check)).toEqual(['violated', 'valid', 'violated'])
  })
})
