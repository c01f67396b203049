// Goal: envelopes are those of the DSSE specification, and their key ids those of the keys' SubjectPublicKeyInfo.

import { describe, expect, test } from 'bun:test'
import { createHash, generateKeyPairSync } from 'node:crypto'
import { Malformed } from '../../../src/attest/malformed.ts'
import {
  dsseBytes,
  ENVELOPE_KEYS,
  envelopeJson,
  envelopeKeyId,
  inTotoPayloadType,
  preAuthEncoding,
  readDsse,
  readEnvelope,
  signEnvelope,
  spkiOf,
} from '../../../src/attest/provenance/dsse.ts'
import { fromUtf8, toHex, utf8 } from '../../../src/base/bytes.ts'

test('goal: PAE of the specification', () => {
  // protocol.md: PAE of "http://example.com/HelloWorld" and "hello world".
  const pae = preAuthEncoding('http://example.com/HelloWorld', utf8('hello world'))
  expect(fromUtf8(pae)).toBe('DSSEv1 29 http://example.com/HelloWorld 11 hello world')
  expect(fromUtf8(preAuthEncoding('é', utf8('')))).toBe('DSSEv1 2 é 0 ')
  expect(inTotoPayloadType).toBe('application/vnd.in-toto+json')
})

describe('key ids', () => {
  const { publicKey } = generateKeyPairSync('ed25519')
  const spki = new Uint8Array(publicKey.export({ type: 'spki', format: 'der' }))
  const mldsa65 = new Uint8Array(1952).fill(7)

  test('goal: SHA-256 of the SPKI, after the name of the algorithm', () => {
    expect([...ENVELOPE_KEYS]).toEqual(['ed25519', 'mldsa65'])
    expect(spkiOf('ed25519', spki.subarray(-32))).toEqual(spki)
    const id = createHash('sha256').update(spki).digest('hex')
    expect(envelopeKeyId('ed25519', spki.subarray(-32))).toBe(`Ed25519:${id}`)
    // RFC 9881: SEQUENCE of 1970 bytes, algorithm 2.16.840.1.101.3.4.3.18 without parameters, BIT STRING.
    const own = spkiOf('mldsa65', mldsa65)
    expect(toHex(own)).toBe(`308207b2300b0609608648016503040312038207a100${'07'.repeat(1952)}`)
    const ownId = createHash('sha256').update(own).digest('hex')
    expect(envelopeKeyId('mldsa65', mldsa65)).toBe(`ML-DSA-65:${ownId}`)
  })

  test('goal: keys of other lengths have none', () => {
    for (const size of [0, 31, 33, 64])
      expect(() => spkiOf('ed25519', new Uint8Array(size))).toThrow(new Malformed(`Ed25519 key: ${size} bytes`))
    for (const size of [1951, 1953, 3904])
      expect(() => spkiOf('mldsa65', new Uint8Array(size))).toThrow(new Malformed(`ML-DSA-65 key: ${size} bytes`))
  })
})

describe('envelopes', () => {
  const keys = { ed25519: new Uint8Array(32).fill(1), mldsa65: new Uint8Array(1952).fill(2) }

  test('goal: both keys sign the PAE, Ed25519 first, and the bytes read back', async () => {
    const signed: string[] = []
    const envelope = await signEnvelope(utf8('{}'), {
      publicKeys: keys,
      sign: message => {
        signed.push(fromUtf8(message))
        return { ed25519: Uint8Array.of(1, 2), mldsa65: Uint8Array.of(3) }
      },
    })
    expect(signed).toEqual(['DSSEv1 28 application/vnd.in-toto+json 2 {}'])
    expect(envelope).toEqual({
      payloadType: 'application/vnd.in-toto+json',
      payload: utf8('{}'),
      signatures: [
        { keyid: envelopeKeyId('ed25519', keys.ed25519), sig: Uint8Array.of(1, 2) },
        { keyid: envelopeKeyId('mldsa65', keys.mldsa65), sig: Uint8Array.of(3) },
      ],
    })
    expect(readDsse(dsseBytes(envelope))).toEqual(envelope)
    expect(envelopeJson({ ...envelope, signatures: envelope.signatures.slice(1) })).toEqual({
      ...{ payload: 'e30=', payloadType: 'application/vnd.in-toto+json' },
      signatures: [{ keyid: envelopeKeyId('mldsa65', keys.mldsa65), sig: 'Aw==' }],
    })
  })

  const signature = { keyid: 'k', sig: 'Aw==' }
  const whole = { payload: 'e30=', payloadType: 't', signatures: [signature] }
  test('goal: up to eight signatures', () => {
    const many = (count: number) => ({ ...whole, signatures: new Array(count).fill(signature) })
    expect([0, 1, 8].map(count => readEnvelope(many(count), 'it').signatures.length)).toEqual([0, 1, 8])
    expect(() => readEnvelope(many(9), 'it')).toThrow(new Malformed('it: more than 8 signatures'))
  })

  // Goal: each refusal names the member.
  test.each<[string, unknown, string]>([
    ['loose base64', { ...whole, payload: 'e30' }, 'it.payload: not canonical base64'],
    ['no payload type', { ...whole, payloadType: undefined }, 'it.payloadType: not a text'],
    ['a loose signature', { ...whole, signatures: [{ keyid: 'k', sig: 'Aw' }] }, 'it.signatures[0].sig: not canonical'],
    ['no key id', { ...whole, signatures: [{ sig: 'Aw==' }] }, 'it.signatures[0]: no keyid'],
    ['something more', { ...whole, extra: 1 }, 'it: the unknown field "extra"'],
  ])('%s is refused', (_, value, message) => {
    expect(() => readEnvelope(value, 'it')).toThrow(message)
  })

  test('goal: a name twice', () => {
    expect(() => readDsse(utf8('{"payload":"","payload":""}'))).toThrow('slsa.dsse.json')
  })
})
