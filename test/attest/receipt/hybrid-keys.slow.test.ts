// Hybrid keys and signatures: both halves, always.

import { describe, expect, test } from 'bun:test'
import { createHash, createPublicKey, verify } from 'node:crypto'
import { ed25519 } from '@noble/curves/ed25519.js'
import { ml_kem768_x25519 } from '@noble/post-quantum/hybrid.js'
import { ml_dsa65 } from '@noble/post-quantum/ml-dsa.js'
import { ml_kem768 } from '@noble/post-quantum/ml-kem.js'
import nacl from 'tweetnacl'
import { countingRandom, sampleKeys } from '../../../scripts/rigs/gateway/receipt-samples.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { makeHybridKeys, signHybrid } from '../../../src/attest/receipt/hybrid-keys.ts'
import { type HybridVerifiers, webVerifiers } from '../../../src/attest/receipt/hybrid-verify.ts'
import {
  type HybridSignature,
  keysDigest,
  PUBLIC_KEY_BYTES,
  SIGNATURE_BYTES,
} from '../../../src/attest/receipt/public-keys.ts'
import { makeReceiptKeys } from '../../../src/attest/receipt/receipt-keys.ts'
import { statementContext } from '../../../src/attest/receipt/statement.ts'
import {
  defaultVerifiers,
  nativeVerifiers,
  portableVerifiers,
  verifyHybrid,
} from '../../../src/attest/receipt/verifiers.ts'
import { concat, fromHex, toHex, utf8 } from '../../../src/base/bytes.ts'
import { nativeKeys } from '../../../src/linux/native-keys.ts'

const message = utf8('a statement')
const context = statementContext
const keys = sampleKeys()
const signature = signHybrid(keys.secretKeys, message, { context, random: countingRandom(9) })
const verifiers = {
  portable: portableVerifiers,
  default: defaultVerifiers,
  native: nativeVerifiers,
  web: webVerifiers,
}

async function outcomes(changed: Partial<HybridSignature>, by: HybridVerifiers, of = keys.publicKeys, what = message) {
  const checks = await verifyHybrid(of, what, { ...signature, ...changed }, { context, verifiers: by })
  return checks.map(check => `${check.name} ${check.outcome}`)
}

const good = ['signature-ed25519 pass', 'signature-mldsa65 pass']
const badEd25519 = ['signature-ed25519 fail', 'signature-mldsa65 pass']
const badMldsa65 = ['signature-ed25519 pass', 'signature-mldsa65 fail']
const bothBad = ['signature-ed25519 fail', 'signature-mldsa65 fail']

function flipped(bytes: Uint8Array, at: number): Uint8Array {
  return bytes.map((byte, i) => (i === at ? byte ^ 1 : byte))
}

