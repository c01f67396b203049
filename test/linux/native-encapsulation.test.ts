// Encapsulation by the runtime, against the decapsulation of gateways.

import { describe, expect, test } from 'bun:test'
import { Malformed } from '../../src/attest/malformed.ts'
import { encapsulateWith } from '../../src/attest/receipt/encapsulate.ts'
import { encapsulate } from '../../src/attest/receipt/encapsulate-portable.ts'
import { kemNames } from '../../src/attest/receipt/kem.ts'
import { makeReceiptKeys } from '../../src/attest/receipt/receipt-keys.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { nativeEncapsulation } from '../../src/linux/native-encapsulation.ts'
import { nativeKeys } from '../../src/linux/native-keys.ts'

const { publicKeys, decapsulate } = makeReceiptKeys(systemRandom, nativeKeys)

describe.each([...kemNames])('%s', kem => {
  // Goal: the holder of the keys opens what the runtime encapsulates, as it opens what JavaScript encapsulates; each
  // secret is new.
  test('opens', async () => {
    const native = await encapsulateWith(kem, publicKeys, nativeEncapsulation)
    expect(await decapsulate(kem, native.encapsulated)).toEqual(native.sharedSecret)
    const portable = encapsulate(kem, publicKeys, systemRandom)
    expect(await decapsulate(kem, portable.encapsulated)).toEqual(portable.sharedSecret)
    expect(native.encapsulated.length).toBe(portable.encapsulated.length)
    const again = await encapsulateWith(kem, publicKeys, nativeEncapsulation)
    expect(again.encapsulated).not.toEqual(native.encapsulated)
  })

  // Goal: points of small order, keys of another length and coefficients that are not reduced are refused.
  test('refuses what is no key', async () => {
    const bad = [
      { ...publicKeys, x25519: new Uint8Array(32) },
      { ...publicKeys, x25519: new Uint8Array(31) },
      ...(kem === 'xwing'
        ? [
            { ...publicKeys, mlkem768: new Uint8Array(1184).fill(0xff) },
            { ...publicKeys, mlkem768: new Uint8Array(1183) },
          ]
        : []),
    ]
    for (const keys of bad) {
      await expect(encapsulateWith(kem, keys, nativeEncapsulation)).rejects.toBeInstanceOf(Malformed)
    }
  })
})
