// Goal: a hybrid signature holds only where both of its halves do, under keys and signatures of the exact lengths, and
// every platform decides the same.

import { describe, expect, test } from 'bun:test'
import { generateKeyPairSync, sign } from 'node:crypto'
import { ml_dsa65 } from '@noble/post-quantum/ml-dsa.js'
import { type HybridVerifiers, type VerifySignature, webVerifiers } from '../../../src/attest/receipt/hybrid-verify.ts'
import {
  defaultVerifiers,
  nativeVerifiers,
  portableVerifiers,
  verifyHybrid,
} from '../../../src/attest/receipt/verifiers.ts'
import { utf8 } from '../../../src/base/bytes.ts'

const pair = generateKeyPairSync('ed25519')
const mldsa = ml_dsa65.keygen(new Uint8Array(32).fill(5))
const keys = {
  ed25519: new Uint8Array(pair.publicKey.export({ type: 'spki', format: 'der' }).subarray(-32)),
  mldsa65: mldsa.publicKey,
  x25519: new Uint8Array(32),
  mlkem768: new Uint8Array(1184),
}
const message = utf8('a statement')
const context = utf8('a context')
const signature = {
  ed25519: new Uint8Array(sign(null, message, pair.privateKey)),
  mldsa65: ml_dsa65.sign(message, mldsa.secretKey, { context }),
}

type HybridChanges = { verifiers?: HybridVerifiers; keys?: Partial<typeof keys>; signature?: Partial<typeof signature> }

/** Which halves hold, after the names of the two checks. */
async function outcomes(asked: HybridChanges = {}, bytes = message, under = context) {
  const { verifiers } = asked
  const options = { context: under, ...(verifiers === undefined ? {} : { verifiers }) }
  const checks = await verifyHybrid({ ...keys, ...asked.keys }, bytes, { ...signature, ...asked.signature }, options)
  expect(checks.map(({ name }) => name)).toEqual(['signature-ed25519', 'signature-mldsa65'])
  return checks.map(({ outcome }) => outcome === 'pass')
}

const VERIFIERS = {
  portable: portableVerifiers,
  default: defaultVerifiers,
  native: nativeVerifiers,
  // Measured programs have no others: a runtime without an algorithm fails here.
  web: webVerifiers,
}

describe.each(Object.entries(VERIFIERS))('%s verifiers', (_, verifiers) => {
  const flipped = (bytes: Uint8Array, at: number) => bytes.with(at, (bytes[at] ?? 0) ^ 1)

  test('goal: each half alone', async () => {
    expect(await outcomes({ verifiers })).toEqual([true, true])
    expect(await outcomes({ verifiers }, utf8('another statement'))).toEqual([false, false])
    expect(await outcomes({ verifiers }, message, utf8('another context'))).toEqual([true, false])
    for (const at of [0, 31, 32])
      expect(await outcomes({ verifiers, signature: { ed25519: flipped(signature.ed25519, at) } })).toEqual([
        false,
        true,
      ])
    for (const at of [0, 3308])
      expect(await outcomes({ verifiers, signature: { mldsa65: flipped(signature.mldsa65, at) } })).toEqual([
        true,
        false,
      ])
    expect(await outcomes({ verifiers, keys: { ed25519: flipped(keys.ed25519, 3) } })).toEqual([false, true])
    expect(await outcomes({ verifiers, keys: { mldsa65: flipped(keys.mldsa65, 3) } })).toEqual([true, false])
  })

  test('goal: a key that is written in another way is taken as native implementations take it', async () => {
    // The neutral element, as y = 1 and as y = p + 1. Under it, its own encoding as R and zero as S sign anything.
    const neutral = new Uint8Array(32).with(0, 1)
    const loose = new Uint8Array(32).fill(0xff).with(0, 0xee).with(31, 0x7f)
    for (const ed25519 of [neutral, loose]) {
      const signed = { ed25519: new Uint8Array([...neutral, ...new Uint8Array(32)]) }
      expect((await outcomes({ verifiers, keys: { ed25519 }, signature: signed }))[0]).toBe(true)
      // R itself has one form.
      const other = { ed25519: new Uint8Array([...loose, ...new Uint8Array(32)]) }
      expect((await outcomes({ verifiers, keys: { ed25519 }, signature: other }))[0]).toBe(false)
    }
  })
})

const always: VerifySignature = () => true
const yes = { ed25519: always, mldsa65: always }

test('goal: other lengths fail before a verifier sees them, and a throw is a failure', async () => {
  expect(await outcomes({ verifiers: yes })).toEqual([true, true])
  for (const size of [31, 33])
    expect(await outcomes({ verifiers: yes, keys: { ed25519: new Uint8Array(size) } })).toEqual([false, true])
  for (const size of [63, 65])
    expect(await outcomes({ verifiers: yes, signature: { ed25519: new Uint8Array(size) } })).toEqual([false, true])
  for (const size of [1951, 1953])
    expect(await outcomes({ verifiers: yes, keys: { mldsa65: new Uint8Array(size) } })).toEqual([true, false])
  for (const size of [3308, 3310])
    expect(await outcomes({ verifiers: yes, signature: { mldsa65: new Uint8Array(size) } })).toEqual([true, false])
  const throws = () => {
    throw new Error('no key')
  }
  expect(await outcomes({ verifiers: { ed25519: throws, mldsa65: always } })).toEqual([false, true])
  expect(await outcomes({ verifiers: { ed25519: always, mldsa65: async () => throws() } })).toEqual([true, false])
})

test('goal: S is below the order of the group, so that no second signature can be derived', async () => {
  // RFC 8032 section 5.1.
  const order = 2n ** 252n + 27742317777372353535851937790883648493n
  const holds = async (s: bigint) => {
    const ed25519 = new Uint8Array(64)
    for (let at = 0; at < 32; at += 1) ed25519[32 + at] = Number((s >> BigInt(8 * at)) & 0xffn)
    return (await outcomes({ verifiers: yes, signature: { ed25519 } }))[0]
  }
  for (const s of [0n, 1n, order - 1n, 2n ** 252n]) expect(await holds(s)).toBe(true)
  for (const s of [order, order + 1n, 2n ** 253n, 2n ** 256n - 1n]) expect(await holds(s)).toBe(false)
  // One more in any byte is too much; one less, whatever is below it, is not.
  for (let at = 0n; at < 32n; at += 1n) {
    const unit = 1n << (8n * at)
    const isFull = ((order >> (8n * at)) & 0xffn) === 0xffn
    if (!isFull) expect(await holds(order + unit)).toBe(false)
    if (((order >> (8n * at)) & 0xffn) > 0n) expect(await holds((order / unit) * unit - 1n)).toBe(true)
  }
})
