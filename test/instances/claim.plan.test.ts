// Goal: the claim says what its instance says, only its guest opens it, and only its canonical document is read back.

import { expect, spyOn, test } from 'bun:test'
import nacl from 'tweetnacl'
import {
  sampleClaim,
  sampleClaimText,
  sampleDocument,
  sampleFields,
  sampleKey,
  sampleNetwork,
} from '../../scripts/rigs/instances/sample-claim.ts'
import { claimDocumentCharsMax } from '../../src/contract/http/instance-attestation.ts'
import { claimOf, sealClaim, statedClaim, statedFields } from '../../src/instances/claim.plan.ts'
import { faultOf } from '../rigs/fault-of.ts'

const owner = { organization: 'acme', name: 'abcd2345', hostname: 'abcd2345.example', publicKey: 'ssh-ed25519 AAAA' }
const text = sampleClaimText(owner)

test('goal: each field of the claim is of the instance, its id too', () => {
  const { inference, egress } = sampleClaim(owner)
  const { model: _, ...offered } = inference
  const egressPolicy = null
  const row = { id: 'i1', name: 'box', hostname: 'box.example', publicKey: 'k', inferenceModel: 'big' }
  const instance = { ...row, egressPolicy } as never
  expect(claimOf({ instance, organization: 'acme', inference: offered, egress })).toEqual({
    claimId: 'i1',
    organization: 'acme',
    name: 'box',
    hostname: 'box.example',
    publicKey: 'k',
    inference: { ...inference, model: 'big' },
    egress,
  })
  const text = '{"allow":[{"host":"github.com","port":443}],"default":"refuse"}'
  const restricted = { ...row, egressPolicy: text } as never
  const claim = claimOf({ instance: restricted, organization: 'acme', inference: offered, egress })
  expect(claim.egress).toEqual({ ...egress, policy: JSON.parse(text) })
})

test('goal: a canonical document is read, and one that differs in a space or is too long is not', () => {
  expect(statedClaim(sampleClaim(owner), sampleNetwork, sampleKey)).toBe(text)
  expect(statedFields(text)).toEqual(sampleFields(sampleDocument(owner)))
  expect(() => statedFields(` ${text}`)).toThrow('not in its canonical form')
  expect(() => statedFields(' '.repeat(claimDocumentCharsMax + 1))).toThrow('too long')
  expect(faultOf(() => statedFields(' '.repeat(claimDocumentCharsMax))).code).toBe('internal')
  expect(faultOf(() => statedFields('{}')).code).toBe('internal')
})

test('goal: only the key of the guest opens the box, each box has a key of its own, and no other length is a key', () => {
  const guest = nacl.box.keyPair()
  const drawn: number[] = []
  const random = (size: number) => new Uint8Array(size).fill(drawn.push(size))
  const claim = sampleClaim(owner)
  const bytes = (base64: string) => new Uint8Array(Buffer.from(base64, 'base64'))
  const { ephemeralKey, nonce, box } = sealClaim(claim, Buffer.from(guest.publicKey).toString('base64'), random)
  const opened = nacl.box.open(bytes(box), bytes(nonce), bytes(ephemeralKey), guest.secretKey)
  expect(JSON.parse(new TextDecoder().decode(opened ?? undefined))).toEqual(claim)
  expect([bytes(ephemeralKey).length, bytes(nonce).length, drawn]).toEqual([32, 24, [32, 24]])
  for (const length of [0, 31, 33]) {
    const key = Buffer.alloc(length, 1).toString('base64')
    expect([length, faultOf(() => sealClaim(claim, key, random)).code]).toEqual([length, 'channel.refused'])
  }
})

test('goal: the secret half of the one-time key is overwritten once the box is sealed', () => {
  const guest = nacl.box.keyPair()
  const { fromSecretKey } = nacl.box.keyPair
  const pairs: nacl.BoxKeyPair[] = []
  using _ = spyOn(nacl.box.keyPair, 'fromSecretKey').mockImplementation(secret => {
    const pair = fromSecretKey(secret)
    pairs.push(pair)
    return pair
  })
  const random = (size: number) => new Uint8Array(size).fill(5)
  const { box } = sealClaim(sampleClaim(owner), Buffer.from(guest.publicKey).toString('base64'), random)
  expect(box).not.toBe('')
  expect(pairs.map(({ secretKey }) => secretKey)).toEqual([new Uint8Array(32)])
})
