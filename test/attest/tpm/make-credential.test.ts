// Credentials opened with node:crypto, step by step as Part 1, section 24 lays down: an implementation that is not
// ours. A TPM opens them in guest/tpm/activation.slow.test.ts.

import { describe, expect, test } from 'bun:test'
import { constants, createDecipheriv, createHmac, generateKeyPairSync, privateDecrypt } from 'node:crypto'
import { Malformed } from '../../../src/attest/malformed.ts'
import {
  activationProof,
  CREDENTIAL_BYTES,
  type CredentialParts,
  makeCredential,
} from '../../../src/attest/tpm/make-credential.ts'
import { ATTRIBUTES } from '../../../src/attest/tpm/public-area.ts'
import { concat, fromBase64Url } from '../../../src/base/bytes.ts'
import { eccSample, ekAttributes, sized, u16, u32 } from '../../rigs/launch/tpm-samples.ts'

const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
const modulus = fromBase64Url(publicKey.export({ format: 'jwk' }).n ?? '') ?? new Uint8Array(0)
const name = concat(u16(0x000b), new Uint8Array(32).fill(0x77))
const secret = Uint8Array.from({ length: 32 }, (_, at) => at)
const seed = new Uint8Array(32).fill(0x5e)

/** TPMT_PUBLIC of the key above, with these fields. */
function endorsementKey(changes: { nameHash?: number; symmetric?: number[]; sign?: boolean; key?: Uint8Array } = {}) {
  const { nameHash = 0x000b, symmetric = [0x0006, 128, 0x0043], sign = false, key = modulus } = changes
  const set = sign ? [...ekAttributes, 'sign' as const] : ekAttributes
  const bits = set.reduce((sum, kind) => sum + 2 ** ATTRIBUTES[kind], 0)
  return concat(
    ...[u16(1), u16(nameHash), u32(bits), u16(0), ...symmetric.map(u16), u16(0x0010)],
    ...[u16(key.length * 8), u32(0), sized(key)],
  )
}

const make = (changes: Partial<CredentialParts> = {}) =>
  makeCredential({ endorsementKey: endorsementKey(), name, secret, seed, ...changes })

function kdfa(label: string, context: Uint8Array, bits: number): Buffer {
  const all = Buffer.concat([u32(1), Buffer.from(`${label}\0`, 'latin1'), context, u32(bits)])
  return createHmac('sha256', seed)
    .update(all)
    .digest()
    .subarray(0, bits / 8)
}

describe('a credential', () => {
  // Goal: the seed is under OAEP with SHA-256 and the label IDENTITY, the secret under AES-128-CFB, and the HMAC is
  // over it and the name.
  test('opens as the specification says', async () => {
    const bytes = Buffer.from(await make())
    expect(bytes.length).toBe(CREDENTIAL_BYTES.idObject + CREDENTIAL_BYTES.secret)
    expect([bytes.readUInt16BE(0), bytes.readUInt16BE(2), bytes.readUInt16BE(70)]).toEqual([68, 32, 256])
    const opened = privateDecrypt(
      {
        key: privateKey,
        padding: constants.RSA_PKCS1_OAEP_PADDING,
        oaepHash: 'sha256',
        oaepLabel: Buffer.from('IDENTITY\0', 'latin1'),
      },
      bytes.subarray(72),
    )
    expect(Uint8Array.from(opened)).toEqual(seed)
    const [mac, identity] = [bytes.subarray(4, 36), bytes.subarray(36, 70)]
    const expected = createHmac('sha256', kdfa('INTEGRITY', new Uint8Array(0), 256))
      .update(identity)
      .update(name)
    expect(mac.equals(expected.digest())).toBe(true)
    const cipher = createDecipheriv('aes-128-cfb', kdfa('STORAGE', name, 128), new Uint8Array(16))
    expect(sized(secret)).toEqual(Uint8Array.from(Buffer.concat([cipher.update(identity), cipher.final()])))
  })

  // Goal: nothing is wrapped for a key of another kind, whose protection would be another or none, nor with a secret
  // that can be guessed.
  test('is made for storage keys of one kind alone', async () => {
    const ecc = await eccSample('P-256', 'SHA-256')
    for (const other of [
      endorsementKey({ nameHash: 0x000c }),
      endorsementKey({ symmetric: [0x0010] }),
      endorsementKey({ symmetric: [0x0006, 256, 0x0043] }),
      endorsementKey({ symmetric: [0x0006, 128, 0x0042] }),
      endorsementKey({ sign: true }),
      endorsementKey({ key: concat(modulus, modulus) }),
      ecc.publicArea(ekAttributes),
      new Uint8Array(0),
    ])
      expect(make({ endorsementKey: other })).rejects.toThrow(Malformed)
    for (const short of [{ secret: secret.subarray(1) }, { seed: seed.subarray(1) }])
      expect(make(short)).rejects.toThrow('secret and seed')
  })

  // Goal: what shows that a secret is known does not show the secret.
  test('and its proof', () => {
    const proof = activationProof(secret)
    const expected = createHmac('sha256', secret).update('strongroom/tpm-activation/v1').digest()
    expect(proof).toEqual(Uint8Array.from(expected))
    expect(proof).not.toEqual(secret)
  })
})
