// Strict schemas of clients: checks, refusals and their messages; patterns have their JavaScript meaning.

import { describe, expect, spyOn, test } from 'bun:test'
import fc from 'fast-check'
import { casesOf } from '../../../scripts/rigs/all.ts'
import { threadCpuMs } from '../../../scripts/rigs/withheld.ts'
import { compileSchema } from '../../../src/inference/schema-check/check.ts'
import { linearPattern } from '../../../src/inference/schema-check/pattern.ts'
import {
  decodeJob,
  decodeReply,
  encodeJob,
  encodeReply,
  type Job,
  type Reply,
  replyBytesMax,
} from '../../../src/inference/schema-check/wire.ts'

const compile = (schema: unknown) => compileSchema(JSON.stringify(schema))
const names = (count: number) => Array.from({ length: count }, (_, at) => `p${at}`)
const each = <T>(count: number, value: (name: string) => T) =>
  Object.fromEntries(names(count).map(name => [name, value(name)]))

describe('compileSchema', () => {
  // Goal: contents are checked by the schema, and each pattern is checked with itself, not with another of the schema.
  test('contents by table', () => {
    const two = { properties: { a: { pattern: '^a$' }, b: { pattern: '^b$' } } }
    const tree = { properties: { next: { $ref: '#' } }, required: ['v'] }
    const rows: [unknown, string, string][] = [
      [{ type: 'object' }, '{}', 'valid'],
      [{ type: 'object' }, '[]', 'violated'],
      [{ type: 'object' }, '{', 'not_json'],
      [{ type: 'object', $schema: 'http://json-schema.org/draft-07/schema#' }, '{}', 'valid'],
      [two, '{"a":"a","b":"b"}', 'valid'],
      [two, '{"a":"a","b":"a"}', 'violated'],
      [two, '{"a":"b","b":"b"}', 'violated'],
      [tree, '{"v":1,"next":{"v":1}}', 'valid'],
      [tree, '{"v":1,"next":{}}', 'violated'],
      [{ patternProperties: { '^x': { type: 'number' } }, additionalProperties: false }, '{"x1":1}', 'valid'],
      [{ patternProperties: { '^x': { type: 'number' } }, additionalProperties: false }, '{"y1":1}', 'violated'],
    ]
    for (const [schema, content, expected] of rows) {
      expect([schema, content, compile(schema)(content)]).toEqual([schema, content, expected])
    }
  })

  // Goal: a refusal names the bound, prints nothing and takes little time.
  test('refusals by table', () => {
    const nested = (depth: number): unknown => (depth === 0 ? {} : { properties: { a: nested(depth - 1) } })
    const leaf = { properties: each(1_000, () => ({ type: 'string' })) }
    const rows: [unknown, string][] = [
      [[], 'is not an object'],
      [{ type: 'nonsense' }, 'is not a JSON Schema'],
      [{ $ref: '#/none' }, 'cannot be compiled'],
      [{ $ref: 'http://127.0.0.1/x' }, 'cannot be compiled'],
      [{ uniqueItems: true }, 'uniqueItems'],
      [{ $dynamicRef: '#a' }, '$dynamicRef'],
      [{ $async: true }, '$async'],
      [{ properties: each(5, () => ({ pattern: '(?=a)b' })) }, 'has the pattern "(?=a)b", which is not supported'],
      [{ pattern: '(a)\\1' }, 'back references'],
      [{ pattern: 'a'.repeat(5_000) }, 'longer than 4096 characters'],
      [{ pattern: '((a{30}){30}){30}' }, 'not supported'],
      [{ properties: each(300, () => ({ pattern: 'a' })) }, 'more than 256 patterns'],
      [{ patternProperties: each(300, () => ({})) }, 'more than 256 patterns'],
      [nested(40), 'deeper than 64 levels'],
      [{ enum: names(30_000) }, 'more than 20000 parts'],
      [{ properties: each(2_001, () => ({ type: 'string' })) }, 'more than 2000 fields in one object'],
      [{ anyOf: names(2_001).map(name => ({ title: name })) }, 'more than 2000 items in one list'],
      [{ anyOf: names(30).map(() => ({ properties: each(900, () => true) })) }, 'more than 20000 parts'],
      [{ $defs: leaf.properties, anyOf: names(100).map(name => ({ $ref: '#', title: name })) }, ''],
      [{ $defs: { leaf }, anyOf: names(30).map(name => ({ $ref: `#/$defs/leaf/${name}/..` })) }, 'counting what each'],
    ]
    using printed = spyOn(console, 'error').mockImplementation(() => {})
    using written = spyOn(process.stderr, 'write').mockImplementation(() => true)
    for (const [schema, words] of rows) {
      if (words === '') expect(typeof compile(schema)).toBe('function')
      else expect(() => compile(schema)).toThrow(words)
    }
    expect([printed.mock.calls, written.mock.calls]).toEqual([[], []])
  })

  // Goal: a small schema that demands 2^40 checks ends as violated after a bounded number of steps.
  test('steps', () => {
    const twice = (at: number) => ({ allOf: [{ $ref: `#/$defs/d${at + 1}` }, { $ref: `#/$defs/d${at + 1}` }] })
    const $defs = Object.fromEntries(Array.from({ length: 41 }, (_, at) => [`d${at}`, at === 40 ? true : twice(at)]))
    expect(compile({ $ref: '#/$defs/d0', $defs })('1')).toBe('violated')
  })

  // Goal: whatever the schema and the content, there is a verdict or a refusal of ours, and nothing is printed.
  test('fuzz', () => {
    using printed = spyOn(console, 'error').mockImplementation(() => {})
    const keyword = fc.constantFrom(
      ...['type', 'properties', 'items', 'prefixItems', 'anyOf', 'allOf', 'oneOf', 'not', 'if', 'then', '$ref', '$id'],
      ...['pattern', 'patternProperties', 'enum', 'const', 'required', 'minLength', 'additionalProperties', '$defs'],
      ...['unevaluatedProperties', 'dependentSchemas', '$anchor', '$comment', '__proto__', 'constructor', 'nullable'],
      ...['discriminator', '$data', 'x-strongroom-step', 'format', 'contains', 'propertyNames', '$vocabulary'],
    )
    const { schema } = fc.letrec(tie => ({
      schema: fc.oneof({ maxDepth: 4 }, fc.boolean(), fc.dictionary(keyword, tie('value'), { maxKeys: 4 })),
      value: fc.oneof(
        { maxDepth: 4 },
        tie('schema'),
        fc.array(tie('schema'), { maxLength: 3 }),
        fc.constantFrom('string', 'object', '#', '#/$defs/a', '^(a|aa)+$', '(?<n>a)', '\\', '[', "';x", '`+x+`'),
        fc.integer(),
        fc.dictionary(fc.constantFrom('a', '__proto__', '"', '\u2028'), tie('schema'), { maxKeys: 3 }),
      ),
    }))
    const property = fc.property(schema, fc.jsonValue(), (text, content) => {
      try {
        expect(compile(text)(JSON.stringify(content))).toMatch(/^(?:valid|violated)$/)
      } catch (error) {
        expect(error).toMatchObject({ constructor: { name: 'SchemaRefusal' } })
      }
    })
    fc.assert(property, { numRuns: 300 })
    expect(printed.mock.calls).toEqual([])
  })
})

