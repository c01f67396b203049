// Goal: quotes of versions 4 and 5 are read field by field, and bytes that are no quote are refused by name.

import { describe, expect, test } from 'bun:test'
import type { Layout } from '../../../src/attest/encoding/layout.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import {
  decodeQuote,
  ENCLAVE_REPORT,
  encodeSigned,
  HEADER,
  quoteBytesMax,
  TD_REPORT,
  TD_REPORT_15,
} from '../../../src/attest/tdx/quote.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { TDX_VECTORS } from '../../rigs/attest/tdx/vectors.ts'

// Goal: no byte of a record is without a field, and none is in two.
test.each([
  ['header', HEADER, 48],
  ['TD report 1.0', TD_REPORT, 584],
  ['TD report 1.5', TD_REPORT_15, 648],
  ['enclave report', ENCLAVE_REPORT, 384],
] as const)('layout of the %s has no gap', (_name, layout: Layout, sizeBytes) => {
  let at = 0
  for (const [offset, size] of Object.values(layout)) {
    expect(offset).toBe(at)
    at += size
  }
  expect(at).toBe(sizeBytes)
})

// Goal: both real quotes read as what a hexadecimal dump shows.
test('fields of the real quotes', () => {
  const [v4, v5] = TDX_VECTORS.map(({ quote }) => decodeQuote(quote))
  expect([v4?.version, v4?.report.version, v5?.version, v5?.report.version]).toEqual([4, '1.0', 5, '1.5'])
  expect([v4, v5].map(quote => toHex(quote?.report.teeTcbSvn ?? new Uint8Array()))).toEqual([
    '06010300000000000000000000000000',
    '07010300000000000000000000000000',
  ])
  expect(toHex(v4?.report.mrTd ?? new Uint8Array()).slice(0, 16)).toBe('91eb2b44d141d4ec')
  expect(toHex(v5?.report.added?.teeTcbSvn2 ?? new Uint8Array())).toBe('0d010300000000000000000000000000')
  expect([v4?.report.tdAttributes, v5?.report.tdAttributes]).toEqual([1n << 28n, 1n << 28n])
  expect([v4?.report.xfam, v5?.report.xfam]).toEqual([0x602e7n, 0x618e7n])
  expect(v4?.qeReport.isvProdId).toBe(2)
})

describe.each([...TDX_VECTORS])('$name', ({ quote }) => {
  // Goal: the signed bytes are those that the quote begins with, and encode to the same again.
  test('the signed bytes', () => {
    const { version, header, report, signedBytes } = decodeQuote(quote)
    expect(toHex(signedBytes)).toBe(toHex(quote.slice(0, signedBytes.length)))
    expect(toHex(encodeSigned(version, header, report))).toBe(toHex(signedBytes))
  })

  // Goal: a quote that ends anywhere before its end is Malformed, and its own padding may be of any length.
  test('every length', () => {
    const { signedBytes } = decodeQuote(quote)
    const view = new DataView(quote.buffer, quote.byteOffset)
    const end = signedBytes.length + 4 + view.getUint32(signedBytes.length, true)
    for (let length = 0; length < end; length += 1) expect(() => decodeQuote(quote.slice(0, length))).toThrow(Malformed)
    expect(decodeQuote(quote.slice(0, end)).version).toBe(decodeQuote(quote).version)
  })
})

// Goal: each refusal names the field.
test.each([
  ['version', 0, 3, 'version 3 is not 4 or 5'],
  ['key type', 2, 3, 'attestationKeyType 3 is not 2'],
  ['TEE type', 4, 0, 'teeType 0x0 is not 0x81'],
  ['body type', 48, 1, 'body type 1 is no TD report'],
  ['body size', 50, 0x89, 'a body of 649 bytes, not 648'],
  ['signature size', 703, 255, 'a signature of'],
  ['certification data', 54 + 648 + 4 + 128, 5, 'certification data of type 5, not 6'],
  ['padding', 5000, 1, ''],
])('refuses another %s', (_name, at, value, message) => {
  const quote = TDX_VECTORS[1]?.quote ?? new Uint8Array()
  const padded = new Uint8Array(5100)
  padded.set(quote)
  const changed = padded.with(at === 5000 ? 5099 : at, value)
  expect(() => decodeQuote(changed)).toThrow(message === '' ? 'bytes after its end that are not zero' : message)
})

// Goal: the size is bounded before anything is read.
test('refuses a quote that is too long', () => {
  expect(() => decodeQuote(new Uint8Array(quoteBytesMax + 1))).toThrow(`at most ${quoteBytesMax}`)
})
