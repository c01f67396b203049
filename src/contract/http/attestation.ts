// The response to GET /attestation (contract 2.4). Pure. Describes the envelope of receipts; src/attest verifies them.

import { type Static, Type } from '@sinclair/typebox'

const closed = { additionalProperties: false } as const

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

export const AttestationReceipt = Type.Object(
  {
    format: Type.Literal('strongroom/attest-pq/v1'),
    platform: Type.Union([Type.Literal('snp'), Type.Literal('simulated')], {
      description: '`simulated`: the evidence comes from no hardware; verifiers refuse it unless told otherwise.',
    }),
    statement: Bytes('What is attested: deterministic CBOR'),
    keys: Type.Object(
      {
        ed25519: Bytes('Signing key'),
        mldsa65: Bytes('Signing key'),
        x25519: Bytes('Key agreement key'),
        mlkem768: Bytes('Key encapsulation key'),
      },
      closed,
    ),
    signatures: Type.Object({ ed25519: Bytes('Over the statement'), mldsa65: Bytes('Over the statement') }, closed),
    evidence: Type.Object(
      {
        report: Bytes('SEV-SNP report over the statement'),
        vek: Bytes('Certificate of the key that signed the report; DER'),
        chain: Type.Array(Bytes('Issuer, then root; DER'), { minItems: 2, maxItems: 2 }),
        crl: Type.Optional(Bytes('Revocation list; DER')),
        tpm: Type.Optional(Bytes('TPM evidence')),
      },
      closed,
    ),
  },
  closed,
)

const Entry = <Name extends AttestedWorkload>(name: Name) =>
  Type.Object({ target: Type.Literal(name), workload: Type.Literal(name), receipt: AttestationReceipt }, closed)

export const nonceLength = 43

export const AttestationResponse = Type.Object(
  {
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
  },
  closed,
)
export type AttestationResponse = Static<typeof AttestationResponse>
