// Requests of the VM's programs at the agent's TPM socket: one line, bytes in base64url. Pure.
//
// `NONCE`: a quote over 32 bytes. `ek`: the endorsement key's public area. `activate CREDENTIAL`: proof that the TPM
// holds endorsement key and attestation key.

import { CREDENTIAL_BYTES } from '../../attest/tpm/make-credential.ts'
import { fromBase64Url, fromUtf8, toBase64Url } from '../../base/bytes.ts'

export type TpmRequest =
  | { readonly kind: 'quote'; readonly nonce: Uint8Array }
  | { readonly kind: 'endorsement-key' }
  | { readonly kind: 'activate'; readonly credential: Uint8Array }

export const tpmNonceBytes = 32
const credentialBytes = CREDENTIAL_BYTES.idObject + CREDENTIAL_BYTES.secret
const activatePrefix = 'activate '

/** The longest request with its LF. */
export const tpmRequestBytesMax = activatePrefix.length + Math.ceil((credentialBytes * 4) / 3) + 1

export function encodeTpmRequest(request: TpmRequest): string {
  if (request.kind === 'quote') return `${toBase64Url(request.nonce)}\n`
  return request.kind === 'activate' ? `${activatePrefix}${toBase64Url(request.credential)}\n` : 'ek\n'
}

/** Null for anything else. */
export function decodeTpmRequest(line: Uint8Array): TpmRequest | null {
  if (line.length > tpmRequestBytesMax || line.at(-1) !== 0x0a || line.some(byte => byte >= 0x80)) return null
  const text = fromUtf8(line.subarray(0, line.length - 1))
  if (text === 'ek') return { kind: 'endorsement-key' }
  if (!text.startsWith(activatePrefix)) {
    const nonce = fromBase64Url(text)
    return nonce?.length === tpmNonceBytes ? { kind: 'quote', nonce } : null
  }
  const credential = fromBase64Url(text.slice(activatePrefix.length))
  return credential?.length === credentialBytes ? { kind: 'activate', credential } : null
}
