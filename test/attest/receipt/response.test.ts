// The format of response receipts: the chain over events, the claim, and where a receipt stands in an answer.

import { describe, expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { sha256 } from '@noble/hashes/sha2.js'
import fc from 'fast-check'
import { casesOf } from '../../../scripts/rigs/all.ts'
import { encodeCbor } from '../../../src/attest/encoding/cbor.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import {
  encodeClaim,
  encodeResponseReceipt,
  type ResponseClaim,
  receiptComment,
  signedBytesOf,
} from '../../../src/attest/receipt/response.ts'
import { createResponseChain } from '../../../src/attest/receipt/response-digest.ts'
import { decodeResponseReceipt, splitResponse } from '../../../src/attest/receipt/response-read.ts'
import { signClaim, signClaimNow } from '../../../src/attest/receipt/response-sign.ts'
import { fromUtf8, toBase64Url, utf8 } from '../../../src/base/bytes.ts'

const digest = new Uint8Array(32).fill(1)
const claim: ResponseClaim = {
  requestId: 'req_1',
  keyMadeBy: 'client',
  model: 'tiny',
  upstream: 'built-in',
  coverage: 'inside',
  requestDigest: digest,
  answerDigest: digest,
  eventCount: 2,
  sizeBytes: 2 ** 40,
  promptTokens: 0,
  completionTokens: 5,
  issuedAt: 1_790_000_000_000,
  keysDigest: digest,
}
const signatures = { ed25519: new Uint8Array(64).fill(2), mldsa65: new Uint8Array(3309).fill(3) }

const salt = new Uint8Array(32).fill(9)

function chainOf(parts: readonly Uint8Array[]) {
  const chain = createResponseChain(() => sha256.create(), salt)
  for (const part of parts) chain.update(part)
  return chain.finish()
}

/** The definition, written down a second time over text. */
function reference(text: string) {
  const events = text.match(/[\s\S]*?\n\n|[\s\S]+$/g) ?? []
  const hash = (...parts: (string | Uint8Array)[]) => {
    const hash = createHash('sha256')
    for (const part of parts) hash.update(part)
    return new Uint8Array(hash.digest())
  }
  const answerDigest = events.reduce(
    (link, event) => hash(link, hash(event)),
    hash('strongroom/response/v4 response\0', salt),
  )
  return { answerDigest, eventCount: events.length, sizeBytes: Buffer.byteLength(text) }
}

describe('the chain', () => {
  test('is its definition, for any text and any cuts', () => {
    // Goal: native or portable, cut or whole, line breaks wherever they are: one answer has one chain.
    const text = fc
      .array(fc.constantFrom('\n', '\n\n', 'a', 'data: x', '\r\n'), { maxLength: 12 })
      .map(all => all.join(''))
    fc.assert(
      fc.property(text, fc.array(fc.nat(40), { maxLength: 6 }), (whole, cuts) => {
        const bytes = utf8(whole)
        const ends = [...cuts.filter(cut => cut < bytes.length).sort((a, b) => a - b), bytes.length]
        const parts = ends.map((end, at) => bytes.subarray(ends[at - 1] ?? 0, end))
        expect(chainOf(parts)).toEqual(reference(whole))
      }),
      { numRuns: casesOf(2_000) },
    )
  })

  test('tells apart what differs in its cuts alone', () => {
    // Goal: moving an event's end changes the chain even where the bytes between are alike.
    const chains = ['a\n\nb', 'a\nb\n', 'ab\n\n', 'a\n\nb\n\n', ''].map(text =>
      chainOf([utf8(text)]).answerDigest.toHex(),
    )
    expect(new Set(chains).size).toBe(5)
  })
})

