// TPM quotes, signatures and keys.

import { describe, expect, test } from 'bun:test'
import { Malformed } from '../../../src/attest/malformed.ts'
import { BANKS } from '../../../src/attest/tpm/algorithm.ts'
import { encodeSpki, type TpmKey } from '../../../src/attest/tpm/key.ts'
import { decodeJwk, decodePemKey, decodeSpki } from '../../../src/attest/tpm/key-decode.ts'
import {
  decodePublicArea,
  decodeSizedPublic,
  isAttestationKey,
  isEndorsementKey,
} from '../../../src/attest/tpm/public-area.ts'
import { type PcrValues, QUOTE_CHECKS, type QuoteInput, verifyQuote } from '../../../src/attest/tpm/quote.ts'
import { decodeQuote, decodeSignature, type TpmSignature } from '../../../src/attest/tpm/structures.ts'
import { concat, fromBase64, fromHex, toBase64, toHex } from '../../../src/base/bytes.ts'
import { fuzz } from '../../rigs/hostile/fuzz.ts'
import {
  akAttributes,
  eccSample,
  ekAttributes,
  goodQuote,
  rsaSample,
  type SampleKey,
  type StrongBank,
  sampleBitmap,
  sampleNonce,
  samplePcrs,
  samplePcrValues,
  sized,
  u16,
} from '../../rigs/launch/tpm-samples.ts'

const vectors = new URL('../../vectors/tpm/', import.meta.url)
const sampleQuote = new Uint8Array(await Bun.file(new URL('tpm_quote_sample.bin', vectors)).arrayBuffer())
const plain = (await Bun.file(new URL('plain-tpm-quote.json', vectors)).json()) as {
  ak_public: string
  tpm_quote: { message: string; signature: string; pcrs: string[] }
}

const rsa = await rsaSample('RSASSA', 'SHA-256')
const ecc = await eccSample('P-256', 'SHA-256')

function bytesOf(value: Uint8Array | null): Uint8Array {
  if (value === null) throw new Error('a vector is not encoded as it should be')
  return value
}

/** `name outcome` of the four checks. */
async function outcomes(input: QuoteInput): Promise<string[]> {
  const checks = await verifyQuote(input)
  expect(checks.map(check => check.name)).toEqual([...QUOTE_CHECKS])
  expect(checks.every(check => check.required && (check.outcome === 'pass' || check.reason !== ''))).toBe(true)
  return checks.map(check => check.outcome)
}

async function inputOf(key: SampleKey, changes: Partial<QuoteInput> = {}): Promise<QuoteInput> {
  const quote = changes.quote ?? goodQuote('SHA-256', 'SHA-256')
  const base = { ak: decodeSpki(key.spki), nonce: sampleNonce, pcrs: samplePcrValues('SHA-256') }
  return { ...base, signature: await key.sign(quote), ...changes, quote }
}

const allPass = ['pass', 'pass', 'pass', 'pass']

