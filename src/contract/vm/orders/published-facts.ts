// A published port as the statement of its VM has it, and as a verifier sees it. Pure.

import { Closed, Sha256 } from '../../forms.ts'
import { type Static, Type } from '../../type.ts'

export const PublishedFacts = Closed({
  /** Digest of the SubjectPublicKeyInfo of its TLS key (RFC 5280 4.1.2.7). */
  keySha256: Sha256,
  /** The label in front of the instance's host name. */
  name: Type.String({ pattern: '^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$' }),
  /** Port of a program of the owner, above the privileged ones. */
  port: Type.Integer({ minimum: 1_024, maximum: 65_535 }),
})
export type PublishedFacts = Static<typeof PublishedFacts>