describe('the claim', () => {
  const text = encodeResponseReceipt(encodeClaim(claim), signatures)

  test('comes back as it was', () => {
    // Goal: nothing is lost or changed, and the signed bytes begin with what sets them apart from statements.
    const decoded = decodeResponseReceipt(text)
    expect(decoded).toEqual({ claim, claimBytes: encodeClaim(claim), signatures })
    const signed = signedBytesOf(decoded.claimBytes)
    expect(fromUtf8(signed.subarray(0, 23))).toBe('strongroom/response/v4\0')
    expect(signed.subarray(23)).toEqual(decoded.claimBytes)
  })

  test('is signed as those bytes', async () => {
    // Goal: what the signer is given is what the verifier will look at.
    let signed: Uint8Array = new Uint8Array(0)
    const sign = (message: Uint8Array) => {
      signed = message
      return signatures
    }
    const bytes = encodeClaim(claim)
    for (const seal of [() => signClaim(bytes, async message => sign(message)), () => signClaimNow(bytes, sign)]) {
      expect([await seal(), signed]).toEqual([text, signedBytesOf(bytes)])
      signed = new Uint8Array(0)
    }
  })

  // Goal: a value that is not of its field's kind is never written.
  test.each([
    { requestId: '' },
    { model: 'x'.repeat(1025) },
    { upstream: '' },
    { coverage: 'both' as 'inside' },
    { coverage: '' as 'inside' },
    { keyMadeBy: 'operator' as 'host' },
    { keyMadeBy: true as unknown as 'host' },
    { requestDigest: new Uint8Array(31) },
    { answerDigest: new Uint8Array(33) },
    { promptTokens: -1 },
    { completionTokens: 1.5 },
    { issuedAt: Number.NaN },
    { sizeBytes: 2 ** 53 },
  ])('%j is refused', changes => {
    expect(() => encodeClaim({ ...claim, ...changes })).toThrow(Malformed)
  })

  // Goal: only the one spelling of a receipt is read.
  test.each([
    '',
    'A',
    `${text}A`,
    `${text}=`,
    text.slice(0, -4),
    ` ${text}`,
    toBase64Url(encodeClaim(claim)),
    'A'.repeat(100_000),
  ])('%#', bad => {
    expect(() => decodeResponseReceipt(bad)).toThrow(Malformed)
  })

  test('goal: receipts of versions 1 and 3 are refused with what they do not say', () => {
    const { upstream: _, coverage: __, ...rest } = claim
    const old = encodeCbor(new Map(Object.entries({ format: 'strongroom/response/v1', ...rest })))
    expect(() => decodeResponseReceipt(encodeResponseReceipt(old, signatures))).toThrow(
      'response claim: its format is strongroom/response/v1, which does not say who answered; only strongroom/response/v4 is read',
    )
    const { keyMadeBy: ___, ...keyless } = claim
    const before = encodeCbor(new Map(Object.entries({ format: 'strongroom/response/v3', ...keyless })))
    expect(() => decodeResponseReceipt(encodeResponseReceipt(before, signatures))).toThrow(
      'response claim: its format is strongroom/response/v3, which does not say who made the key that asked; only strongroom/response/v4 is read',
    )
    const strange = encodeCbor(new Map(Object.entries({ ...claim, format: 'strongroom/response/v9' })))
    expect(() => decodeResponseReceipt(encodeResponseReceipt(strange, signatures))).toThrow(
      'response claim: its format is not strongroom/response/v4',
    )
  })

  test('any bytes at all are read or Malformed', () => {
    // Goal: nothing but Malformed escapes for hostile input.
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), bytes => {
        expect(() => decodeResponseReceipt(toBase64Url(bytes))).toThrow(Malformed)
      }),
      { numRuns: casesOf(500) },
    )
  })
})

describe('splitResponse', () => {
  const end = 'data: [DONE]\n\n'
  const messageEnd = 'event: message_stop\ndata: {"type":"message_stop"}\n\n'
  const split = (text: string) => {
    const { body, receipt } = splitResponse(utf8(text))
    return [fromUtf8(body), receipt]
  }

  // Goal: the sealed bytes are the body without the receipt, and a body without one is left as it is.
  test.each([
    [`data: 1\n\n${receiptComment('abc')}${end}`, `data: 1\n\n${end}`, 'abc'],
    [`${receiptComment('abc')}${end}`, end, 'abc'],
    [`${receiptComment('abc')}${messageEnd}`, messageEnd, 'abc'],
    ['{"a":1}', '{"a":1}', null],
    ['', '', null],
    ['data: ": strongroom-receipt abc"\n\n', 'data: ": strongroom-receipt abc"\n\n', null],
  ])('%j', (body, sealed, receipt) => {
    expect(split(body)).toEqual([sealed, receipt])
  })

  // Goal: bytes around the receipt that nobody has sealed are never passed over.
  test.each([
    `${receiptComment('a')}${receiptComment('b')}${end}`,
    `${receiptComment('a')}data: 2\n\n${end}`,
    `${receiptComment('a')}${end}${end}`,
    `${receiptComment('a')}${end}${messageEnd}`,
    receiptComment('a'),
    `: strongroom-receipt a\n${end}`,
    ': strongroom-receipt a',
    `: strongroom-receipt ü\n\n${end}`,
  ])('%j is refused', body => {
    expect(() => split(body)).toThrow(Malformed)
  })
})
