import { describe, expect, test } from 'bun:test'
import nacl from 'tweetnacl'
import { fromHex } from '../../../src/base/bytes.ts'
import { openSecretBox } from '../../../src/guest/keys/secret-box.ts'

const hex = (text: string) => fromHex(text) ?? new Uint8Array()

describe('a NaCl box', () => {
  // Goal: the example of "Cryptography in NaCl" (sections 7 to 10: Bob opens what Alice sent) opens to its message.
  test('of the paper opens', () => {
    const shared = hex('4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742')
    const nonce = hex('69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37')
    const box = hex(
      'f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186a' +
        'c0dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae' +
        '90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74e355a5',
    )
    expect(openSecretBox(shared, nonce, box)?.toHex()).toBe(
      'be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c61296cdc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705',
    )
  })

  // Goal: what tweetnacl, which the host seals with, seals to a shared secret opens at every length around a block.
  test('of every length opens as tweetnacl sealed it, and not with a changed bit', () => {
    for (const length of [0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 2_048, 30_000]) {
      const [mine, theirs] = [nacl.box.keyPair(), nacl.box.keyPair()]
      const message = nacl.randomBytes(length)
      const nonce = nacl.randomBytes(24)
      const box = nacl.box(message, nonce, theirs.publicKey, mine.secretKey)
      const secret = nacl.scalarMult(theirs.secretKey, mine.publicKey)
      expect(openSecretBox(secret, nonce, box)?.toHex()).toBe(message.toHex())
      for (const at of [0, 15, box.length - 1]) {
        const changed = Uint8Array.from(box)
        changed[at] = (changed[at] ?? 0) ^ 1
        expect(openSecretBox(secret, nonce, changed)).toBeNull()
      }
      expect(openSecretBox(secret, nacl.randomBytes(24), box)).toBeNull()
    }
  })

  // Goal: what is shorter than a tag is refused, without an error.
  test('without a whole tag is refused', () => {
    for (let length = 0; length < 16; length += 1) {
      expect(openSecretBox(new Uint8Array(32), new Uint8Array(24), new Uint8Array(length))).toBeNull()
    }
  })
})
