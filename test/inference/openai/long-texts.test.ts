// Base64 that is cut out of large bodies, and put back.

import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { utf8 } from '../../../src/base/bytes.ts'
import { cutLongTexts, type LongTexts, textBytesMax } from '../../../src/inference/openai/long-texts.ts'

const mark = '0123456789abcdef0123456789abcdef'
const long = 'QUJD'.repeat(4_096)

function cut(body: string | Uint8Array): LongTexts {
  return cutLongTexts(typeof body === 'string' ? utf8(body) : body, mark)
}

const textOf = ({ bytes }: LongTexts) => Buffer.from(bytes).toString()
const whole = (texts: LongTexts, text = textOf(texts)) => Buffer.concat(texts.putBack([text])).toString()

// Goal: content is cut out wherever a content part may have it, and nothing else is.
test.each([
  ['{"url":"LONG"}', true],
  ['{"url" :\n "LONG"}', true],
  ['{"data":"LONG="}', true],
  ['{"file_data":"data:application/pdf;base64,LONG"}', true],
  ['{"image_url":"DATA:image/png;x=y;base64,LONG"}', true],
  ['[{"a":"\\"url","b":"\\\\","data":"LONG"}]', true],
  ['{"text":"LONG"}', false],
  ['{"x":"url","y":"LONG"}', false],
  ['["url","LONG"]', false],
  ['{"x":{"url":["LONG"]}}', false],
  ['{"\\u0075rl":"LONG"}', false],
  ['{"url":"LONG LONG"}', false],
  ['{"url":"LONG\\n"}', false],
  ['{"url":"LONGé"}', false],
  ['{"url":"LONG==="}', false],
  ['{"url":"https://host/LONG?"}', false],
  ['{"url":"QUJD"}', false],
])('%s', (form, isCut) => {
  const body = form.replaceAll('LONG', long)
  const found = cut(body)
  expect(textOf(found).includes(mark)).toBe(isCut)
  expect(textOf(found).length < 1_000).toBe(isCut || body.length < 1_000)
  expect(whole(found)).toBe(body)
})

// Goal: whatever the body is, JSON or not, it comes together again byte by byte.
test('any body', () => {
  const piece = fc.oneof(
    fc.constantFrom(
      '"url":"',
      '"data" : "',
      '"',
      '\\',
      ':',
      '{',
      '}',
      ',',
      'data:image/png;base64,',
      long,
      `${long}==`,
    ),
    fc.string({ maxLength: 8 }),
  )
  const check = fc.property(fc.array(piece, { maxLength: 24 }), pieces => {
    const body = pieces.join('')
    expect(whole(cut(body))).toBe(Buffer.from(body).toString())
  })
  fc.assert(check, { numRuns: 300 })
})

// Goal: every cut text reaches the upstream once, or the request is refused: never is a mark taken for content.
test('marks that are left out or doubled', () => {
  const body = `{"a":{"url":"${long}"},"b":{"url":"${long}"}}`
  const found = cut(body)
  const first = `"url":"${mark}00000000"`
  expect(whole(found, `{"b":{"url":"${mark}00000001"},"a":{${first}}}`)).toBe(
    `{"b":{"url":"${long}"},"a":{"url":"${long}"}}`,
  )
  expect(() => found.putBack([`{"a":{${first}}}`])).toThrow('A long base64 text stands in a field')
  expect(() => found.putBack([`{"a":{${first}}`, `"b":{${first}}}`])).toThrow('A long base64 text stands in a field')
  expect(() => found.putBack([`{"a":{"url":"${mark}zzzzzzzz"}}`])).toThrow('A long base64 text stands in a field')
})

// Goal: what is left is as short as a body that is parsed as it is, in length and in the work that it makes.
test.each([
  ['a text', `{"text":"${'x'.repeat(textBytesMax)}"}`],
  ['short texts', `[${'"x",'.repeat(textBytesMax / 4)}"x"]`],
  ['escapes', `{"text":"${'\\"'.repeat(textBytesMax / 2)}"}`],
  ['backslashes', `{"text":"${'\\'.repeat(2 * textBytesMax)}"}`],
  ['no quotes', `[${'1,'.repeat(textBytesMax / 2)}1]`],
  ['a text that has no end', `{"url":"${'Q'.repeat(textBytesMax)}`],
])('%s beyond the limit', (_name, body) => {
  expect(() => cut(body)).toThrow('larger than 4194304 bytes without the base64')
})
