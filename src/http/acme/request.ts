// A certificate request with a private key in memory. Effects: the randomness of the signature.

import { sign } from 'node:crypto'
import { requestBy } from '../../attest/x509/certificate-request.ts'
import { spkiOf } from '../../linux/keys/spki.ts'

/** DER. `name`: null for a request where only the key counts. `key`: a private P-256 key as PEM. */
export function certificateRequest(name: string | null, key: string): Uint8Array {
  return requestBy({ spki: spkiOf(key), sign: message => sign('sha256', message, key) }, name)
}
