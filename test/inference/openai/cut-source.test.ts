// Long values that are cut out of a source: the upstream's request is the same with them as without.

import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { utf8 } from '../../../src/base/bytes.ts'
import { ENGINES } from '../../../src/config/upstream/kinds.ts'
import { type CutSource, CutValues, cutSource } from '../../../src/inference/openai/cut-source.ts'
import { cutLongTexts } from '../../../src/inference/openai/long-texts.ts'
import { type ParsedRequest, parseRequest } from '../../../src/inference/openai/request.ts'
import { isEverSent } from '../../../src/inference/openai/request-fields.ts'
import { upstreamBody } from '../../../src/inference/openai/upstream-body.ts'

const mark = '0123456789abcdef0123456789abcdef'
const long = 'ö'.repeat(1_500)
const isSent = (name: string) => isEverSent(name, 'chat')
const cut = ({ source }: ParsedRequest): CutSource =>
  cutSource(source, { mark, longTexts: null, isSent, hasReasoning: false })
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

const assistant = <More extends object>(more: More) => ({ role: 'assistant', ...more })
const textMember = fc.constantFrom('', 'x', 'y'.repeat(300), long)
const message = fc.oneof(
  textMember.map(content => ({ role: 'user', content })),
  fc
    .record(
      {
        content: fc.oneof(textMember, fc.constant(null)),
        reasoning: textMember,
        reasoning_content: fc.oneof(textMember, fc.constant({ a: long }), fc.constant({ a: 1 })),
        tool_calls: fc.constantFrom(
          [],
          [{ id: 'c', type: 'function', function: { name: 'f', arguments: JSON.stringify({ a: long }) } }],
        ),
      },
      { requiredKeys: ['content'] },
    )
    .map(assistant),
)
const parsedOf = (text: string) => parseRequest('chat', utf8(text))
const cutParsed = ({ source, request }: ParsedRequest): CutSource =>
  cutSource(source, { mark, longTexts: null, isSent, hasReasoning: request.reasoning !== null })
function sentOf(parsed: ParsedRequest, short: CutSource, engine: (typeof ENGINES)[number]) {
  const { text, changes } = upstreamBody({ ...parsed, source: short.source }, { engine, ...salt })
  return { body: JSON.parse(Buffer.concat(new CutValues(short).putBack(text)).toString()), changes }
}

// Goal: reasoning reaches each engine in its field, whether the values around it were cut out or not.
test('any reasoning', () => {
  const check = fc.property(
    fc.array(message, { minLength: 1, maxLength: 6 }),
    fc.constantFrom(...ENGINES),
    (given, engine) => {
      const parsed = parsedOf(JSON.stringify({ model: 'm', messages: [...given, { role: 'user', content: long }] }))
      const translated = {
        ...parsed,
        request: { ...parsed.request, reasoning: parsed.request.reasoning && 'translation' },
      } as const
      for (const each of [parsed, translated]) {
        const whole = upstreamBody(each, { engine, ...salt })
        expect(sentOf(each, cutParsed(each), engine)).toEqual({ body: JSON.parse(whole.text), changes: whole.changes })
      }
    },
  )
  fc.assert(check, { numRuns: 300 })
})

// Goal: however many messages have reasoning, little is left of them, and the newest keep theirs.
test('many messages with reasoning', () => {
  const turn = (at: number, userChars: number, reasoning: string) => [
    { role: 'user', content: 'u'.repeat(userChars) },
    assistant({ content: `${at}`, reasoning }),
  ]
  const textOf = (...[userChars, reasoning]: [number, string]) => {
    const messages = Array.from({ length: 5_000 }, (_, at) => turn(at, userChars, reasoning)).flat()
    return { messages, parsed: parsedOf(JSON.stringify({ model: 'm', messages })) }
  }
  expect(cutParsed(textOf(650, 'r').parsed).source.text.length).toBeLessThan(1_000_000)
  const { messages, parsed } = textOf(370, 'r'.repeat(350))
  const short = cutParsed(parsed)
  expect(short.source.text.length).toBeLessThan(1_000_000)
  expect(short.source.changes).toEqual(['messages.reasoning'])
  const { body } = sentOf(parsed, short, 'sglang')
  const sent = body.messages as { content: string; reasoning_content?: string; reasoning?: string }[]
  expect(sent.map(({ content }) => content)).toEqual(messages.map(({ content }) => content))
  expect(sent[1]).toEqual(assistant({ content: '0' }))
  expect(sent.at(-1)).toEqual(assistant({ content: '4999', reasoning_content: 'r'.repeat(350) }))
})

// Goal: one message with many members leaves little, too.
test('a message of many members', () => {
  const more = Object.fromEntries(Array.from({ length: 30_000 }, (_, at) => [`n${at}`, 'x'.repeat(60)]))
  const messages = [assistant({ content: 'a', reasoning: 'r', ...more }), { role: 'user', content: 'x' }]
  const short = cutParsed(parsedOf(JSON.stringify({ model: 'm', messages })))
  expect(short.source.text.length).toBeLessThan(1_000)
})

// Goal: names with escapes name the same fields, and only texts are reasoning.
test.each([
  String.raw`{"role":"assistant","content":"a","\u0072easoning":"why"}`,
  String.raw`{"role":"assistant","content":"a","reasonin\u0067_content":"why","reasoning_details":[]}`,
  '{"role":"assistant","content":"a","reasoning_content":{"a":1},"reasoning":"why"}',
])('reasoning in %s', message => {
  const parsed = parsedOf(`{"model":"m","messages":[${message}]}`)
  const { text } = upstreamBody(parsed, { engine: 'sglang', ...salt })
  expect(JSON.parse(text).messages).toEqual([assistant({ content: 'a', reasoning_content: 'why' })])
})

// Goal: thoughts in many parts take time in proportion to the body.
test('many parts', () => {
  const content = [...Array<object>(20_000).fill({ type: 'thinking' }), ...Array<number>(100_000).fill(1)]
  const text = JSON.stringify({ model: 'm', messages: [assistant({ content })] })
  const started = process.cpuUsage()
  expect(() => parsedOf(text)).toThrow('messages[0].content[0].type')
  const { user, system } = process.cpuUsage(started)
  expect((user + system) / 1000).toBeLessThan(800)
})

// Goal: a value goes up byte by byte as the client wrote it, with the pictures that were cut out of it before.
test('bytes', () => {
  const picture = 'QUJD'.repeat(4_096)
  const messages = `[ {"role":"user", "content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,${picture}"}}]} ]`
  const text = `{"model":"m","messages": ${messages},"seed":1234567890123456789}`
  const longTexts = cutLongTexts(utf8(text), mark)
  const { source } = parseRequest('chat', longTexts.bytes)
  const short = cutSource(source, { mark, longTexts, isSent, hasReasoning: false })
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
  expect(() => cutSource(source, { mark, longTexts, isSent, hasReasoning: false })).toThrow(
    'stands in a field that has no effect here',
  )
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
