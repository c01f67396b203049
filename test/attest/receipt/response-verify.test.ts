// Goal: each check of a response receipt decides by itself: what is changed fails the one check that looks at it, and a
// receipt passes only where request, response, keys, salt and upstream are all those of the claim.

import { describe, expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import type { VerifySignature } from '../../../src/attest/receipt/hybrid-verify.ts'
import {
  carriedReceipt,
  encodeClaim,
  encodeResponseReceipt,
  type ResponseClaim,
} from '../../../src/attest/receipt/response.ts'
import { type ResponseQuestion, verifyResponse } from '../../../src/attest/receipt/response-verify.ts'
import { concat, utf8 } from '../../../src/base/bytes.ts'

const filled = (sizeBytes: number, byte: number) => new Uint8Array(sizeBytes).fill(byte)
const hash = (...parts: (string | Uint8Array)[]) => {
  const sha256 = createHash('sha256')
  for (const part of parts) sha256.update(part)
  return new Uint8Array(sha256.digest())
}

const keys = {
  ed25519: filled(32, 0x11),
  mldsa65: filled(1952, 0x12),
  x25519: filled(32, 0x13),
  mlkem768: filled(1184, 0x14),
}
/** Each key after its length as u32be. */
const keysDigest = hash(
  ...[Uint8Array.of(0, 0, 0, 32), keys.ed25519, Uint8Array.of(0, 0, 7, 0xa0), keys.mldsa65],
  ...[Uint8Array.of(0, 0, 0, 32), keys.x25519, Uint8Array.of(0, 0, 4, 0xa0), keys.mlkem768],
)

const salt = filled(32, 9)
const request = utf8('{"model":"m"}')
const response = utf8('data: a\n\ndata: b\n\nrest')
const chain = ['data: a\n\n', 'data: b\n\n', 'rest'].reduce(
  (link, event) => hash(link, hash(event)),
  hash('strongroom/response/v4 response\0', salt),
)
const CLAIM: ResponseClaim = {
  requestId: 'r',
  keyMadeBy: 'client',
  model: 'm',
  upstream: 'near',
  coverage: 'inside',
  requestDigest: hash('strongroom/response/v4 request\0', salt, request),
  answerDigest: chain,
  eventCount: 3,
  sizeBytes: 22,
  promptTokens: 1,
  completionTokens: 2,
  issuedAt: 1_790_000_000_000,
  keysDigest,
}

const signatures = { ed25519: filled(64, 2), mldsa65: filled(3309, 3) }
const bytesOf = (claim: Partial<ResponseClaim>) => encodeClaim({ ...CLAIM, ...claim })

/** Takes the one signature over the one message under the one key, without a context. */
const accepts = (name: 'ed25519' | 'mldsa65', claim: Uint8Array): VerifySignature => {
  return (signature, message, publicKey, context) =>
    Buffer.from(message).equals(concat(utf8('strongroom/response/v4\0'), claim)) &&
    Buffer.from(signature).equals(signatures[name]) &&
    Buffer.from(publicKey).equals(keys[name]) &&
    context.length === 0
}

type ResponseChanges = {
  readonly claim?: Partial<ResponseClaim>
  readonly carried?: Uint8Array | null
} & Partial<ResponseQuestion>

async function verified({ claim = {}, carried = salt, ...question }: ResponseChanges = {}) {
  const claimBytes = bytesOf(claim)
  const receipt = encodeResponseReceipt(claimBytes, signatures)
  const verifiers = { ed25519: accepts('ed25519', claimBytes), mldsa65: accepts('mldsa65', claimBytes) }
  return await verifyResponse(carried === null ? receipt : carriedReceipt(receipt, carried), {
    ...{ keys, request, response, outside: [], verifiers },
    ...question,
  })
}

const NAMES = [
  ...['response-format', 'response-keys', 'response-signature-ed25519', 'response-signature-mldsa65'],
  ...['response-key-maker', 'response-upstream', 'response-salt', 'response-request', 'response-size'],
  'response-answer',
]

/** The checks that did not pass, with outcome and whether a verdict needs them. */
async function notPassed(asked: ResponseChanges) {
  const { ok, checks } = await verified(asked)
  expect(checks.map(({ name }) => name)).toEqual(NAMES)
  const others = checks.filter(({ outcome }) => outcome !== 'pass')
  expect(ok).toBe(!others.some(({ outcome, required }) => outcome === 'fail' || required))
  return others.map(({ name, outcome, required }) => [name.replace('response-', ''), outcome, required])
}

const failed = (...names: string[]) => names.map(name => [name, 'fail', true])

test('goal: a good receipt, its claim and what is said of it', async () => {
  const { ok, checks, claim } = await verified()
  expect([ok, claim]).toEqual([true, CLAIM])
  expect(checks.map(({ name, outcome }) => [name, outcome])).toEqual(NAMES.map(name => [name, 'pass']))
  expect(checks[4]?.reason).toContain('the gateway has only a digest of your key')
  expect(checks[5]?.reason).toBe('upstream "near" answered, inside what the attestation covers')
  expect(checks[8]?.reason).toBe('22 bytes in 3 events')
})

describe('one thing is another', () => {
  const [ed25519, mldsa65] = ['signature-ed25519', 'signature-mldsa65']
  const unsalted = ['request', 'size', 'answer'].map(name => [name, 'not-checked', true])
  // Goal: what is another fails its own check, and no other.
  test.each<[string, ResponseChanges, (string | boolean)[][]]>([
    ['request', { request: utf8('{"model":"n"}') }, failed('request')],
    ['response of the same length', { response: utf8('data: a\n\ndata: b\n\nbest') }, failed('answer')],
    ['response of the same bytes in other events', { claim: { eventCount: 2 } }, failed('size')],
    ['size in the claim', { claim: { sizeBytes: 21 } }, failed('size')],
    ['response', { response: utf8('data: a\n\ndata: b\n\n') }, failed('size', 'answer')],
    ['digest of the request', { claim: { requestDigest: filled(32, 0) } }, failed('request')],
    ['digest of the response', { claim: { answerDigest: filled(32, 0) } }, failed('answer')],
    ['keysDigest', { claim: { keysDigest: filled(32, 0) } }, failed('keys')],
    ['ML-KEM key', { keys: { ...keys, mlkem768: filled(1184, 0) } }, failed('keys')],
    ['Ed25519 key', { keys: { ...keys, ed25519: filled(32, 0) } }, failed('keys', ed25519 ?? '')],
    ['ML-DSA key', { keys: { ...keys, mldsa65: filled(1952, 0) } }, failed('keys', mldsa65 ?? '')],
    ['length of a key', { keys: { ...keys, x25519: filled(31, 0x13) } }, failed('keys')],
    ['verifier of Ed25519', { verifiers: { ed25519: () => false, mldsa65: () => true } }, failed(ed25519 ?? '')],
    ['verifier of ML-DSA', { verifiers: { ed25519: () => true, mldsa65: () => false } }, failed(mldsa65 ?? '')],
    ['salt of the receipt', { carried: filled(32, 8) }, failed('request', 'answer')],
    ['salt of the caller', { salt: filled(32, 8) }, [...failed('salt'), ...unsalted]],
    ['length of the salt', { carried: null, salt: filled(31, 9) }, [...failed('salt'), ...unsalted]],
    ['receipt without salt', { carried: null }, [...failed('salt'), ...unsalted]],
    ['maker of the key', { claim: { keyMadeBy: 'host' } }, [['key-maker', 'not-checked', false]]],
  ])('another %s', async (_, asked, expected) => {
    expect(await notPassed(asked)).toEqual(expected)
  })

  test("goal: the caller's salt, with the receipt's own or without", async () => {
    expect(await notPassed({ salt })).toEqual([])
    expect(await notPassed({ carried: null, salt })).toEqual([])
    const reasonOf = async (asked: ResponseChanges) => (await verified(asked)).checks[6]?.reason
    expect(await reasonOf({ salt: filled(32, 8) })).toBe('another salt than the one of the receipt')
    expect(await reasonOf({ carried: null })).toContain("give the value of the response's X-Strongroom-Receipt-Salt")
  })
})

describe('the upstream', () => {
  const far = (coverage: ResponseClaim['coverage']) => ({ upstream: 'far', coverage })
  const upstreamOf = async (asked: ResponseChanges) => {
    const { ok, checks } = await verified(asked)
    const { outcome, reason } = checks[5] ?? {}
    return [ok, outcome, reason]
  }

  test('goal: outside of the attestation it is refused unless the caller allows its name', async () => {
    expect(await upstreamOf({ claim: far('outside') })).toEqual([
      ...[false, 'fail'],
      'upstream "far" answered, OUTSIDE what the attestation covers: nothing attests it; allow it by outside: ["far"]',
    ])
    expect((await upstreamOf({ claim: far('outside'), outside: ['near'] }))[1]).toBe('fail')
    expect(await upstreamOf({ claim: far('outside'), outside: ['near', 'far'] })).toEqual([
      ...[true, 'not-checked'],
      'accepted upstream "far", OUTSIDE what the attestation covers: the caller allowed its name',
    ])
    // An upstream that claims no evidence is not compared with workload.json.
    expect((await upstreamOf({ claim: far('outside'), outside: ['far'], attestedBy: new Map() }))[0]).toBe(true)
  })

  test('goal: evidence of its own is not enough, and has to be the one that workload.json asks for', async () => {
    const claim = far('outside-attested')
    const attestedBy = new Map([['far', 'by tdx']])
    expect(await upstreamOf({ claim, attestedBy })).toEqual([
      ...[false, 'fail'],
      'upstream "far" answered, OUTSIDE what the attestation covers, attested by tdx: only the gateway\'s policy names it; ' +
        'allow it by outside: ["far"]',
    ])
    expect((await upstreamOf({ claim, attestedBy, outside: ['far'] }))[0]).toBe(true)
    expect(await upstreamOf({ claim, outside: ['far'] })).toEqual([
      ...[true, 'not-checked'],
      'accepted upstream "far", OUTSIDE what the attestation covers, attested by evidence of its own: the caller ' +
        'allowed its name',
    ])
    expect(await upstreamOf({ claim, attestedBy: new Map([['near', 'by tdx']]), outside: ['far'] })).toEqual([
      ...[false, 'fail'],
      'upstream "far" answered as an attested one, but workload.json requires no evidence of it',
    ])
  })
})

test('goal: a receipt that cannot be read fails, and nothing behind it counts as checked', async () => {
  const question = { keys, request, response, outside: [] }
  const { ok, checks, claim } = await verifyResponse('!', question)
  expect([ok, claim]).toEqual([false, null])
  expect(checks.map(({ name, outcome, required }) => [name, outcome, required])).toEqual(
    NAMES.map(name => [name, name === 'response-format' ? 'fail' : 'not-checked', true]),
  )
  // Without verifiers of the caller's, the signatures are checked by the library's own.
  const receipt = carriedReceipt(encodeResponseReceipt(bytesOf({}), signatures), salt)
  const own = await verifyResponse(receipt, question)
  const broken = own.checks.filter(({ outcome }) => outcome === 'fail')
  expect(broken.map(({ name, reason }) => [name, reason])).toEqual([
    ['response-signature-ed25519', 'the Ed25519 signature over the response does not verify'],
    ['response-signature-mldsa65', 'the ML-DSA-65 signature over the response does not verify'],
  ])
})
