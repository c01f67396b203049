// The KEMs of the key agreement pair: published vectors, other implementations, and what no honest sender makes.

import { describe, expect, test } from 'bun:test'
import { x25519 } from '@noble/curves/ed25519.js'
import { ml_kem768_x25519 } from '@noble/post-quantum/hybrid.js'
import { sha256 } from '../../../src/attest/hash.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { encapsulate } from '../../../src/attest/receipt/encapsulate-portable.ts'
import { decapsulateWith, KEMS, kemNames, kemPublicKey } from '../../../src/attest/receipt/kem.ts'
import { makeReceiptKeys } from '../../../src/attest/receipt/receipt-keys.ts'
import { concat, fromHex, toHex } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { nativeKeys } from '../../../src/linux/native-keys.ts'

function bytes(hex: string): Uint8Array {
  return fromHex(hex) ?? new Uint8Array(0)
}

/** Gives these bytes, part by part. */
function randomOf(all: Uint8Array): (count: number) => Uint8Array {
  let at = 0
  return count => {
    at += count
    return all.slice(at - count, at)
  }
}

const zeros = (count: number) => new Uint8Array(count)

/** RFC 9180, appendix A.1.1. */
const RFC9180 = {
  pkRm: '3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d',
  skRm: '4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8',
  skEm: '52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736',
  enc: '37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431',
  sharedSecret: 'fe0e18c9f024ce43799ae393c7e8fe8fce9d218875e8227b0187c04e7d2ea1fc',
}

/**
 * draft-connolly-cfrg-xwing-kem, spec/test-vectors.json at commit b1f7cb0c; of public key and ciphertext the SHA-256.
 */
const XWING = [
  {
    seed: '7f9c2ba4e88f827d616045507605853ed73b8093f6efbc88eb1a6eacfa66ef26',
    eseed:
      '3cb1eea988004b93103cfb0aeefd2a686e01fa4a58e8a3639ca8a1e3f9ae57e235b8cc873c23dc62b8d260169afa2f75ab916a58d974918835d25e6a435085b2',
    ss: 'd2df0522128f09dd8e2c92b1e905c793d8f57a54c3da25861f10bf4ca613e384',
    pk: '2e816deebcd76c5c80d0cd2d174478871658e8e2ff42bc9d4a6e486372e856bb',
    ct: '17cd532d657e44c897ca6583e548a5424fc70bf54f99515a4d2bcf99e3469f33',
  },
  {
    seed: 'badfd6dfaac359a5efbb7bcc4b59d538df9a04302e10c8bc1cbf1a0b3a5120ea',
    eseed:
      '17cda7cfad765f5623474d368ccca8af0007cd9f5e4c849f167a580b14aabdefaee7eef47cb0fca9767be1fda69419dfb927e9df07348b196691abaeb580b32d',
    ss: 'f2e86241c64d60f6649fbc6c5b7d17180b780a3f34355e64a85749949c45f150',
    pk: 'c42ba5f8430d7d2c83739338203819f090e8303ce9c8b02107c272bfa5376916',
    ct: '1661ea86d608a1924ba30840cb0a65f13ae051e3aec9cf0f064efc0bc92f2154',
  },
  {
    seed: 'ef58538b8d23f87732ea63b02b4fa0f4873360e2841928cd60dd4cee8cc0d4c9',
    eseed:
      '22a96188d032675c8ac850933c7aff1533b94c834adbb69c6115bad4692d8619f90b0cdf8a7b9c264029ac185b70b83f2801f2f4b3f70c593ea3aeeb613a7f1b',
    ss: '953f7f4e8c5b5049bdc771d1dffada0dd961477d1a2ae0988baa7ea6898d893f',
    pk: '6b080d6b84f095342092fa7a22423e58bd681397ad0ef00eac92bd254db4fa95',
    ct: 'd3ca5578500344b5896cffc4fd740c9311946b82951df155e6fd86a7966b43c6',
  },
]

