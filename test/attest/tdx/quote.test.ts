// Goal: quotes of versions 4 and 5 are read field by field, and bytes that are no quote are refused by name.

import { describe, expect, test } from 'bun:test'
import { Quote } from '@phala/dcap-qvl'
import type { Layout } from '../../../src/attest/encoding/layout.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import {
  decodeQuote,
  ENCLAVE_REPORT,
  HEADER,
  quoteBytesMax,
  TD_REPORT,
  TD_REPORT_15,
} from '../../../src/attest/tdx/quote.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { encodeSigned } from '../../rigs/attest/tdx/encode-signed.ts'
import { simulatedQuotes } from '../../rigs/attest/tdx/quotes.ts'
import { SIMULATED_PCK, SIMULATED_REPORT, simulateQuote, simulateTdx } from '../../rigs/attest/tdx/simulated.ts'

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

// Goal: each part of the signature has its own limit and type, and ends where its size says.
describe('the signature of a quote', async () => {
  const quote = quotes.at(-1)?.quote ?? new Uint8Array()
  // Version 5 with a TD report 1.5: header 48, type and size of the body 6, body 648, then the signature's size.
  const at = { size: 702, outerSize: 836, authSize: 840 + 384 + 64 }
  const innerType = at.authSize + 2 + 32
  const view = new DataView(quote.buffer, quote.byteOffset)
  const end = at.size + 4 + view.getUint32(at.size, true)
  const platform = await simulateTdx(Date.parse('2026-01-01T00:00:00Z'))
  const pck = await platform.pck(SIMULATED_PCK)
  const made = (changes: { authData?: Uint8Array; chain?: string }) => {
    return simulateQuote(platform, { version: 5, report: SIMULATED_REPORT, pck, ...changes })
  }

  test('goal: certification data of type 5 in that of type 6', () => {
    expect(() => decodeQuote(quote.with(innerType, 6))).toThrow('QE certification data of type 6, not 5')
    const size = view.getUint32(at.outerSize, true)
    const longer = quote.with(at.outerSize, (size + 1) & 255)
    expect(() => decodeQuote(longer)).toThrow(`certification data of ${size + 1} bytes, not ${size}`)
  })

  test('goal: nothing behind the PCK chain', () => {
    const longer = new Uint8Array(end + 1)
    longer.set(quote.subarray(0, end))
    const changed = new DataView(longer.buffer)
    for (const offset of [at.size, at.outerSize]) changed.setUint32(offset, changed.getUint32(offset, true) + 1, true)
    expect(() => decodeQuote(longer)).toThrow('TDX quote signature: trailing bytes')
  })

  test('goal: authentication data up to 1024 bytes, a chain up to 12 KiB, a quote up to 16 KiB', async () => {
    expect(decodeQuote(await made({ authData: new Uint8Array(1024) })).qeAuthData.length).toBe(1024)
    const longData = await made({ authData: new Uint8Array(1025) })
    expect(() => decodeQuote(longData)).toThrow('a field of 1025 bytes, at most 1024')
    expect(decodeQuote(await made({ chain: 'a'.repeat(12_288) })).pckChain.length).toBe(12_288)
    const longChain = await made({ chain: 'a'.repeat(12_289) })
    expect(() => decodeQuote(longChain)).toThrow('a PCK chain of 12289 bytes, at most 12288')
    const padded = new Uint8Array(16_384)
    padded.set(quote)
    expect(decodeQuote(padded).version).toBe(5)
    expect(() => decodeQuote(new Uint8Array(16_385))).toThrow('TDX quote: 16385 bytes, at most 16384')
    expect(() => decodeQuote(quote.with(4, 0x1f))).toThrow('teeType 0x1f is not 0x81')
  })

  test('goal: version 4 has no report of TDX 1.5', () => {
    const { header, report } = decodeQuote(quote)
    expect(() => encodeSigned(4, header, report)).toThrow('TDX quote: version 4 has no report of TDX 1.5')
  })
})
