// Goal: the edges of what sshd lets in as a key: points of curves as OpenSSH judges them, numbers, and the fingerprint.

import { expect, test } from 'bun:test'
import { messageOf } from '../../src/base/fault.ts'
import { parsePublicKey, sshKeyDigest } from '../../src/instances/public-key.codec.ts'

const string = (content: Uint8Array | string) => {
  const size = Buffer.alloc(4)
  size.writeUInt32BE(Buffer.from(content).length)
  return Buffer.concat([size, Buffer.from(content)])
}
const keyLine = (type: string, ...parts: Uint8Array[]) =>
  `${type} ${Buffer.concat([string(type), ...parts]).toString('base64')}`
const hex = (digits: string, sizeBytes: number) => Buffer.from(digits.padStart(2 * sizeBytes, '0'), 'hex')

function verdict(text: string): string {
  try {
    return parsePublicKey(text) === text ? 'accepted' : 'changed'
  } catch (error) {
    return messageOf(error)
  }
}

const ecdsa = (curve: 'nistp256' | 'nistp384', [x, y]: readonly [string, string]) => {
  const sizeBytes = curve === 'nistp256' ? 32 : 48
  const point = Buffer.concat([Buffer.of(4), hex(x, sizeBytes), hex(y, sizeBytes)])
  return keyLine(`ecdsa-sha2-${curve}`, string(curve), string(point))
}

/** Points of the curves, found by their equation (SP 800-186 3.2.1). */
const POINTS = {
  // Coordinates of half the order's bits and fewer are refused (OpenSSH, sshkey_ec_validate_public).
  'x of 129 bits on P-256': [
    ecdsa('nistp256', [
      '100000000000000000000000000000000',
      '4d8531d11aecbfe7bc2c6f48e2a1a3fd264a9165a891001f9b7c2d4a19d9d622',
    ]),
    'accepted',
  ],
  'x of 128 bits on P-256': [
    ecdsa('nistp256', [
      'ffffffffffffffffffffffffffffffff',
      '4f2b92b4c596a5a47f8b041d2dea6043021ac77b9a80b1343ac9d778f4f8f733',
    ]),
    'public_key has a point that is not on its curve',
  ],
  // So is what is not below the order less one.
  'x = n - 3 on P-384': [
    ecdsa('nistp384', [
      `${'f'.repeat(48)}c7634d81f4372ddf581a0db248b0a77aecec196accc52970`,
      'b828da679a862c251545b031602e343254064bb702923f513805a3be20f5ce5c2eb5b375994bd73b855412bc660c0f67',
    ]),
    'accepted',
  ],
  'x = n - 1 on P-384': [
    ecdsa('nistp384', [
      `${'f'.repeat(48)}c7634d81f4372ddf581a0db248b0a77aecec196accc52972`,
      'a0c33fa03ea3227aba1380da2ae232a5123aca9ca6e67875132c095e8228fd94965eacf8356cdcdd138e5ac56b2cfcee',
    ]),
    'public_key has a point that is not on its curve',
  ],
  // The same of y.
  'y of 129 bits on P-256': [
    ecdsa('nistp256', [
      '6abedadec8ed495f8fbe881824703527ce3effeb8bc5512bc7eaffb64406361d',
      '100000000000000000000000000000000',
    ]),
    'accepted',
  ],
  'y of 128 bits on P-256': [
    ecdsa('nistp256', [
      'd1f4f2a6a65d70d7133156e7f1ad2ca4a0d00d048e717a250f971f7a494c191c',
      'ffffffffffffffffffffffffffffffff',
    ]),
    'public_key has a point that is not on its curve',
  ],
  'y = n - 2 on P-256': [
    ecdsa('nistp256', [
      'ae5d2f1d541d0073317ecac06eead1aeb656c0d999a856771170d6390cd6ba34',
      'ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc63254f',
    ]),
    'accepted',
  ],
  'y = n - 1 on P-256': [
    ecdsa('nistp256', [
      'e5b2bc2bd37b97a13fd4d4aa58707ba045deff3cec7e6f74d93a48167beafb0d',
      'ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632550',
    ]),
    'public_key has a point that is not on its curve',
  ],
} as const

for (const [what, [text, expected]] of Object.entries(POINTS)) {
  test(`goal: ${what}: ${expected}`, () => {
    expect(verdict(text)).toBe(expected)
  })
}

test('goal: a number whose first bit is set is negative (RFC 4251 5), and one with a needless zero is padded', () => {
  const refusal = 'public_key has a number that is not a canonical positive mpint'
  const modulus = string(Buffer.concat([Buffer.of(0, 0x80), Buffer.alloc(254), Buffer.of(1)]))
  const rsa = (exponent: readonly number[]) => verdict(keyLine('ssh-rsa', string(Buffer.from(exponent)), modulus))
  expect([rsa([3]), rsa([1, 0, 1]), rsa([0, 0x81])]).toEqual(['accepted', 'accepted', 'accepted'])
  for (const exponent of [[], [0], [0x80], [0x80, 1], [0, 3], [0, 0x7f]]) expect(rsa(exponent)).toBe(refusal)
})

test('goal: the fingerprint is the SHA-256 of the blob alone', () => {
  // `ssh-keygen -l` of this key; base64 without padding.
  const line = `${keyLine('ssh-ed25519', string(Buffer.alloc(32, 7)))}`
  const expected = new Bun.CryptoHasher('sha256').update(Buffer.from(line.split(' ')[1] ?? '', 'base64')).digest('hex')
  for (const text of [line, `${line} me@host`]) expect(Buffer.from(sshKeyDigest(text)).toString('hex')).toBe(expected)
  for (const text of ['', 'ssh-ed25519', 'ssh-ed25519 ', 'ssh-ed25519 !!!!']) {
    expect(() => sshKeyDigest(text)).toThrow('an SSH public key is `type base64`')
  }
})