describe.each(Object.entries(verifiers))('%s verifiers', (_name, by) => {
  test('both halves verify', async () => {
    // Goal: what was signed is accepted, by every set of verifiers alike.
    expect(await outcomes({}, by)).toEqual(good)
  })

  test('either half altered, dropped or swapped', async () => {
    // Goal: one good half never covers for the other.
    for (const at of [0, 31, 32, 63])
      expect(await outcomes({ ed25519: flipped(signature.ed25519, at) }, by)).toEqual(badEd25519)
    for (const at of [0, 48, 1500, 3308])
      expect(await outcomes({ mldsa65: flipped(signature.mldsa65, at) }, by)).toEqual(badMldsa65)
    expect(await outcomes({ ed25519: new Uint8Array(0) }, by)).toEqual(badEd25519)
    expect(await outcomes({ ed25519: new Uint8Array(64) }, by)).toEqual(badEd25519)
    expect(await outcomes({ mldsa65: new Uint8Array(0) }, by)).toEqual(badMldsa65)
    expect(await outcomes({ mldsa65: new Uint8Array(3309) }, by)).toEqual(badMldsa65)
    expect(await outcomes({ mldsa65: concat(signature.mldsa65, Uint8Array.of(0)) }, by)).toEqual(badMldsa65)
    expect(await outcomes({ ed25519: signature.mldsa65, mldsa65: signature.ed25519 }, by)).toEqual(bothBad)
    expect(await outcomes({}, by, keys.publicKeys, utf8('a statemenu'))).toEqual(bothBad)
  })

  test('another key', async () => {
    // Goal: each half belongs to its own key.
    const other = makeHybridKeys(countingRandom(77)).publicKeys
    expect(await outcomes({}, by, { ...keys.publicKeys, ed25519: other.ed25519 })).toEqual(badEd25519)
    expect(await outcomes({}, by, { ...keys.publicKeys, mldsa65: other.mldsa65 })).toEqual(badMldsa65)
    expect(await outcomes({}, by, { ...keys.publicKeys, mldsa65: other.mldsa65.slice(1) })).toEqual(badMldsa65)
    expect(await outcomes({}, by, { ...keys.publicKeys, ed25519: new Uint8Array(32).fill(0xff) })).toEqual(badEd25519)
  })

  test('a signature with S beyond the group’s order', async () => {
    // Goal: nobody can make a second valid signature out of a first one (RFC 8032 section 5.1.7).
    const order = 2n ** 252n + 27742317777372353535851937790883648493n
    const scalar = BigInt(`0x${toHex(signature.ed25519.slice(32).reverse())}`) + order
    const bytes = fromHex(scalar.toString(16).padStart(64, '0'))?.reverse() ?? new Uint8Array(0)
    const forged = concat(signature.ed25519.subarray(0, 32), bytes)
    expect(nacl.sign.detached.verify(message, forged, keys.publicKeys.ed25519)).toBe(true)
    expect(await outcomes({ ed25519: forged }, by)).toEqual(badEd25519)
  })
})

// Goal: who holds a key makes no signature that passes in one runtime and fails in another: points of small order, and
// encodings that are not the shortest, count in JavaScript as in native code.
describe('the Ed25519 half in JavaScript is the native one', () => {
  const { Point } = ed25519
  const torsion = Point.fromHex('c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a')
  const secret = 77_777n
  const nonce = 99_999n

  /** A signature by `secret` whose R and public key are moved by these points. */
  function moved(what: Uint8Array, byR: typeof torsion, byKey: typeof torsion) {
    const publicKey = Point.BASE.multiply(secret).add(byKey).toBytes()
    const r = Point.BASE.multiply(nonce).add(byR).toBytes()
    const digest = createHash('sha512').update(r).update(publicKey).update(what).digest()
    const hash = BigInt(`0x${toHex(digest.reverse())}`)
    const scalar = (nonce + hash * secret) % Point.Fn.ORDER
    const s = (fromHex(scalar.toString(16).padStart(64, '0')) ?? new Uint8Array(0)).reverse()
    return { publicKey, signature: concat(r, s) }
  }

  function native(sign: Uint8Array, what: Uint8Array, publicKey: Uint8Array): boolean {
    try {
      const spki = Buffer.concat([Buffer.from('302a300506032b6570032100', 'hex'), publicKey])
      return verify(null, what, createPublicKey({ key: spki, format: 'der', type: 'spki' }), sign)
    } catch {
      return false
    }
  }

  async function portable(sign: Uint8Array, what: Uint8Array, publicKey: Uint8Array): Promise<boolean> {
    try {
      return await portableVerifiers.ed25519(sign, what, publicKey, context)
    } catch {
      return false
    }
  }

  test('points of small order', async () => {
    const seen = new Set<boolean>()
    for (let i = 0; i < 24; i += 1) {
      const what = utf8(`message ${i}`)
      const both = [Point.ZERO, torsion].flatMap(byR => [Point.ZERO, torsion].map(byKey => moved(what, byR, byKey)))
      for (const [at, { publicKey, signature: sign }] of both.entries()) {
        const expected = native(sign, what, publicKey)
        expect(await portable(sign, what, publicKey)).toBe(expected)
        if (at === 0) expect(expected).toBe(true)
        if (at === 3) seen.add(expected)
        if (at !== 2) continue
        // The rule with the cofactor, which the package has, takes this one.
        expect([expected, ed25519.verify(sign, what, publicKey)]).toEqual([false, true])
      }
    }
    expect([...seen].sort()).toEqual([false, true])
  })

  test.each([
    ['zero', '00'.repeat(32)],
    ['one', `01${'00'.repeat(31)}`],
    ['one, negative', `01${'00'.repeat(30)}80`],
    ['p', `ed${'ff'.repeat(30)}7f`],
    ['p + 1', `ee${'ff'.repeat(30)}7f`],
    ['p + 1, negative', `ee${'ff'.repeat(31)}`],
    ['the largest', 'ff'.repeat(32)],
    ['no point', `02${'00'.repeat(31)}`],
  ])('a public key of %s', async (_, text) => {
    const publicKey = fromHex(text) ?? new Uint8Array(0)
    // S = 0: good exactly if R is the key times the negated hash.
    for (const r of ['01'.padEnd(64, '0'), '00'.repeat(32), `ec${'ff'.repeat(30)}7f`, `ee${'ff'.repeat(30)}7f`]) {
      for (let i = 0; i < 8; i += 1) {
        const sign = concat(fromHex(r) ?? new Uint8Array(0), new Uint8Array(32))
        const what = utf8(`message ${i}`)
        expect(await portable(sign, what, publicKey)).toBe(native(sign, what, publicKey))
      }
    }
  })
})

