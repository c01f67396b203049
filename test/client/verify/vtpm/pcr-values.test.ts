// Goal: every form in which tools write PCR values is read as the same values, and nothing else is read.

import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Malformed } from '../../../../src/attest/malformed.ts'
import { decodeQuote } from '../../../../src/attest/tpm/structures.ts'
import { concat, toHex, utf8 } from '../../../../src/base/bytes.ts'
import { pcrDocument, readPcrValues } from '../../../../src/client/verify/vtpm/pcr-values.codec.ts'
import { fuzz } from '../../../rigs/hostile/fuzz.ts'
import { vectors } from '../../../rigs/program.ts'

const tools = join(vectors, 'tpm/tpm2-tools')
const vector = (name: string) => new Uint8Array(readFileSync(join(tools, name)))
const quote = decodeQuote(vector('quote.msg'))
const [structures, bare, text] = [vector('quote.pcrs'), vector('pcrs.values'), vector('pcrs.txt')]
const document = pcrDocument(readPcrValues(structures, quote))
const jsonOf = (value: unknown) => utf8(JSON.stringify(value))

test('goal: the four forms of one quote say the same', () => {
  expect(Object.entries(document).map(([bank, values]) => [bank, Object.keys(values)])).toEqual([
    ['sha256', ['0', '1', '2', '3', '4', '5', '6', '7', '9', '17']],
    ['sha384', ['4', '10']],
  ])
  // As tpm2_pcrread printed them.
  expect(document.sha256?.['4']).toBe('9ef814b42fa0be12d197c44d3e8e03441a4b1118237658368ba1351090e556ed')
  expect(document.sha256?.['17']).toBe('ff'.repeat(32))
  expect(document.sha384?.['10']).toStartWith('c5d96b74211db73f')
  for (const form of [bare, text, jsonOf(document)]) expect(pcrDocument(readPcrValues(form, quote))).toEqual(document)
  const older = utf8(`sha256 :\n  0  : ${'0'.repeat(63)}3\n`)
  expect(pcrDocument(readPcrValues(older, quote))).toEqual({ sha256: { 0: `${'0'.repeat(63)}3` } })
})

const zeros = '00'.repeat(32)

// Goal: values that are no values are refused with words that say why.
test.each<[string, Uint8Array, string]>([
  ['nothing', new Uint8Array(0), '0 bytes are neither'],
  ['a value too many', concat(bare, new Uint8Array(32)), '448 bytes are neither JSON'],
  ['a value too few', bare.slice(32), 'nor the 416 bytes of the quoted values'],
  ['structures cut short', structures.slice(0, -1), '1199 bytes are neither'],
  ['a list of nine', structures.with(136, 9), 'a list of 9 values'],
  ['a value of 65 bytes', structures.with(140, 65), 'a value of 65 bytes'],
  ['a value of another bank', structures.with(140, 48), 'SHA-256 PCR 0 has 48 bytes'],
  ['a PCR selected too many', structures.with(9, 0xff), '12 values for'],
  ['an unknown bank', structures.with(4, 0x12), 'unknown bank'],
  ['JSON of an array', jsonOf([document]), 'neither JSON nor the text'],
  ['JSON without banks', jsonOf({}), 'there is none'],
  ['JSON of another bank', jsonOf({ sm3: { 0: zeros } }), '"sm3" is none of'],
  ['JSON of no PCR', jsonOf({ sha256: { 32: zeros } }), 'there is no such PCR'],
  ['JSON of a PCR in other words', jsonOf({ sha256: { '07': zeros } }), 'there is no such PCR'],
  ['JSON of a short value', jsonOf({ sha256: { 0: '00' } }), 'sha256 PCR 0 is not 32 bytes'],
  ['JSON of a number', jsonOf({ sha256: { 0: 0 } }), 'sha256 PCR 0 is not 32 bytes'],
  ['JSON with a bank of its own twice', utf8(`{"sha256":{},"sha256":{"0":"${zeros}"}}`), 'sha256'],
  ['text without a bank', utf8(`0 : 0x${zeros}\n`), 'neither JSON nor the text'],
  ['text with a PCR twice', utf8(`sha256:\n 0 : 0x${zeros}\n 0 : 0x${zeros}\n`), 'SHA-256 PCR 0 stands twice'],
])('%s', (_what, bytes, reason) => {
  expect(() => readPcrValues(bytes, quote)).toThrow(Malformed)
  expect(() => readPcrValues(bytes, quote)).toThrow(reason)
})

test('goal: hostile bytes give values of the right length, or Malformed', async () => {
  await fuzz({ samples: [structures, bare, text, jsonOf(document)], count: 2000 }, bytes => {
    try {
      for (const [bank, values] of Object.entries(pcrDocument(readPcrValues(bytes, quote)))) {
        for (const value of Object.values(values))
          expect(value.length).toBe(Number(bank.slice(3)) === 1 ? 40 : Number(bank.slice(3)) / 4)
      }
    } catch (error) {
      if (!(error instanceof Malformed)) throw error
    }
  })
})

test('goal: bare values follow the order of the quote', () => {
  const swapped = { selections: quote.selections.toReversed() }
  const values = pcrDocument(readPcrValues(bare, swapped))
  expect(values.sha384?.['4']).toBe(toHex(bare.subarray(0, 48)))
})
