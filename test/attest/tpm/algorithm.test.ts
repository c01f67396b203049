// Goal: the identifiers of TCG TPM 2.0 Library, Part 2, tables of TPM_ALG_ID and TPM_ECC_CURVE. A TPM that means
// another algorithm than the verifier signs something else.

import { expect, test } from 'bun:test'
import { ALGORITHM, BANKS, bankNames, bankOf, CURVES, curveNames } from '../../../src/attest/tpm/algorithm.ts'
import { toHex } from '../../../src/base/bytes.ts'

test('goal: algorithms', () => {
  expect(ALGORITHM).toEqual({
    ...{ rsa: 0x01, aes: 0x06, null: 0x10, rsassa: 0x14, rsaes: 0x15, rsapss: 0x16, oaep: 0x17, ecdsa: 0x18 },
    ...{ ecc: 0x23, cfb: 0x43 },
  })
})

test('goal: banks, with the hash of no bytes in each', () => {
  const empty = {
    'SHA-1': 'da39a3ee5e6b4b0d3255bfef95601890afd80709',
    'SHA-256': 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855',
    'SHA-384': '38b060a751ac96384cd9327eb1b1e36a21fdb71114be07434c0cc7bf63f6e1da274edebfe76f65fbd51ad2f14898b95b',
    'SHA-512':
      'cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81' +
      'a538327af927da3e',
  }
  const ids = { 'SHA-1': 0x04, 'SHA-256': 0x0b, 'SHA-384': 0x0c, 'SHA-512': 0x0d }
  expect([...bankNames]).toEqual(['SHA-1', 'SHA-256', 'SHA-384', 'SHA-512'])
  expect(Object.keys(BANKS)).toEqual([...bankNames])
  for (const name of bankNames) {
    const { id, sizeBytes, hash } = BANKS[name]
    expect<unknown[]>([id, sizeBytes, toHex(hash(new Uint8Array(0)))]).toEqual([
      ids[name],
      empty[name].length / 2,
      empty[name],
    ])
    expect(bankOf(id)).toBe(name)
  }
  for (const id of [0, 0x05, 0x0a, 0x0e, 0x27]) expect(bankOf(id)).toBeNull()
})

test('goal: curves, with the size of a coordinate', () => {
  expect(CURVES).toEqual({
    'P-256': { id: 3, sizeBytes: 32 },
    'P-384': { id: 4, sizeBytes: 48 },
    'P-521': { id: 5, sizeBytes: 66 },
  })
  expect([...curveNames]).toEqual(['P-256', 'P-384', 'P-521'])
})