describe('linearPattern', () => {
  const pieces = [
    ...['a', 'b', 'é', '𝒳', '.', '^', '$', '\\b', '\\B', '\\d', '\\D', '\\w', '\\W', '\\s', '\\S', '\\n', '\\t', '\\/'],
    ...[
      '[ab]',
      '[^ab]',
      '[a-c\\d]',
      '[\\s\\S]',
      '[^\\s]',
      '[^\\S]',
      '[\\S]',
      '[[:alpha:]',
      '[\\b]',
      '[]',
      '[^]',
      '[\\-a]',
    ],
    ...['\\u0061', '\\u{1d4b3}', '\\ud835\\udcb3', '\\x61', '\\cJ', '\\0', '\\p{L}', '\\P{Lu}', '\\p{Script=Greek}'],
    ...['\\.', '\\[', '\\]', '-', ',', ' ', '(?:a|bb)', '(a)', '(?<n>b)', 'a|b'],
  ]
  const quantifiers = ['', '', '', '*', '+', '?', '*?', '{2}', '{1,}', '{0,3}']
  const chars = [
    'a',
    'b',
    'B',
    '0',
    ' ',
    '\n',
    '\r',
    '\u2028',
    '\u00a0',
    '\ufeff',
    '𝒳',
    'é',
    'α',
    ':',
    '-',
    '\0',
    '\b',
    '/',
  ]

  // Goal: a supported pattern finds what JavaScript's own engine finds.
  test('as in JavaScript', () => {
    const piece = fc.tuple(fc.constantFrom(...pieces), fc.constantFrom(...quantifiers)).map(pair => pair.join(''))
    const pattern = fc.array(piece, { minLength: 1, maxLength: 5 }).map(all => all.join(''))
    const text = fc.array(fc.constantFrom(...chars), { maxLength: 8 }).map(all => all.join(''))
    let checked = 0
    const property = fc.property(pattern, text, (text, input) => {
      let native: RegExp
      try {
        native = new RegExp(text, 'u')
      } catch {
        expect(() => linearPattern(text)).toThrow()
        return
      }
      checked += 1
      expect([text, input, linearPattern(text).test(input)]).toEqual([text, input, native.test(input)])
    })
    fc.assert(property, { numRuns: casesOf(3_000) })
    expect(checked).toBeGreaterThan(300)
  })

  // Goal: what RE2 cannot do, and what it would do otherwise than JavaScript, is refused.
  test.each([
    '(?=a)',
    '(?!a)',
    '(?<=a)',
    '(?<!a)',
    '(a)\\1',
    '(?<n>a)\\k<n>',
    '(?i:a)',
    '\\A',
    '\\Qa\\E',
    '(?P<n>a)',
    'a{2000}',
  ])('%s', pattern => {
    expect(() => linearPattern(pattern)).toThrow()
  })

  // Goal: patterns that take others exponential time take time in proportion to the text.
  test.each([
    `^${'(?:a|aa|aaa)'.repeat(8)}b$`,
    '^(a+)+$',
    '^(?:a|a)*$',
    '(.*){1,30}[bc]',
    `${'a?'.repeat(30)}${'a'.repeat(30)}b`,
  ])('linear: %s', pattern => {
    const text = `${'a'.repeat(20_000)}!`
    const startedMs = threadCpuMs()
    linearPattern(pattern).test(text)
    expect(threadCpuMs() - startedMs).toBeLessThan(2_000)
  })
})

