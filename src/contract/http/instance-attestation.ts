// The attestation of an instance, which its owner verifies offline before the first login. Pure.

import { Closed } from '../forms.ts'
import { type Static, Type } from '../type.ts'
import { AttestationReceipt } from './attestation.ts'

/** `data` of GET /v1/instances/{name}/attestation. */
/** Characters of the claim document that an instance's evidence carries. */
export const claimDocumentCharsMax = 65_536

export const InstanceAttestation = Closed({
  schemaVersion: Type.Literal(1),
  scope: Type.Literal('claim-only', {
    description: 'What is attested: the launch of the VM and its one claim. Not what its owner has done in it since.',
  }),
  organization: Type.String({ maxLength: 63, description: 'Slug of the organization in the claim.' }),
  name: Type.String({ pattern: '^[a-z0-9]{8}$' }),
  hostname: Type.String({ maxLength: 253 }),
  nonce: Type.String({
    pattern: '^[A-Za-z0-9_-]{43}$',
    description: 'The nonce of the request; without one, the nonce that the appliance drew at the claim.',
  }),
  known_hosts: Type.String({
    maxLength: 1024,
    description:
      'Line for known_hosts(5): the host name and the SSH host key. Trust it only once the receipt has been verified.',
  }),
  public_key: Type.String({
    maxLength: 16_384,
    description: 'The SSH public key in the claim, as OpenSSH writes it.',
  }),
  launch: Type.String({
    maxLength: 4096,
    description: 'The launch document, exactly the text whose SHA-256 is HOST_DATA in the report.',
  }),
  claim: Type.String({
    maxLength: claimDocumentCharsMax,
    description:
      'The claim document, exactly the text whose SHA-256 is `claimDigest` in the receipt: all that the appliance handed to the VM, the gateway key as a digest, and the network in force.',
  }),
  receipt: AttestationReceipt,
})
export type InstanceAttestation = Static<typeof InstanceAttestation>