describe('real quotes', () => {
  const input: QuoteInput = {
    quote: bytesOf(fromBase64(plain.tpm_quote.message)),
    signature: bytesOf(fromBase64(plain.tpm_quote.signature)),
    ak: decodeSpki(bytesOf(fromBase64(plain.ak_public))),
    nonce: decodeQuote(bytesOf(fromBase64(plain.tpm_quote.message))).extraData,
    pcrs: { 'SHA-256': new Map(plain.tpm_quote.pcrs.map((hex, at) => [at, bytesOf(fromHex(hex))])) },
  }

  test('a sample without signature', () => {
    // Goal: every field of a quote from real hardware is read as it stands in the bytes.
    expect(decodeQuote(sampleQuote)).toEqual({
      qualifiedSigner: sampleQuote.slice(8, 42),
      extraData: bytesOf(fromHex('12345678')),
      clock: 0x054dd1efn,
      resetCount: 0x10,
      restartCount: 0,
      clockSafe: true,
      firmwareVersion: 0x2016051100162800n,
      selections: [{ bank: 'SHA-256', pcrs: [0, 1, 2] }],
      pcrDigest: sampleQuote.slice(-32),
    })
    for (let length = 0; length < sampleQuote.length; length += 1)
      expect(() => decodeQuote(sampleQuote.slice(0, length))).toThrow(Malformed)
    expect(() => decodeQuote(concat(sampleQuote, Uint8Array.of(0)))).toThrow('trailing bytes')
  })

  test('a plain TPM quote verifies', async () => {
    // Goal: a quote of a real vTPM, its key and its PCRs belong together.
    expect(await outcomes(input)).toEqual(allPass)
    expect(decodeQuote(input.quote).selections).toEqual([
      { bank: 'SHA-256', pcrs: Array.from({ length: 24 }, (_, i) => i) },
    ])
  })

  test('tampering with any part fails', async () => {
    // Goal: a flipped bit anywhere in quote, signature, nonce or PCRs is seen by the check that it concerns.
    for (let at = 0; at < input.quote.length; at += 1) {
      const quote = input.quote.map((byte, i) => (i === at ? byte ^ 0x10 : byte))
      expect([at, (await outcomes({ ...input, quote }))[0]]).toEqual([at, 'fail'])
    }
    const signature = input.signature as Uint8Array
    for (let at = 0; at < signature.length; at += 7) {
      const flipped = signature.map((byte, i) => (i === at ? byte ^ 1 : byte))
      expect([at, (await outcomes({ ...input, signature: flipped }))[0]]).toEqual([at, 'fail'])
    }
    expect(await outcomes({ ...input, nonce: input.nonce.map(byte => byte ^ 1) })).toEqual([
      'pass',
      'pass',
      'fail',
      'pass',
    ])
    for (let pcr = 0; pcr < 24; pcr += 1) {
      const values = new Map(input.pcrs['SHA-256'])
      values.set(pcr, new Uint8Array(32).fill(0x77))
      expect(await outcomes({ ...input, pcrs: { 'SHA-256': values } })).toEqual(['pass', 'pass', 'pass', 'fail'])
    }
    expect((await outcomes({ ...input, ak: decodeSpki(rsa.spki) }))[0]).toBe('fail')
  })
})

describe('quotes of every scheme', () => {
  // Goal: each scheme verifies with its own hash for the PCR digest, over any strong bank, and not under another key or
  // scheme.
  test.each<[string, Promise<SampleKey>, StrongBank]>([
    ['RSASSA SHA-256', Promise.resolve(rsa), 'SHA-256'],
    ['RSASSA SHA-384', rsaSample('RSASSA', 'SHA-384'), 'SHA-384'],
    ['RSASSA SHA-512, 3072 bits', rsaSample('RSASSA', 'SHA-512', { bits: 3072 }), 'SHA-512'],
    ['RSAPSS, salt as the hash', rsaSample('RSAPSS', 'SHA-256', { saltLength: 32 }), 'SHA-256'],
    ['RSAPSS, salt as the key allows', rsaSample('RSAPSS', 'SHA-256', { saltLength: 222 }), 'SHA-256'],
    ['ECDSA P-256', Promise.resolve(ecc), 'SHA-256'],
    ['ECDSA P-384', eccSample('P-384', 'SHA-384'), 'SHA-384'],
    ['ECDSA P-521', eccSample('P-521', 'SHA-512'), 'SHA-512'],
  ])('%s', async (_name, sample, hash) => {
    const key = await sample
    for (const bank of ['SHA-256', 'SHA-384', 'SHA-512'] as const) {
      const changes = { quote: goodQuote(bank, hash), pcrs: samplePcrValues(bank) }
      expect(await outcomes(await inputOf(key, changes))).toEqual(allPass)
    }
    const input = await inputOf(key, { quote: goodQuote('SHA-256', hash) })
    const wrongDigest = hash === 'SHA-256' ? 'SHA-384' : 'SHA-256'
    const other = await inputOf(key, { quote: goodQuote('SHA-256', wrongDigest) })
    expect(await outcomes(other)).toEqual(['pass', 'pass', 'pass', 'fail'])
    expect((await outcomes({ ...input, ak: decodeSpki((key === rsa ? ecc : rsa).spki) }))[0]).toBe('fail')
    const signature = decodeSignature(input.signature as Uint8Array)
    const otherHash = { ...signature, hash: hash === 'SHA-512' ? 'SHA-384' : 'SHA-512' } as TpmSignature
    expect((await outcomes({ ...input, signature: otherHash }))[0]).toBe('fail')
    if (signature.scheme !== 'ECDSA') {
      const scheme = signature.scheme === 'RSASSA' ? 'RSAPSS' : 'RSASSA'
      expect((await outcomes({ ...input, signature: { ...signature, scheme } }))[0]).toBe('fail')
    }
  })

  test('a salt of another length', async () => {
    // Goal: only the two salt lengths that TPMs use are accepted.
    const key = await rsaSample('RSAPSS', 'SHA-256', { saltLength: 20 })
    expect((await outcomes(await inputOf(key)))[0]).toBe('fail')
  })
})