describe('frames', () => {
  // Goal: jobs and replies come out as they went in, and no other bytes are taken for a reply.
  test('round trip', () => {
    const jobs: Job[] = [
      { owner: '', scope: '', schema: '{}', contents: [] },
      { owner: 'é', scope: 's', schema: '{"é":1}', contents: ['', '\ufeff"𝒳"', '2'] },
    ]
    for (const job of jobs) expect(decodeJob(encodeJob(job).subarray(4))).toEqual(job)
    const replies: Reply[] = [{ verdict: 'ready' }, { verdict: 'valid' }, { verdict: 'refused', message: 'no é' }]
    for (const reply of replies) {
      const bytes = encodeReply(reply)
      for (let end = 0; end < bytes.length; end += 1) expect(decodeReply(bytes.subarray(0, end))).toBeNull()
      expect(decodeReply(bytes)).toEqual(reply)
      expect(() => decodeReply(Buffer.concat([bytes, bytes]))).toThrow()
    }
    expect(encodeReply({ verdict: 'refused', message: 'é\u0001'.repeat(9_999) }).length).toBeLessThan(replyBytesMax)
    const frame = (text: string) => {
      const bytes = Buffer.from(`????${text}`)
      bytes.writeUInt32LE(bytes.length - 4)
      return bytes
    }
    for (const text of [
      '5',
      '{}',
      '{"verdict":"refused"}',
      '{"verdict":"refused","message":5}',
      '{"verdict":"x"}',
      '',
    ]) {
      expect(() => decodeReply(frame(text))).toThrow()
    }
    expect(() => decodeReply(Buffer.from([255, 255, 255, 255]))).toThrow('not a reply')
    expect(() => decodeJob(Buffer.from([1, 0, 0, 0, 255, 0, 0, 0]))).toThrow()
    expect(() => decodeJob(Buffer.from([0, 0, 0, 0]))).toThrow('not a job')
  })
})
