// Goal: a host's request for secrets is read whole or refused, and believed only with the signature of its control key.

import { expect, test } from 'bun:test'
import { createHash, generateKeyPairSync, sign } from 'node:crypto'
import {
  decodeShareRequest,
  encodeShareRequest,
  isSignedByControlKey,
  nonceOf,
  type ShareRequest,
  type SignedRequest,
  signedBytesOf,
} from '../../../src/fleet/shared-identity/request.codec.ts'
import { faultOf } from '../../rigs/fault-of.ts'

const asked: SignedRequest = {
  host_id: 'h1',
  host_name: 'alpha',
  made_at: '2026-11-01T00:00:00.000Z',
  recipient: `age1pq1${'q'.repeat(20)}`,
}
const keys = generateKeyPairSync('ed25519')
const keyOf = ({ publicKey }: typeof keys) => String(publicKey.export({ format: 'jwk' }).x)
const request: ShareRequest = {
  format: 'strongroom/fleet-share-request/v1',
  asked,
  control_key: keyOf(keys),
  signature: sign(null, signedBytesOf(asked), keys.privateKey).toString('base64url'),
  attestation: 'a',
  workload: 'w',
}
const read = (value: unknown) => decodeShareRequest(new TextEncoder().encode(JSON.stringify(value)))

test('goal: the signed bytes begin with a line of their own, and their digest is the nonce', () => {
  const text = new TextDecoder().decode(signedBytesOf(asked))
  expect(text).toBe(
    `strongroom/fleet-share-request/v1\n{"host_id":"h1","host_name":"alpha","made_at":"2026-11-01T00:00:00.000Z","recipient":"age1pq1${'q'.repeat(20)}"}`,
  )
  expect(Buffer.from(nonceOf(asked)).toString('hex')).toBe(createHash('sha256').update(text).digest('hex'))
})

test('goal: what was written is read back, and a request with one field wrong is not', () => {
  const text = encodeShareRequest(request)
  expect(text).toEndWith('}\n')
  expect(decodeShareRequest(new TextEncoder().encode(text))).toEqual({ ok: true, value: request })
  const wrong = [
    { format: 'strongroom/fleet-share-request/v2' },
    { extra: 1 },
    { control_key: request.control_key.slice(1) },
    { signature: 'A'.repeat(85) },
    { attestation: 'a'.repeat(2 * 1024 * 1024 + 1) },
    { asked: { ...asked, host_name: '-a' } },
    { asked: { ...asked, host_name: 'a'.repeat(64) } },
    { asked: { ...asked, host_id: 'a'.repeat(65) } },
    { asked: { ...asked, made_at: '2026-11-01' } },
    { asked: { ...asked, recipient: `age1${'q'.repeat(20)}` } },
    { asked: { ...asked, recipient: `age1pq1${'q'.repeat(2_501)}` } },
    { asked: { ...asked, extra: 1 } },
  ]
  for (const change of wrong) expect([change, read({ ...request, ...change }).ok]).toEqual([change, false])
  expect(read({ ...request, attestation: 'a'.repeat(2 * 1024 * 1024) }).ok).toBe(true)
  expect(faultOf(() => decodeShareRequest(new Uint8Array([0x7b]))).code).toBe('invalid_request')
})

test('goal: any other key, text or signature is not believed, and none throws', () => {
  const other = generateKeyPairSync('ed25519')
  expect(isSignedByControlKey(request)).toBe(true)
  const changes = [
    { asked: { ...asked, host_name: 'beta' } },
    { control_key: keyOf(other) },
    { signature: sign(null, signedBytesOf(asked), other.privateKey).toString('base64url') },
    { signature: '' },
    { signature: '!' },
    { control_key: 'A' },
  ]
  for (const change of changes)
    expect([change, isSignedByControlKey({ ...request, ...change })]).toEqual([change, false])
})
