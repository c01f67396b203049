// Goal: quotes of versions 4 and 5 are read field by field, and bytes that are no quote are refused by name.

import { describe, expect, test } from 'bun:test'
import { Quote } from '@phala/dcap-qvl'
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
import { simulatedQuotes } from '../../rigs/attest/tdx/quotes.ts'

const quotes = await simulatedQuotes()

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

const hexOf = (value: number | bigint | Uint8Array) =>
  typeof value === 'bigint'
    ? value.toString(16).padStart(16, '0').match(/../g)?.reverse().join('')
    : value instanceof Uint8Array
      ? toHex(value)
      : value
const hexOfEach = (fields: object) =>
  Object.fromEntries(Object.entries(fields).map(([name, value]) => [name.toLowerCase(), hexOf(value)]))

describe.each([...quotes])('$name', ({ quote }) => {
  // Goal: each field of it is what an independent reader finds, @phala/dcap-qvl.
  test('the fields', () => {
    const { version, header, report, qeReport, qeReportBytes, signature, attestationKey, ...rest } = decodeQuote(quote)
    const theirs = Quote.parse(Buffer.from(quote))
    const { qeSvn, pceSvn, ...theirHeader } = theirs.header
    expect([theirs.header.version, theirs.report.type]).toEqual([version, report.version === '1.0' ? 'td10' : 'td15'])
    expect(hexOfEach(header)).toEqual({ ...hexOfEach(theirHeader), reserved8: qeSvn + 2 ** 16 * pceSvn })
    const { version: _, added, ...fields } = report
    expect(hexOfEach(fields)).toEqual(hexOfEach(theirs.report.asTd10() ?? {}))
    const { base: __, ...theirAdded } = theirs.report.asTd15() ?? { base: null }
    expect(hexOfEach(added ?? {})).toEqual(hexOfEach(theirAdded))
    const signed = theirs.authData.intoV3()
    expect([signature, attestationKey, qeReportBytes, rest.qeReportSignature, rest.qeAuthData].map(toHex)).toEqual(
      [
        signed.ecdsaSignature,
        signed.ecdsaAttestationKey,
        signed.qeReport,
        signed.qeReportSignature,
        signed.qeAuthData,
      ].map(toHex),
    )
    expect(`${toHex(rest.pckChain)}00`).toBe(toHex(theirs.rawCertChain()))
    expect([qeReport.isvProdId, qeReport.isvSvn]).toEqual([2, 4])
  })

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
  ['padding', -1, 1, 'bytes after its end that are not zero'],
])('refuses another %s', (_name, at, value, message) => {
  const quote = quotes.at(-1)?.quote ?? new Uint8Array()
  const changed = quote.with(at, value)
  expect(() => decodeQuote(changed)).toThrow(message)
})

// Goal: the size is bounded before anything is read.
test('refuses a quote that is too long', () => {
  expect(() => decodeQuote(new Uint8Array(quoteBytesMax + 1))).toThrow(`at most ${quoteBytesMax}`)
})