describe('published vectors', () => {
  test('goal: DHKEM(X25519) gives the secret of RFC 9180 on both sides, natively and in JavaScript', async () => {
    const keys = { x25519: bytes(RFC9180.pkRm), mlkem768: zeros(1184) }
    const made = encapsulate('x25519', keys, randomOf(bytes(RFC9180.skEm)))
    expect(toHex(made.encapsulated)).toBe(RFC9180.enc)
    expect(toHex(made.sharedSecret)).toBe(RFC9180.sharedSecret)
    const portable = (peer: Uint8Array) => x25519.getSharedSecret(bytes(RFC9180.skRm), peer)
    for (const agree of [nativeKeys.x25519(bytes(RFC9180.skRm)).agree, portable]) {
      const decapsulate = decapsulateWith(keys, { x25519: agree, mlkem768: () => zeros(32) })
      expect(toHex(await decapsulate('x25519', made.encapsulated))).toBe(RFC9180.sharedSecret)
    }
  })

  test.each(XWING)('goal: X-Wing of the seed $seed gives the draft’s key, ciphertext and secret', async vector => {
    // The first two draws are the signature keys' seeds.
    const keys = makeReceiptKeys(randomOf(concat(zeros(64), bytes(vector.seed))), nativeKeys)
    expect(toHex(sha256(kemPublicKey('xwing', keys.publicKeys)))).toBe(vector.pk)
    const made = encapsulate('xwing', keys.publicKeys, randomOf(bytes(vector.eseed)))
    expect(toHex(sha256(made.encapsulated))).toBe(vector.ct)
    expect(toHex(made.sharedSecret)).toBe(vector.ss)
    expect(toHex(await keys.decapsulate('xwing', made.encapsulated))).toBe(vector.ss)
  })
})

describe("a receipt's keys", () => {
  const keys = makeReceiptKeys(systemRandom, nativeKeys)

  test('goal: X-Wing by another implementation opens with these keys, and the other way round', async () => {
    const { cipherText, sharedSecret } = ml_kem768_x25519.encapsulate(kemPublicKey('xwing', keys.publicKeys))
    expect(await keys.decapsulate('xwing', cipherText)).toEqual(sharedSecret)
    const other = ml_kem768_x25519.keygen(systemRandom(32))
    const pair = { mlkem768: other.publicKey.slice(0, 1184), x25519: other.publicKey.slice(1184) }
    const made = encapsulate('xwing', pair, systemRandom)
    expect(ml_kem768_x25519.decapsulate(Uint8Array.from(made.encapsulated), other.secretKey)).toEqual(
      Uint8Array.from(made.sharedSecret),
    )
  })

  test('goal: nothing of the private keys can be reached: the object holds public keys and functions', () => {
    const { publicKeys, ...rest } = keys
    expect(Object.keys(publicKeys).sort()).toEqual(['ed25519', 'mldsa65', 'mlkem768', 'x25519'])
    expect(Object.entries(rest).map(([name, value]) => [name, typeof value])).toEqual([
      ['decapsulate', 'function'],
      ['sign', 'function'],
      ['signNow', 'function'],
      ['signClassically', 'function'],
      ['signStatement', 'function'],
    ])
  })

  test('goal: a flipped byte anywhere in the encapsulated key gives another secret or none, never the same', async () => {
    for (const kem of kemNames) {
      const made = encapsulate(kem, keys.publicKeys, systemRandom)
      const step = kem === 'x25519' ? 1 : 37
      for (let at = 0; at < made.encapsulated.length; at += step) {
        const changed = made.encapsulated.map((byte, i) => (i === at ? byte ^ 1 : byte))
        const found = await keys.decapsulate(kem, changed).catch(() => null)
        expect(found === null || toHex(found) !== toHex(made.sharedSecret)).toBe(true)
      }
    }
  })

  test('goal: points of small order are refused, in either suite and either direction', async () => {
    // RFC 7748 section 6.1; the points of order 1, 2, 4 and 8 and their other spellings.
    const points = [
      '00'.repeat(32),
      `01${'00'.repeat(31)}`,
      'e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800',
      '5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157',
      `ec${'ff'.repeat(30)}7f`,
      `ed${'ff'.repeat(30)}7f`,
      `ee${'ff'.repeat(30)}7f`,
    ].map(bytes)
    const { encapsulated } = encapsulate('xwing', keys.publicKeys, systemRandom)
    for (const point of points) {
      const pair = { ...keys.publicKeys, x25519: point }
      for (const kem of kemNames) expect(() => encapsulate(kem, pair, systemRandom)).toThrow(Malformed)
      await expect(keys.decapsulate('x25519', point)).rejects.toThrow(Malformed)
      await expect(keys.decapsulate('xwing', concat(encapsulated.slice(0, 1088), point))).rejects.toThrow(Malformed)
    }
  })

  test('goal: keys and encapsulated keys of other lengths, and ML-KEM keys that are none, are refused', async () => {
    for (const kem of kemNames) {
      const length = KEMS[kem].encapsulatedBytes
      for (const wrong of [0, length - 1, length + 1])
        await expect(keys.decapsulate(kem, zeros(wrong))).rejects.toThrow(Malformed)
    }
    const short = { ...keys.publicKeys, x25519: zeros(31) }
    for (const kem of kemNames) expect(() => encapsulate(kem, short, systemRandom)).toThrow(Malformed)
    const unreduced = { ...keys.publicKeys, mlkem768: zeros(1184).fill(0xff) }
    expect(() => encapsulate('xwing', unreduced, systemRandom)).toThrow(Malformed)
  })
})
