// The nonce of an attestation request (contract 4.2). Pure.

import { fromBase64Url } from '../../base/bytes.ts'
import { Fault } from '../../base/fault.ts'
import { nonceLength } from '../../contract/http/attestation.ts'

export const nonceBytes = 32

/**
 * Returns the nonce of `?nonce=` or X-Attestation-Nonce: 32 bytes in unpadded base64url, given once. Throws Fault
 * invalid_request.
 */
export function readNonce(request: Pick<Request, 'url' | 'headers'>): Uint8Array {
  // Not `new URL`: it throws for the URL of a request without a Host header.
  const [, query = ''] = /\?([^#]*)/.exec(request.url) ?? []
  const inQuery = new URLSearchParams(query).getAll('nonce')
  const inHeader = request.headers.get('x-attestation-nonce')
  const given = inHeader === null ? inQuery : [...inQuery, inHeader]
  const [text] = given
  if (text === undefined) throw invalidNonce('The nonce is missing; send one as ?nonce= or as X-Attestation-Nonce.')
  if (given.length > 1)
    throw invalidNonce('More than one nonce was sent; send one, as ?nonce= or as X-Attestation-Nonce.')
  // A header sent twice arrives joined by a comma, which is not base64url.
  const bytes = text.length === nonceLength ? fromBase64Url(text) : null
  if (bytes?.length !== nonceBytes) {
    throw invalidNonce(
      `The nonce must be ${nonceBytes} bytes as ${nonceLength} characters of base64url without padding.`,
    )
  }
  return bytes
}

function invalidNonce(message: string): Fault {
  return new Fault('invalid_request', message, { param: 'nonce' })
}
