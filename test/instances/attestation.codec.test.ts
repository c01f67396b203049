// Goal: the request of an attestation has one nonce of 32 bytes or none, and the document shows what the claim has.

import { expect, test } from 'bun:test'
import { readNonce, toAttestation } from '../../src/instances/attestation.codec.ts'
import { faultOf } from '../rigs/fault-of.ts'

const path = '/v1/instances/abcd2345/attestation'
/** The bytes 0 to 31. */
const nonce = 'AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8'
const bytes = Uint8Array.from({ length: 32 }, (_, at) => at)

test('goal: the nonce of the query, whatever the rest of the URL is; null without a query', () => {
  for (const query of ['', '?', '#nonce']) expect([query, readNonce(`${path}${query}`)]).toEqual([query, null])
  for (const url of [`${path}?nonce=${nonce}`, `http://a.example${path}?nonce=${nonce}#x`, `?nonce=${nonce}&`])
    expect([url, readNonce(url)]).toEqual([url, bytes])
})

test('goal: another field, a second nonce and any other form are refused, and the fault names the field', () => {
  const refusal = (query: string) => {
    const { code, param, message } = faultOf(() => readNonce(`${path}?${query}`))
    return [code, param, message]
  }
  const unknown = (name: string) => [
    'invalid_request',
    name,
    `The query has an unknown field ${JSON.stringify(name)}; it may have nonce.`,
  ]
  expect(refusal('Nonce=1')).toEqual(unknown('Nonce'))
  expect(refusal(`nonce=${nonce}&a=1`)).toEqual(unknown('a'))
  expect(refusal(`a"=1&nonce=${nonce}`)).toEqual(unknown('a"'))
  expect(refusal(`${'x'.repeat(65)}=1`)).toEqual(unknown('x'.repeat(64)))
  expect(refusal(`nonce=${nonce}&nonce=${nonce}`)).toEqual(['invalid_request', 'nonce', 'Send one nonce, once.'])
  for (const text of [
    '',
    'A',
    nonce.slice(1),
    `${nonce}A`,
    `${nonce.slice(1)}!`,
    `${nonce.slice(1)}%3D`,
    `${nonce.slice(0, -1)}9`,
  ])
    expect([text, ...refusal(`nonce=${text}`)]).toEqual([
      text,
      'invalid_request',
      'nonce',
      'The nonce must be 32 bytes as 43 characters of base64url without padding.',
    ])
})

const receipt = {
  format: 'strongroom/attest-pq/v1',
  platform: 'snp',
  statement: 'AQ',
  keys: { ed25519: 'AQ', mldsa65: 'Ag', x25519: 'Aw', mlkem768: 'BA' },
  signatures: { ed25519: 'BQ', mldsa65: 'Bg' },
  evidence: { report: 'Bw', vek: 'CA', chain: ['CQ', 'Cg'] },
} as const
const claimed = {
  organization: 'acme',
  name: 'abcd2345',
  hostname: 'abcd2345.acme.agents.example',
  publicKey: 'ssh-ed25519 AAAA me',
  sshHostKey: 'ssh-ed25519 BBBB',
  claim: '{"claim":1}',
}

test('goal: each field of the document is that of the claim, the launch or the nonce; internal if one has no such form', () => {
  const evidence = { receipt, launch: '{"launch":1}' } as never
  expect(toAttestation(evidence, { nonce: bytes, claimed })).toEqual({
    schemaVersion: 1,
    scope: 'claim-only',
    organization: 'acme',
    name: 'abcd2345',
    hostname: 'abcd2345.acme.agents.example',
    nonce,
    known_hosts: 'abcd2345.acme.agents.example ssh-ed25519 BBBB',
    public_key: 'ssh-ed25519 AAAA me',
    launch: '{"launch":1}',
    claim: '{"claim":1}',
    receipt,
  } as never)
  expect(faultOf(() => toAttestation(evidence, { nonce: bytes.subarray(1), claimed })).code).toBe('internal')
  expect(faultOf(() => toAttestation(evidence, { nonce: bytes, claimed: { ...claimed, name: 'X' } })).code).toBe(
    'internal',
  )
})
