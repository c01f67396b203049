// Goal: the source is cut out of any JSON, whatever its spelling and pieces; the strict reader checks the rest.

import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { casesOf } from '../../../scripts/rigs/all.ts'
import { parseJson } from '../../../src/base/json.ts'
import { SourceScan } from '../../../src/builds/http/source-scan.ts'

const limits = { documentBytesMax: 1024, sourceBytesMax: 1_000_000 }

function scan(text: string | Uint8Array, pieceBytes = 7) {
  const scan = new SourceScan(limits)
  const bytes = Buffer.from(text)
  const parts: Uint8Array[] = []
  for (let at = 0; at < bytes.length; at += pieceBytes) {
    scan.push(bytes.subarray(at, at + pieceBytes), part => parts.push(part))
  }
  return { json: parseJson(scan.end(), { depthMax: 16 }), source: Buffer.concat(parts) }
}

/** The code and the field of the refusal. */
function refusal(text: string | Uint8Array, pieceBytes?: number): string {
  try {
    scan(text, pieceBytes)
  } catch (error) {
    return `${Reflect.get(Object(error), 'code')} ${Reflect.get(Object(error), 'param') ?? ''}`.trim()
  }
  return 'accepted'
}

test('goal: any bytes come out as they went in, whatever the pieces and the spelling', () => {
  const spellings = [
    (base64: string) => base64,
    (base64: string) => base64.replaceAll('/', '\\/'),
    (base64: string) => base64.replaceAll('+', '\\u002B').replaceAll('=', '\\u003d'),
    (base64: string) => [...base64].map(char => `\\u00${char.charCodeAt(0).toString(16)}`).join(''),
  ]
  const property = fc.property(
    fc.uint8Array({ minLength: 1, maxLength: 600 }),
    fc.integer({ min: 1, max: 64 }),
    fc.nat(spellings.length - 1),
    (bytes, pieceBytes, which) => {
      const base64 = spellings[which]?.(Buffer.from(bytes).toString('base64'))
      const text = ` {"a":{"source_data":"x"}, "source\\u005fdata" : "${base64}" ,"b":["source_data",1]}`
      const { json, source } = scan(text, pieceBytes)
      expect(source).toEqual(Buffer.from(bytes))
      expect(json).toEqual({ a: { source_data: 'x' }, source_data: 'AAAA', b: ['source_data', 1] })
    },
  )
  fc.assert(property, { numRuns: 300 })
})

test('goal: a source beyond one group of characters is the same', () => {
  const bytes = crypto.getRandomValues(new Uint8Array(65_536 * 3))
  const whole = Buffer.concat([bytes, bytes, bytes, bytes, Buffer.of(1)])
  const text = JSON.stringify({ source_data: whole.toString('base64'), nonce: '00' })
  for (const pieceBytes of [65_536, 300_001]) expect(scan(text, pieceBytes).source.equals(whole)).toBe(true)
})

test('goal: what is no standard base64 is refused by its field', () => {
  const values = [
    ...['A', 'AA', 'AAA', 'AAA=A', 'AAAA=', '=AAA', 'AA==AAAA', 'AB==', 'AAB=', 'AA A', 'AAAA ', 'A-_A', 'AAAÄ', '\\n'],
    ...['AAAA\\n', 'AA\\"A', 'AAA\\\\', '\\u0141AAA', '\\u00e4AAA', '\\x41AAA', '\\u41AAA', 'AAA\nA', 'AAA\u0000'],
  ]
  for (const value of values) {
    for (const pieceBytes of [1, 3, 1000]) {
      const found = refusal(`{"source_data":"${value}"}`, pieceBytes)
      expect([value, pieceBytes, found]).toEqual([value, pieceBytes, 'invalid_request source_data'])
    }
  }
})

test('goal: padding ends the source, also where a group of characters ends with it', () => {
  const group = `${'A'.repeat(196_608 - 4)}AAA=`
  expect(refusal(`{"source_data":"${group}AAAA"}`, 100_000)).toBe('invalid_request source_data')
  expect(refusal(`{"source_data":"${group}"}`, 100_000)).toBe('accepted')
})

test('goal: broken JSON around a source is refused, wherever it breaks', () => {
  const whole = '{"nonce":"00","source_data":"AAAA","reproduce":true}'
  for (let length = 0; length < whole.length; length += 1) {
    expect([length, refusal(whole.slice(0, length))]).toEqual([length, 'invalid_request'])
  }
  expect(refusal(whole)).toBe('accepted')
  const broken = [
    ...['["source_data":"AAAA"]', '{"source_data":"AAAA"}x', '{"source_data":"AAAA"', '{"source_data" "AAAA"}'],
    ...['{,"source_data":"AAAA"}', '{"source_data":"AAAA",}', '"source_data":"AAAA"', '{"source_data"::"AAAA"}'],
    ...['{"source_data":["AAAA"]', '}{"source_data":"AAAA"}', '{"source_data":"AAAA""b":1}', '{"a":"\u0001"}'],
  ]
  for (const text of broken) expect([text, refusal(text)]).toEqual([text, 'invalid_request'])
})

test('goal: a field twice is refused, the source or another, in whatever spelling', () => {
  expect(refusal('{"source_data":"AAAA","source_data":"AAAA"}')).toBe('invalid_request source_data')
  expect(refusal('{"source_data":"AAAA","source\\u005fdata":"AAAA"}')).toBe('invalid_request source_data')
  expect(refusal('{"source_data":7,"source_data":"AAAA"}')).toBe('invalid_request source_data')
  expect(refusal('{"source_data":"AAAA","source_data":null}')).toBe('invalid_request source_data')
  expect(refusal('{"nonce":"00","nonce":"01","source_data":"AAAA"}')).toBe('invalid_request nonce')
})

test('goal: only text is taken for a source; the rest stays for the schema to judge', () => {
  for (const value of ['7', 'null', '["AAAA"]', '{"source_data":"AAAA"}', 'true', '""']) {
    const { json, source } = scan(`{"source_data":${value}}`)
    expect([value, json, source.length]).toEqual([value, { source_data: JSON.parse(value) }, 0])
  }
})

test('goal: neither the source nor the rest grows beyond its limit', () => {
  expect(refusal(`{"source_data":"${'A'.repeat(1_333_340)}"}`, 65_536)).toBe('body_too_large source_data')
  expect(refusal(`{"x":"${'A'.repeat(1025)}"}`)).toBe('body_too_large')
  expect(refusal(' '.repeat(1025))).toBe('body_too_large')
  expect(refusal('['.repeat(1000))).toBe('invalid_request')
  // A name that is spelled longer than any name of ours is kept with the rest, within the limit of the rest.
  const long = [...'source_data'].map(char => `\\u00${char.charCodeAt(0).toString(16)}`).join('')
  expect(scan(`{"${long}":"AAAA"}`).source.length).toBe(3)
})

test('goal: no text hangs it or gets more out of it than went in', () => {
  const piece = fc.constantFrom(
    '{',
    '}',
    '[',
    ']',
    '"',
    '\\',
    ':',
    ',',
    'A',
    '=',
    '"source_data"',
    '"source_data":"',
    ' ',
  )
  const property = fc.property(
    fc.array(piece, { maxLength: 40 }),
    fc.integer({ min: 1, max: 9 }),
    (parts, pieceBytes) => {
      const text = parts.join('')
      try {
        expect(scan(text, pieceBytes).source.length).toBeLessThanOrEqual(text.length)
      } catch (error) {
        expect(Reflect.get(Object(error), 'code')).toBe('invalid_request')
      }
    },
  )
  fc.assert(property, { numRuns: casesOf(2_000) })
})
