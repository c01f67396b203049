// The attestation of an instance in its wire format (contract/http/instance-attestation.ts), and its request. Pure.

import { fromBase64Url, toBase64Url } from '../base/bytes.ts'
import { Fault } from '../base/fault.ts'
import { checked } from '../contract/check.ts'
import { nonceLength } from '../contract/http/attestation.ts'
import { InstanceAttestation } from '../contract/http/instance-attestation.ts'
import type { VmEvidence } from '../vm/engine.ts'
import type { ClaimedAs } from './evidence.verify.ts'

export const nonceBytes = 32

/** Converts evidence to the wire format. Fault internal if it does not match the contract. */
export function toAttestation(
  { receipt, launch }: Pick<VmEvidence, 'receipt' | 'launch'>,
  { nonce, claimed }: { readonly nonce: Uint8Array; readonly claimed: ClaimedAs },
): InstanceAttestation {
  const { organization, name, hostname, publicKey, sshHostKey, claim } = claimed
  const document = {
    schemaVersion: 1,
    scope: 'claim-only',
    organization,
    name,
    hostname,
    nonce: toBase64Url(nonce),
    known_hosts: `${hostname} ${sshHostKey}`,
    public_key: publicKey,
    launch,
    claim,
    receipt,
  }
  return checked(InstanceAttestation, document, { what: 'attestation', code: 'internal' })
}

/**
 * Returns the nonce in the query of `GET /v1/instances/{name}/attestation`; null without a query. Fault invalid_request
 * for any other query.
 */
export function readNonce(url: string): Uint8Array | null {
  // Not `new URL`, which throws for a request without a Host header.
  const [, query = ''] = /\?([^#]*)/.exec(url) ?? []
  const fields = new URLSearchParams(query)
  const unknown = [...fields.keys()].find(name => name !== 'nonce')
  if (unknown !== undefined) {
    const param = unknown.slice(0, 64)
    throw new Fault('invalid_request', `The query has an unknown field ${JSON.stringify(param)}; it may have nonce.`, {
      param,
    })
  }
  const given = fields.getAll('nonce')
  const [text] = given
  if (text === undefined) return null
  if (given.length > 1) throw refusal('Send one nonce, once.')
  const bytes = text.length === nonceLength ? fromBase64Url(text) : null
  if (bytes?.length !== nonceBytes) {
    throw refusal(`The nonce must be ${nonceBytes} bytes as ${nonceLength} characters of base64url without padding.`)
  }
  return bytes
}

function refusal(message: string): Fault {
  return new Fault('invalid_request', message, { param: 'nonce' })
}
