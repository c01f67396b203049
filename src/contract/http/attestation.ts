// The response to GET /attestation (contract 2.4). Pure. Describes the envelope of receipts; src/attest verifies them.

import { OneOf } from '../check.ts'
import { Closed } from '../forms.ts'
import { type Static, Type } from '../type.ts'

/** In the order of their receipts in the response. Target and workload of an entry are equal. */
export const ATTESTED_WORKLOADS = [
  'gateway',
  'inference-router',
  'inference-worker',
  'metrics-collector',
  'cluster-state-metrics',
] as const
export type AttestedWorkload = (typeof ATTESTED_WORKLOADS)[number]

const Bytes = (description: string) =>
  Type.String({ pattern: '^[A-Za-z0-9_-]+$', description: `${description}; base64url without padding.` })

export const AttestationReceipt = Closed({
  format: Type.Literal('strongroom/attest-pq/v1'),
  platform: OneOf(['snp', 'simulated'], {
    description: '`simulated`: the evidence comes from no hardware; verifiers refuse it unless told otherwise.',
  }),
  statement: Bytes('What is attested: deterministic CBOR'),
  keys: Closed({
    ed25519: Bytes('Signing key'),
    mldsa65: Bytes('Signing key'),
    x25519: Bytes('Key agreement key'),
    mlkem768: Bytes('Key encapsulation key'),
  }),
  signatures: Closed({ ed25519: Bytes('Over the statement'), mldsa65: Bytes('Over the statement') }),
  evidence: Closed({
    report: Bytes('SEV-SNP report over the statement'),
    vek: Bytes('Certificate of the key that signed the report; DER'),
    chain: Type.Array(Bytes('Issuer, then root; DER'), { minItems: 2, maxItems: 2 }),
    crl: Type.Optional(Bytes('Revocation list; DER')),
    tpm: Type.Optional(Bytes('TPM evidence')),
  }),
})

const Entry = <Name extends AttestedWorkload>(name: Name) =>
  Closed({ target: Type.Literal(name), workload: Type.Literal(name), receipt: AttestationReceipt })

export const nonceLength = 43

export const AttestationResponse = Closed({
  schemaVersion: Type.Literal(1),
  scope: Type.Literal('launch-or-admission-only'),
  nonce: Type.String({ pattern: `^[A-Za-z0-9_-]{${nonceLength}}$`, description: 'The nonce of the request.' }),
  operationalStatus: Type.Literal('not-verified'),
  receipts: Type.Tuple([
    Entry('gateway'),
    Entry('inference-router'),
    Entry('inference-worker'),
    Entry('metrics-collector'),
    Entry('cluster-state-metrics'),
  ]),
  gpuEvidence: Type.Optional(
    Bytes("Evidence of the worker's GPUs, whose SHA-256 is in its receipt; where it has any; JSON"),
  ),
})
export type AttestationResponse = Static<typeof AttestationResponse>
