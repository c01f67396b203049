// Goal: a backup is restored only with a signature of the operator key that the operator names, over the manifest as it
// is, and never with one that the key made for something else.

import { expect, test } from 'bun:test'
import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, sign } from 'node:crypto'
import { failure } from '../../scripts/rigs/until.ts'
import { checkSignature, signatureBytesMax, signerOf, signManifest } from '../../src/backup/signature.ts'
import { fromHex, toHex } from '../../src/base/bytes.ts'

const newPem = () =>
  generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey.export({ format: 'pem', type: 'pkcs8' }).toString()
const pem = newPem()
const signer = await signerOf(Buffer.from(pem), '/state/operator-key.pem')
const manifest = Buffer.from('{"format":"a manifest"}\n')
const signature = await signManifest(manifest, signer)

/** The point of a key, as 04, x and y in hexadecimal. */
const pointOf = (text: string) => {
  const { x = '', y = '' } = createPublicKey(createPrivateKey(text)).export({ format: 'jwk' })
  return `04${[x, y].map(part => Buffer.from(part, 'base64url').toString('hex')).join('')}`
}
const documentOf = (value: object) => Buffer.from(JSON.stringify(value))
const byHand = (text: string, message: Uint8Array) => ({
  public_key: pointOf(text),
  signature: sign('sha384', message, { key: text, dsaEncoding: 'ieee-p1363' }).toString('hex'),
})
const signed = (message: Uint8Array) => Buffer.concat([Buffer.from('strongroom/backup-manifest/v2\n'), message])

test('goal: the digest of the key that signed, for the manifest that it signed', async () => {
  expect(await checkSignature(manifest, signature, signer.digest)).toEqual(signer.digest)
  expect(signature.length).toBeLessThan(signatureBytesMax)
  const { public_key: point } = JSON.parse(Buffer.from(signature).toString()) as { public_key: string }
  expect(point).toBe(pointOf(pem))
  // By another implementation, over the context and the manifest.
  expect(await checkSignature(manifest, documentOf(byHand(pem, signed(manifest))), signer.digest)).toEqual(
    signer.digest,
  )
})

// Goal: each of them is refused, with words that say what to do, and without the digest of the key that was found.
test.each([
  ['no signature', manifest, null, 'the backup is not signed; --unsigned restores it'],
  ['another manifest', Buffer.from('{"format":"b manifest"}\n'), signature, 'does not fit its content'],
  ['a longer manifest', Buffer.concat([manifest, Buffer.from(' ')]), signature, 'does not fit its content'],
  ['the manifest without its context', manifest, documentOf(byHand(pem, manifest)), 'does not fit its content'],
  ['another key', manifest, documentOf(byHand(newPem(), signed(manifest))), 'but with another one'],
  [
    'a point that is none',
    manifest,
    documentOf({ public_key: `04${'00'.repeat(96)}`, signature: '00'.repeat(96) }),
    'public_key is not a point of P-384',
  ],
  [
    'a signature of another length',
    manifest,
    documentOf({ public_key: pointOf(pem), signature: '00'.repeat(95) }),
    'manifest.sig',
  ],
  ['a field more', manifest, documentOf({ ...byHand(pem, signed(manifest)), more: 1 }), 'manifest.sig'],
  ['no JSON', manifest, Buffer.from('{'), 'manifest.sig'],
] as const)('%s', async (_, bytes, found, words) => {
  const fault = await failure(checkSignature(bytes, found, signer.digest))
  expect(fault).toMatchObject({ code: 'invalid_request', message: expect.stringContaining(words) })
})

test('goal: only who says so restores without a check, and gets no digest', async () => {
  for (const found of [null, signature, Buffer.from('{')]) {
    expect(await checkSignature(manifest, found, 'any')).toBeNull()
  }
})

test('goal: the digest is that of the ID key, as evidence has it', async () => {
  // SEV-SNP ABI, ECDSA public key: curve 2, then Qx and Qy, little-endian in 72 bytes each, in 1028 bytes.
  const [x, y] = [pointOf(pem).slice(2, 98), pointOf(pem).slice(98)]
  const key = Buffer.alloc(1028)
  key.writeUInt32LE(2, 0)
  key.set((fromHex(x) ?? new Uint8Array()).toReversed(), 4)
  key.set((fromHex(y) ?? new Uint8Array()).toReversed(), 76)
  expect(toHex(signer.digest)).toBe(createHash('sha384').update(key).digest('hex'))
})

test('goal: a file that holds no such key is named, and nothing of its text is', async () => {
  const ed25519 = generateKeyPairSync('ed25519').privateKey.export({ format: 'pem', type: 'pkcs8' })
  const p256 = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ format: 'pem', type: 'pkcs8' })
  for (const text of [String(ed25519), String(p256), 'secret text', '']) {
    const { code, message } = await failure(signerOf(Buffer.from(text), '/state/operator-key.pem'))
    expect([code, message]).toEqual([
      'internal',
      expect.stringContaining('Cannot sign the backup: /state/operator-key.pem: '),
    ])
    expect(message.includes('secret text')).toBe(false)
  }
})