describe('signing', () => {
  test('the ML-DSA half stands for its context', async () => {
    // Goal: a signature made for another purpose is not one over a statement, and the reverse.
    const other = signHybrid(keys.secretKeys, message, { context: utf8('other'), random: countingRandom(9) })
    expect(await outcomes({ mldsa65: other.mldsa65 }, portableVerifiers)).toEqual(badMldsa65)
    expect(ml_dsa65.verify(signature.mldsa65, message, keys.publicKeys.mldsa65)).toBe(false)
    expect(ml_dsa65.verify(signature.mldsa65, message, keys.publicKeys.mldsa65, { context })).toBe(true)
    expect(toHex(context)).toBe(toHex(utf8('strongroom/attest-pq/v1')))
  })

  test('randomness is the caller’s', () => {
    // Goal: the same bytes give the same keys and signatures; other bytes give others; too few are refused.
    const again = makeHybridKeys(countingRandom(1))
    expect(again).toEqual(keys)
    expect(makeHybridKeys(countingRandom(2)).publicKeys.mlkem768).not.toEqual(keys.publicKeys.mlkem768)
    expect(signHybrid(keys.secretKeys, message, { context, random: countingRandom(9) })).toEqual(signature)
    const hedged = signHybrid(keys.secretKeys, message, { context, random: countingRandom(10) })
    expect(hedged.ed25519).toEqual(signature.ed25519)
    expect(hedged.mldsa65).not.toEqual(signature.mldsa65)
    expect(() => makeHybridKeys(length => new Uint8Array(length - 1))).toThrow('invariant')
  })

  test('a verifier that throws has not verified', async () => {
    // Goal: an injected verifier's failure is a failed check.
    const broken = () => {
      throw new Error('no such algorithm')
    }
    expect(await outcomes({}, { ...portableVerifiers, mldsa65: broken })).toEqual(badMldsa65)
    expect(await outcomes({}, { ...portableVerifiers, ed25519: async () => broken() })).toEqual(badEd25519)
  })
})

