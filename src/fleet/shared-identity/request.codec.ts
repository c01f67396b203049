// A host's request for the secrets of another one: the recipient key to seal them to, and evidence that the host made
// it. Pure.
//
// The evidence is that of the host's gateway VM. HOST_DATA of its report is the digest of workload.json, which names
// the control key, and the control key signs the request. The nonce of the evidence is the digest of the request, so
// the evidence is as recent as the request and belongs only to it. Anyone may request evidence from a gateway with any
// nonce, so the signature is required too.

import { createPublicKey, verify } from 'node:crypto'
import { type Static, Type } from '@sinclair/typebox'
import { sha256 } from '../../attest/hash.ts'
import { fromBase64Url, utf8 } from '../../base/bytes.ts'
import { canonicalJson } from '../../base/canonical-json.ts'
import { parseJson } from '../../base/json.ts'
import { type CheckResult, checkValue } from '../../contract/check.ts'
import { Base64Url, Closed } from '../../contract/forms.ts'
import { workloadBytesMax } from '../../contract/vm/workload.ts'

export const shareRequestFormat = 'strongroom/fleet-share-request/v1'
/** Limit for a gateway's attestation, at most 2 MiB of JSON, and its workload.json, as texts. */
export const shareRequestBytesMax = 8 * 1024 * 1024

/** The signed part. */
export const SignedRequest = Closed({
  host_id: Type.String({ pattern: '^[0-9a-zA-Z-]{1,64}$' }),
  /** The host's name in the fleet. */
  host_name: Type.String({ pattern: '^[a-z0-9][a-z0-9-]{0,62}$' }),
  made_at: Type.String({ pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d{1,3})?Z$' }),
  /** An age recipient, a hybrid of ML-KEM-768 and X25519. The identity stays in the host's state directory. */
  recipient: Type.String({ pattern: '^age1pq1[02-9ac-hj-np-z]{1,2500}$' }),
})
export type SignedRequest = Static<typeof SignedRequest>

export const ShareRequest = Closed({
  format: Type.Literal(shareRequestFormat),
  asked: SignedRequest,
  /** The host's control key: Ed25519, base64url. */
  control_key: Base64Url(32, 32),
  signature: Base64Url(64, 64),
  /** The body of GET /attestation, with `nonceOf(asked)` as its nonce. */
  attestation: Type.String({ maxLength: 2 * 1024 * 1024 }),
  /** The body of GET /workload.json. */
  workload: Type.String({ maxLength: workloadBytesMax }),
})
export type ShareRequest = Static<typeof ShareRequest>

/** Returns the bytes that the control key signs. No other message of that key begins with this line. */
export function signedBytesOf(asked: SignedRequest): Uint8Array {
  return utf8(`${shareRequestFormat}\n${canonicalJson(asked)}`)
}

/** Returns the nonce of 32 bytes. */
export function nonceOf(asked: SignedRequest): Uint8Array {
  return sha256(signedBytesOf(asked))
}

export function encodeShareRequest(request: ShareRequest): string {
  return `${canonicalJson(request)}\n`
}

/** Decodes a request. Throws Fault invalid_request if the bytes are not JSON. */
export function decodeShareRequest(bytes: Uint8Array): CheckResult<ShareRequest> {
  return checkValue(ShareRequest, parseJson(bytes, { depthMax: 4, what: 'The request' }))
}

/** Reports whether the control key in the request signed it. */
export function isSignedByControlKey({ asked, control_key: key, signature }: ShareRequest): boolean {
  const signed = fromBase64Url(signature)
  if (signed === null) return false
  try {
    const publicKey = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: key }, format: 'jwk' })
    return verify(null, signedBytesOf(asked), publicKey, signed)
  } catch {
    return false
  }
}
