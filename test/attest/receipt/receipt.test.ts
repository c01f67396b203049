// The receipt's JSON envelope: one text, one meaning.

import { describe, expect, test } from 'bun:test'
import { questionOf, sampleReceipt } from '../../../scripts/rigs/gateway/receipt-samples.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { decodeReceipt, encodeReceipt } from '../../../src/attest/receipt/receipt.ts'
import { nativeVerifiers, verifyReceipt } from '../../../src/attest/receipt/verifiers.ts'
import { fromUtf8, toBase64Url, utf8 } from '../../../src/base/bytes.ts'
import { fuzz } from '../../rigs/hostile/fuzz.ts'

const question = { ...(await questionOf('claim')), verifiers: nativeVerifiers }
const sample = await sampleReceipt('claim')

describe('the envelope', () => {
  const base = sample
  const text = JSON.stringify(base)

  // Goal: one text has one meaning: nothing unknown, missing, twice, too large or loosely encoded is read.
  test.each<[string, unknown]>([
    ['null', null],
    ['a number', 1],
    ['a list', []],
    ['nothing', undefined],
    ['no JSON', '{'],
    ['text of text', JSON.stringify(text)],
    ['an unknown field', { ...base, extra: '' }],
    ['an unknown key', { ...base, keys: { ...base.keys, rsa: '' } }],
    ['an unknown signature', { ...base, signatures: { ...base.signatures, rsa: '' } }],
    ['unknown evidence', { ...base, evidence: { ...base.evidence, extra: '' } }],
    ['no statement', { ...base, statement: undefined }],
    ['no evidence', { ...base, evidence: undefined }],
    ['another format', { ...base, format: 'strongroom/attest-pq/v2' }],
    ['another platform', { ...base, platform: 'tdx' }],
    ['padded base64url', { ...base, statement: `${base.statement}==` }],
    ['standard base64', { ...base, statement: base.statement.replace(/[-_A]/, '+') }],
    ['spare bits', { ...base, evidence: { ...base.evidence, crl: 'MB' } }],
    ['an empty statement', { ...base, statement: '' }],
    ['a long statement', { ...base, statement: 'A'.repeat(100_000) }],
    ['a short key', { ...base, keys: { ...base.keys, ed25519: 'AAAA' } }],
    ['a list for a key', { ...base, keys: { ...base.keys, ed25519: [base.keys.ed25519] } }],
    ['a short report', { ...base, evidence: { ...base.evidence, report: base.evidence.report.slice(0, 100) } }],
    ['a long chain', { ...base, evidence: { ...base.evidence, chain: [...base.evidence.chain, 'MAAA'] } }],
    ['a short chain', { ...base, evidence: { ...base.evidence, chain: [base.evidence.vek] } }],
    ['a chain that is text', { ...base, evidence: { ...base.evidence, chain: 'MA' } }],
    ['PEM for DER', { ...base, evidence: { ...base.evidence, vek: toBase64Url(utf8('-----BEGIN CERTIFICATE-----')) } }],
    ['a null CRL', { ...base, evidence: { ...base.evidence, crl: null } }],
    ['a huge TPM part', { ...base, evidence: { ...base.evidence, tpm: 'A'.repeat(800_000) } }],
    ['a name twice', text.replace('"platform"', '"platform":"snp","platform"')],
    ['a name twice, deep inside', text.replace('"vek"', '"vek":"MAAA","vek"')],
    ['an escape', text.replace('"platform"', '"\\u0070latform"')],
    ['a prototype', text.replace('{', '{"__proto__":{},')],
    ['text that is too long', `${text}${' '.repeat(1024 * 1024)}`],
    ['trailing text', `${text}1`],
    ['deep JSON', '['.repeat(1000) + ']'.repeat(1000)],
  ])('%s', async (_what, json) => {
    expect(() => decodeReceipt(json)).toThrow(Malformed)
    const verdict = await verifyReceipt(json, question)
    expect([
      verdict.ok,
      verdict.statement,
      verdict.checks.filter(check => check.outcome === 'fail').map(check => check.name),
    ]).toEqual([false, null, ['receipt-format']])
  })

  test('each part at its border', () => {
    // Goal: sizes are where the specification has them: one byte further is refused, and by the part's name.
    const der = (sizeBytes: number) => toBase64Url(new Uint8Array(sizeBytes).fill(0x30))
    const evidence = (changes: object) => ({ ...base, evidence: { ...base.evidence, ...changes } })
    const parts: readonly [string, number, (sizeBytes: number) => unknown][] = [
      ['statement', 65_536, size => ({ ...base, statement: der(size) })],
      ['evidence.vek', 8_192, size => evidence({ vek: der(size) })],
      ['evidence.chain[0]', 8_192, size => evidence({ chain: [der(size), der(1)] })],
      ['evidence.chain[1]', 8_192, size => evidence({ chain: [der(1), der(size)] })],
      ['evidence.crl', 32_768, size => evidence({ crl: der(size) })],
      ['evidence.tpm', 524_288, size => evidence({ tpm: der(size) })],
    ]
    for (const [name, max, made] of parts) {
      for (const size of [1, max]) expect(() => decodeReceipt(made(size))).not.toThrow()
      for (const size of [0, max + 1, max + 3]) expect(() => decodeReceipt(made(size))).toThrow(`receipt: ${name}`)
    }
    const exact = [
      ...[['report', 1184]].map(([name, size]) => [
        `evidence.${name}`,
        size,
        (value: string) => evidence({ report: value }),
      ]),
      ...Object.entries({ ed25519: 32, mldsa65: 1952, x25519: 32, mlkem768: 1184 }).map(([name, size]) => {
        return [`keys.${name}`, size, (value: string) => ({ ...base, keys: { ...base.keys, [name]: value } })]
      }),
      ...Object.entries({ ed25519: 64, mldsa65: 3309 }).map(([name, size]) => {
        const made = (value: string) => ({ ...base, signatures: { ...base.signatures, [name]: value } })
        return [`signatures.${name}`, size, made]
      }),
    ] as [string, number, (value: string) => unknown][]
    for (const [name, size, made] of exact) {
      expect(() => decodeReceipt(made(der(size)))).not.toThrow()
      for (const other of [size - 1, size + 1])
        expect(() => decodeReceipt(made(der(other)))).toThrow(`receipt: ${name}`)
    }
    expect(decodeReceipt(text.padEnd(1024 * 1024))).toEqual(decodeReceipt(text))
    expect(() => decodeReceipt(text.padEnd(1024 * 1024 + 1))).toThrow('receipt: too long')
    for (const platform of ['snp', 'simulated'] as const)
      expect(decodeReceipt({ ...base, platform }).platform).toBe(platform)
  })

  test('reasons', () => {
    // Goal: what is missing, unknown or of another form is named.
    for (const name of ['format', 'platform', 'statement', 'keys', 'signatures', 'evidence'])
      expect(() => decodeReceipt(JSON.stringify({ ...base, [name]: undefined }))).toThrow(`receipt: no ${name}`)
    for (const name of ['report', 'vek', 'chain']) {
      const { [name as 'vek']: _, ...evidence } = base.evidence
      expect(() => decodeReceipt({ ...base, evidence })).toThrow(`receipt: evidence: no ${name}`)
    }
    expect(() => decodeReceipt({ ...base, evidence: { ...base.evidence, chain: ['MA'] } })).toThrow('is not a pair')
    expect(() => decodeReceipt({ ...base, platform: 'tdx' })).toThrow('receipt: platform')
    expect(() => decodeReceipt('{"a":"b","a":"c"}')).toThrow('receipt: a name twice')
    expect(() => decodeReceipt('{"a":null,"b":1,"c":true,"d":["e"]}')).toThrow('receipt: no format')
    expect(() => decodeReceipt('[[[[[]]]]]')).toThrow('receipt: nested too deeply')
    expect(() => decodeReceipt('[[[[1]]]]')).toThrow('receipt: not an object')
    expect(() => decodeReceipt('[[[["x"]]]]')).toThrow('receipt: not an object')
  })

  test('the text comes back as it went in', () => {
    // Goal: reading and writing an envelope loses nothing, with and without the optional parts.
    expect(encodeReceipt(decodeReceipt(text))).toEqual(base)
    const { crl: _crl, ...evidence } = base.evidence
    const without = { ...base, evidence: { ...evidence, tpm: 'AQID' } }
    expect(encodeReceipt(decodeReceipt(JSON.stringify(without)))).toEqual(without)
  })

  test('hostile text', async () => {
    // Goal: damaged envelopes end in a failed verdict, never in an exception, and never in a good verdict unless
    // nothing was changed.
    const wanted = JSON.stringify(encodeReceipt(decodeReceipt(text)))
    await fuzz({ samples: [utf8(text)], count: 400, sizeBytesMax: 256 }, async bytes => {
      let damaged: string
      try {
        damaged = fromUtf8(bytes)
      } catch {
        return
      }
      const verdict = await verifyReceipt(damaged, question)
      if (verdict.ok) expect(JSON.stringify(encodeReceipt(decodeReceipt(damaged)))).toBe(wanted)
    })
  })
})