describe('keys', () => {
  test('sizes are those of the standards', () => {
    // Goal: the tables agree with the algorithms.
    for (const [name, size] of Object.entries(PUBLIC_KEY_BYTES))
      expect(keys.publicKeys[name as keyof typeof PUBLIC_KEY_BYTES]).toHaveLength(size)
    for (const [name, size] of Object.entries(SIGNATURE_BYTES))
      expect(signature[name as keyof typeof SIGNATURE_BYTES]).toHaveLength(size)
  })

  test('the digest covers every key in its place', () => {
    // Goal: SHA-256 over length and key, in the order of the design; no key can move, change or lend bytes to its
    // neighbour.
    const { ed25519, mldsa65, x25519, mlkem768 } = keys.publicKeys
    const head = (length: number) => Uint8Array.of(0, 0, length >> 8, length & 0xff)
    const expected = sha256(concat(head(32), ed25519, head(1952), mldsa65, head(32), x25519, head(1184), mlkem768))
    expect(toHex(keysDigest(keys.publicKeys))).toBe(toHex(expected))
    expect(keysDigest({ ...keys.publicKeys, ed25519: x25519, x25519: ed25519 })).not.toEqual(expected)
    for (const name of Object.keys(PUBLIC_KEY_BYTES) as (keyof typeof PUBLIC_KEY_BYTES)[]) {
      expect(keysDigest({ ...keys.publicKeys, [name]: flipped(keys.publicKeys[name], 5) })).not.toEqual(expected)
      expect(() => keysDigest({ ...keys.publicKeys, [name]: keys.publicKeys[name].slice(1) })).toThrow(Malformed)
    }
  })

  test('the agreement halves agree', () => {
    // Goal: the public keys in the bundle are those of the secret keys that stay in the VM.
    const { cipherText, sharedSecret } = ml_kem768.encapsulate(keys.publicKeys.mlkem768)
    expect(ml_kem768.decapsulate(cipherText, keys.secretKeys.mlkem768)).toEqual(sharedSecret)
    const client = nacl.box.keyPair()
    const ours = nacl.scalarMult(keys.secretKeys.x25519, client.publicKey)
    expect(nacl.scalarMult(client.secretKey, keys.publicKeys.x25519)).toEqual(ours)
  })

  test('the agreement pair is one X-Wing key', () => {
    // Goal: an X-Wing implementation of others makes the same public key of the seed, and opens with the seed what was
    // sealed to the pair.
    const random = countingRandom(1)
    const seeds = [random(32), random(32), random(32)]
    const seed = seeds[2] ?? new Uint8Array(0)
    const xwing = ml_kem768_x25519.keygen(seed)
    const pair = concat(keys.publicKeys.mlkem768, keys.publicKeys.x25519)
    expect(toHex(pair)).toBe(toHex(xwing.publicKey))
    const { cipherText, sharedSecret } = ml_kem768_x25519.encapsulate(pair)
    expect(ml_kem768_x25519.decapsulate(cipherText, seed)).toEqual(sharedSecret)
  })

  test('native keys are the portable ones', async () => {
    // Goal: of the same randomness both make the same keys, and each signature of the native ones verifies in
    // JavaScript.
    const native = makeReceiptKeys(countingRandom(1), nativeKeys)
    expect(native.publicKeys).toEqual(keys.publicKeys)
    const signatures = await native.signStatement(message)
    const checks = await verifyHybrid(native.publicKeys, message, signatures, { context, verifiers: portableVerifiers })
    expect(checks.map(check => `${check.name} ${check.outcome}`)).toEqual(good)
    expect(signatures.ed25519).toEqual(signature.ed25519)
    const plain = await native.sign(message)
    expect(ml_dsa65.verify(plain.mldsa65, message, keys.publicKeys.mldsa65)).toBe(true)
    const short = { ...nativeKeys.mlkem768(new Uint8Array(64)), publicKey: new Uint8Array(7) }
    expect(() => makeReceiptKeys(countingRandom(1), { ...nativeKeys, mlkem768: () => short })).toThrow(
      'native mlkem768: 7 bytes',
    )
  })
})