describe('quotes that must not verify, although they are signed', () => {
  const sha1 = { bank: BANKS['SHA-1'].id, bitmap: sampleBitmap }
  const sha256 = { bank: BANKS['SHA-256'].id, bitmap: sampleBitmap }
  const sha1Pcrs = new Map([0, 7, 16].map(number => [number, new Uint8Array(20).fill(number)]))
  const sha1Values = [...sha1Pcrs.values()]
  const digestOf = (values: readonly Uint8Array[]) => BANKS['SHA-256'].hash(concat(...values))

  // Goal: what is no quote of a TPM is named as such, and what it says is not looked at.
  test.each([
    ['another magic', { magic: 0xff544348 }],
    ['a certification', { type: 0x8017 }],
    ['a clock that is neither safe nor not', { safe: 2 }],
    ['an unknown bank', { selections: [{ bank: 0x0012, bitmap: sampleBitmap }] }],
    ['a bank twice', { selections: [sha256, sha256] }],
    ['a long bitmap', { selections: [{ ...sha256, bitmap: new Uint8Array(5).fill(1) }] }],
    ['many selections', { selections: Array(17).fill(sha256) }],
    ['a long nonce', { extraData: new Uint8Array(67) }],
    ['a long digest', { pcrDigest: new Uint8Array(65) }],
    ['trailing bytes', { tail: Uint8Array.of(0) }],
  ])('%s', async (_what, changes) => {
    const input = await inputOf(rsa, { quote: goodQuote('SHA-256', 'SHA-256', changes) })
    expect(await outcomes(input)).toEqual(['pass', 'fail', 'not-checked', 'not-checked'])
  })

  // Goal: PCRs are exactly those that were quoted, of a strong bank, each as long as its digest.
  test.each<[string, object, PcrValues]>([
    ['no PCR selected', { selections: [], pcrDigest: digestOf([]) }, {}],
    ['an empty bitmap', { selections: [{ ...sha256, bitmap: new Uint8Array(3) }], pcrDigest: digestOf([]) }, {}],
    ['SHA-1 PCRs', { selections: [sha1], pcrDigest: digestOf(sha1Values) }, { 'SHA-1': sha1Pcrs }],
    ['SHA-1 PCRs beside others', { selections: [sha256, sha1] }, samplePcrValues('SHA-256')],
    ['no values', {}, {}],
    ['a value missing', {}, { 'SHA-256': new Map([...samplePcrs('SHA-256')].slice(1)) }],
    ['a value too many', {}, { 'SHA-256': new Map([...samplePcrs('SHA-256'), [9, new Uint8Array(32)]]) }],
    ['a bank too many', {}, { ...samplePcrValues('SHA-256'), ...samplePcrValues('SHA-384') }],
    ['a short value', {}, { 'SHA-256': new Map([...samplePcrs('SHA-256'), [16, new Uint8Array(31)]]) }],
    ['values of another bank', {}, { 'SHA-256': samplePcrs('SHA-384') }],
    ['a wrong digest', { pcrDigest: new Uint8Array(32) }, samplePcrValues('SHA-256')],
    ['a short digest', { pcrDigest: new Uint8Array(0) }, samplePcrValues('SHA-256')],
  ])('%s', async (_what, changes, pcrs) => {
    const input = await inputOf(rsa, { quote: goodQuote('SHA-256', 'SHA-256', changes), pcrs })
    expect(await outcomes(input)).toEqual(['pass', 'pass', 'pass', 'fail'])
  })

  test('bytes moved from one PCR into the next', async () => {
    // Goal: the same concatenation in other pieces is not the same PCRs.
    const values = [...samplePcrs('SHA-256').values()]
    const whole = concat(...values)
    const moved = new Map([
      [0, whole.slice(0, 31)],
      [7, whole.slice(31, 64)],
      [16, whole.slice(64)],
    ])
    const input = await inputOf(rsa, { pcrs: { 'SHA-256': moved } })
    expect(await outcomes(input)).toEqual(['pass', 'pass', 'pass', 'fail'])
  })

  test('an empty nonce is none', async () => {
    // Goal: a quote without a challenge is never fresh, even for a caller who asks for nothing.
    const input = await inputOf(rsa, {
      quote: goodQuote('SHA-256', 'SHA-256', { extraData: new Uint8Array(0) }),
      nonce: new Uint8Array(0),
    })
    expect(await outcomes(input)).toEqual(['pass', 'pass', 'fail', 'pass'])
  })

  test('signatures that cannot be read', async () => {
    // Goal: SHA-1 and unknown schemes are refused; nothing of them throws.
    const good = (await inputOf(rsa)).signature as Uint8Array
    const cases: [string, Uint8Array][] = [
      ['SHA-1 is refused', concat(u16(0x14), u16(0x04), good.slice(4))],
      ['unknown hash', concat(u16(0x14), u16(0x12), good.slice(4))],
      ['unknown scheme', concat(u16(0x1a), u16(0x0b), good.slice(4))],
      ['truncated', good.slice(0, -1)],
      ['trailing bytes', concat(good, Uint8Array.of(0))],
      ['truncated', new Uint8Array(0)],
      ['at most', concat(u16(0x14), u16(0x0b), sized(new Uint8Array(513)))],
    ]
    for (const [reason, signature] of cases) {
      expect(() => decodeSignature(signature)).toThrow(Malformed)
      const [first] = await verifyQuote({ ...(await inputOf(rsa)), signature })
      expect(first).toMatchObject({ outcome: 'fail', reason: expect.stringContaining(reason) })
    }
    for (const part of [0, 67]) {
      const long = { scheme: 'ECDSA', hash: 'SHA-256', r: new Uint8Array(part), s: new Uint8Array(32) } as const
      expect((await outcomes({ ...(await inputOf(ecc)), signature: long }))[0]).toBe('fail')
    }
    const offCurve: TpmKey = { type: 'ecc', curve: 'P-256', x: new Uint8Array(32).fill(1), y: new Uint8Array(32) }
    expect((await outcomes({ ...(await inputOf(ecc)), ak: offCurve }))[0]).toBe('fail')
  })
})

