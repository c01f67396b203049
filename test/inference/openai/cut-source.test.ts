// Long values that are cut out of a source: the upstream's request is the same with them as without.

import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { utf8 } from '../../../src/base/bytes.ts'
import { ENGINES } from '../../../src/config/upstream.ts'
import { type CutSource, CutValues, cutSource } from '../../../src/inference/openai/cut-source.ts'
import { cutLongTexts } from '../../../src/inference/openai/long-texts.ts'
import { type ParsedRequest, parseRequest } from '../../../src/inference/openai/request.ts'
import { isEverSent } from '../../../src/inference/openai/request-fields.ts'
import { upstreamBody } from '../../../src/inference/openai/upstream-body.ts'

const mark = '0123456789abcdef0123456789abcdef'
const long = 'ö'.repeat(1_500)
const isSent = (name: string) => isEverSent(name, 'chat')
const cut = ({ source }: ParsedRequest): CutSource => cutSource(source, { mark, longTexts: null, isSent })
const salt = { cacheSalt: () => 'salt' }

const toolOf = (name: string, description: string) => ({ type: 'function', function: { name, description } })
const field = fc.oneof(
  fc.constantFrom<Record<string, unknown>>(
    { tools: [toolOf('a', 'x'), toolOf('b', long)], tool_choice: { type: 'function', function: { name: 'b' } } },
    { tools: [toolOf('a', long)], tool_choice: 'none' },
    { tools: [toolOf('a', long), toolOf('b', long)] },
    { stream: true, stream_options: { include_usage: true, [long]: 1 } },
    { stream: true, stream_options: { include_usage: true } },
    { seed: 5, metadata: { a: long } },
    { model: 'm'.repeat(2_000) },
    { user: 'u', unknown: long, [`n${long}`]: 1 },
    { response_format: { type: 'json_schema', json_schema: { name: 's', schema: { description: long } } } },
    { top_k: 5, chat_template_kwargs: { a: true } },
  ),
  fc.dictionary(fc.string({ maxLength: 5 }), fc.jsonValue(), { maxKeys: 3 }),
)
const body = fc.tuple(fc.constantFrom('short', long), fc.array(field, { maxLength: 3 })).map(([content, fields]) => ({
  model: 'm',
  messages: [{ role: 'user', content }],
  ...Object.assign({}, ...fields),
}))

// Goal: for any request and engine, an upstream gets the same JSON, whether long values were cut out or not.
test('any request', () => {
  const check = fc.property(body, fc.constantFrom(...ENGINES), (given, engine) => {
    let parsed: ParsedRequest
    try {
      parsed = parseRequest('chat', utf8(JSON.stringify(given)))
    } catch {
      return
    }
    const whole = upstreamBody(parsed, { engine, ...salt })
    const short = cut(parsed)
    const { text, ignored } = upstreamBody({ ...parsed, source: short.source }, { engine, ...salt })
    expect(text.length).toBeLessThan(6_000)
    const pieces = new CutValues(short).putBack(text)
    expect(JSON.parse(Buffer.concat(pieces).toString())).toEqual(JSON.parse(whole.text))
    expect(ignored).toEqual(whole.ignored.map(name => name.slice(0, 256)))
  })
  fc.assert(check, { numRuns: 400 })
})

// Goal: a value goes up byte by byte as the client wrote it, with the pictures that were cut out of it before.
test('bytes', () => {
  const picture = 'QUJD'.repeat(4_096)
  const messages = `[ {"role":"user", "content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,${picture}"}}]} ]`
  const text = `{"model":"m","messages": ${messages},"seed":1234567890123456789}`
  const longTexts = cutLongTexts(utf8(text), mark)
  const { source } = parseRequest('chat', longTexts.bytes)
  const short = cutSource(source, { mark, longTexts, isSent })
  expect(short.source.text.length).toBeLessThan(200)
  expect(Buffer.concat(short.values).toString()).toBe(` ${messages}`)
  expect(Buffer.concat(new CutValues(short).putBack(short.source.text)).toString()).toBe(
    `{"model":"m","messages": ${messages},"seed":1234567890123456789}`,
  )
})

// Goal: a picture in a field that no upstream gets refuses the request.
test('a picture without effect', () => {
  const text = `{"model":"m","messages":[{"role":"user","content":"x"}],"unknown":{"data":"${'QUJD'.repeat(4_096)}"}}`
  const longTexts = cutLongTexts(utf8(text), mark)
  const { source } = parseRequest('chat', longTexts.bytes)
  expect(() => cutSource(source, { mark, longTexts, isSent })).toThrow('stands in a field that has no effect here')
})

// Goal: however many members a body has that no upstream gets, what is left of them is short.
test('members without effect', () => {
  const more = Object.fromEntries(Array.from({ length: 5_000 }, (_, at) => [`n${at}`, 'x'.repeat(500)]))
  const parsed = parseRequest(
    'chat',
    utf8(JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'x' }], ...more })),
  )
  const short = cut(parsed)
  expect(short.source.text.length).toBeLessThan(2_000)
  expect(Object.keys(short.source.body)).toHaveLength(66)
})

// Goal: white space is no part of a value, and is not kept.
test('white space', () => {
  const text = `{"model":"m",${' '.repeat(50_000)}"messages":${' '.repeat(50_000)}[{"role":"user","content":"x"}],"seed":1}`
  const short = cut(parseRequest('chat', utf8(text)))
  expect(short.source.text.length).toBeLessThan(100)
})

// Goal: values that were dropped are freed, though the object is still there.
test('drop', () => {
  const short = cut(
    parseRequest('chat', utf8(JSON.stringify({ model: 'm', messages: [{ role: 'user', content: long }] }))),
  )
  const values = new CutValues(short)
  values.drop()
  expect(Buffer.concat(values.putBack(short.source.text)).length).toBeLessThan(100)
})
