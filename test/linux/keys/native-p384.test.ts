// Goal: a gateway's VM accepts the signatures of NVIDIA that relying parties accept, and no other.

import { expect, test } from 'bun:test'
import { p384 } from '@noble/curves/nist.js'
import { portableP384 } from '../../../src/attest/nvidia/portable-p384.ts'
import type { VerifyP384 } from '../../../src/attest/nvidia/signature.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { nativeP384 } from '../../../src/linux/keys/native-p384.ts'

const scalarBytes = 48
const secretKey = p384.utils.randomSecretKey()
const point = p384.getPublicKey(secretKey, false)
const message = utf8('a report')
const signature = p384.sign(message, secretKey, { prehash: true, lowS: true })
const flipped = (bytes: Uint8Array, at: number) => bytes.with(at, (bytes[at] ?? 0) ^ 1)

/** The same R with the other S, which signs the same message. */
function withOtherS(): Uint8Array {
  const { r, s } = p384.Signature.fromBytes(signature)
  return new p384.Signature(r, p384.Point.Fn.ORDER - s).toBytes()
}

function withScalar(at: 0 | 48, scalar: Uint8Array): Uint8Array {
  const changed = Uint8Array.from(signature)
  changed.set(scalar, at)
  return changed
}

/** A throw counts as a refusal, as in signature.ts. */
function holds(verify: VerifyP384, ...signed: Parameters<VerifyP384>): boolean {
  try {
    return verify(...signed)
  } catch {
    return false
  }
}

const order = Uint8Array.fromHex(p384.Point.Fn.ORDER.toString(16).padStart(2 * scalarBytes, '0'))
const CASES: readonly (readonly [string, boolean, Parameters<VerifyP384>])[] = [
  ['a good signature', true, [signature, message, point]],
  ['S in the upper half of its range', true, [withOtherS(), message, point]],
  ['another message', false, [signature, utf8('another report'), point]],
  ['another R', false, [flipped(signature, 0), message, point]],
  ['another S', false, [flipped(signature, 95), message, point]],
  ['R of zero', false, [withScalar(0, new Uint8Array(scalarBytes)), message, point]],
  ['S of zero', false, [withScalar(48, new Uint8Array(scalarBytes)), message, point]],
  ['S of the order', false, [withScalar(48, order), message, point]],
  ['a short signature', false, [signature.subarray(0, 95), message, point]],
  ['another key', false, [signature, message, p384.getPublicKey(p384.utils.randomSecretKey(), false)]],
  ['a point that is not on the curve', false, [signature, message, flipped(point, 96)]],
  ['the point at infinity', false, [signature, message, new Uint8Array(97)]],
]

test.each(CASES)('goal: %s: %p, natively and in JavaScript', (_name, isGood, signed) => {
  expect([holds(nativeP384, ...signed), holds(portableP384, ...signed)]).toEqual([isGood, isGood])
})