describe('keys', () => {
  test('one key in every form', async () => {
    // Goal: SPKI, PEM, JWK and public area of a key are one and the same key.
    for (const key of [rsa, ecc, await eccSample('P-384', 'SHA-384'), await eccSample('P-521', 'SHA-512')]) {
      const decoded = decodeSpki(key.spki)
      expect(toHex(encodeSpki(decoded))).toBe(toHex(key.spki))
      expect(decodeJwk(key.jwk)).toEqual(decoded)
      const lines = toBase64(key.spki).replace(/.{64}(?=.)/g, '$&\n')
      expect(decodePemKey(`-----BEGIN PUBLIC KEY-----\n${lines}\n-----END PUBLIC KEY-----\n`)).toEqual(decoded)
      const area = key.publicArea(akAttributes)
      expect(decodePublicArea(area).key).toEqual(decoded)
      expect(decodeSizedPublic(sized(area))).toEqual(decodePublicArea(area))
      expect(toHex(decodePublicArea(area).name)).toBe(`000b${toHex(BANKS['SHA-256'].hash(area))}`)
    }
  })

  test('what a key is for', () => {
    // Goal: a key counts as an attestation or an endorsement key only with every attribute of it.
    const attestation = (attributes: typeof akAttributes) =>
      isAttestationKey(decodePublicArea(rsa.publicArea(attributes)))
    const endorsement = (attributes: typeof ekAttributes) =>
      isEndorsementKey(decodePublicArea(rsa.publicArea(attributes)))
    expect([attestation(akAttributes), endorsement(ekAttributes)]).toEqual([true, true])
    expect([attestation(ekAttributes), endorsement(akAttributes)]).toEqual([false, false])
    for (const kind of ['fixedTPM', 'fixedParent', 'sensitiveDataOrigin', 'restricted', 'sign', 'decrypt'] as const) {
      if (akAttributes.includes(kind)) expect(attestation(akAttributes.filter(other => other !== kind))).toBe(false)
      if (ekAttributes.includes(kind)) expect(endorsement(ekAttributes.filter(other => other !== kind))).toBe(false)
    }
    expect(attestation([...akAttributes, 'decrypt'])).toBe(false)
    expect(endorsement([...ekAttributes, 'sign'])).toBe(false)
  })

  test('weak, odd and loose keys', async () => {
    // Goal: short moduli, other exponents, other encodings and other kinds of key are refused.
    const weak = await crypto.subtle.generateKey(
      { name: 'RSA-PSS', hash: 'SHA-256', modulusLength: 1024, publicExponent: Uint8Array.of(1, 0, 1) },
      true,
      ['sign', 'verify'],
    )
    const weakSpki = new Uint8Array(await crypto.subtle.exportKey('spki', weak.publicKey))
    expect(() => decodeSpki(weakSpki)).toThrow('modulus size')
    expect(() => decodeSpki(concat(rsa.spki, Uint8Array.of(0)))).toThrow(Malformed)
    expect(() => decodeSpki(new Uint8Array(0))).toThrow(Malformed)
    // The same key with a length in more bytes than it needs.
    const loose = concat(Uint8Array.of(0x30, 0x81), ecc.spki.slice(1))
    expect(() => decodeSpki(loose)).toThrow('shortest form')
    // The same key with other parameters than NULL beside rsaEncryption.
    const parameters = rsa.spki.slice()
    expect([...parameters.subarray(17, 19)]).toEqual([0x05, 0x00])
    parameters[17] = 0x04
    expect(() => decodeSpki(parameters)).toThrow('not canonical')
    const otherExponent = rsa.spki.slice()
    otherExponent[otherExponent.length - 1] = 3
    expect(() => decodeSpki(otherExponent)).toThrow('exponent')
    const jwks = [
      null,
      'RSA',
      {},
      { ...rsa.jwk, kty: 'oct' },
      { ...rsa.jwk, e: 'Aw' },
      { ...rsa.jwk, n: `AA${rsa.jwk.n}` },
      { ...rsa.jwk, n: `${rsa.jwk.n}=` },
      { ...rsa.jwk, n: 'A'.repeat(2000) },
      { ...ecc.jwk, crv: 'secp256k1' },
      { ...ecc.jwk, x: 'AAAA' },
      { ...ecc.jwk, y: undefined },
    ]
    for (const jwk of jwks) expect(() => decodeJwk(jwk)).toThrow(Malformed)
    for (const pem of ['', 'x', `-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----`, 'A'.repeat(5000)])
      expect(() => decodePemKey(pem)).toThrow(Malformed)
    const area = rsa.publicArea(akAttributes)
    const small = concat(area.slice(0, 16), Uint8Array.of(0, 0, 0, 3), area.slice(20))
    expect(() => decodePublicArea(small)).toThrow('RSA exponent')
    const sha1Name = concat(area.slice(0, 2), u16(0x0004), area.slice(4))
    expect(() => decodePublicArea(sha1Name)).toThrow('SHA-1 is refused')
    expect(() => decodePublicArea(concat(u16(0x0008), area.slice(2)))).toThrow('neither RSA nor ECC')
    expect(() => decodePublicArea(concat(area, Uint8Array.of(0)))).toThrow('trailing bytes')
    for (let length = 0; length < area.length; length += 1)
      expect(() => decodePublicArea(area.slice(0, length))).toThrow(Malformed)
  })

  test('hostile bytes', async () => {
    // Goal: codecs throw Malformed and nothing else, and what they read again gives the same key.
    const samples = [rsa.spki, ecc.spki, rsa.publicArea(akAttributes), ecc.publicArea(ekAttributes), sampleQuote]
    const signatures = [await rsa.sign(sampleQuote), await ecc.sign(sampleQuote)]
    const codecs = [decodeSpki, decodePublicArea, decodeSizedPublic, decodeQuote, decodeSignature]
    await fuzz({ samples: [...samples, ...signatures], count: 3000, sizeBytesMax: 600 }, bytes => {
      for (const decode of codecs) {
        try {
          decode(bytes)
        } catch (error) {
          if (!(error instanceof Malformed)) throw error
        }
      }
    })
  })
})
