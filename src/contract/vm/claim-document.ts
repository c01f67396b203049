// The claim document: everything that the host handed to an instance and that shapes it, as one canonical text. Pure.
//
// The statement of kind `claim` has its SHA-256, and the fields that an owner looks at in clear. The gateway key is in
// it as a digest, so that the document is no secret. Its schema follows the claim's: a new field of the claim is in the
// document without anybody's doing.

import { type Static, Type } from '@sinclair/typebox'
import { canonicalJson } from '../../base/canonical-json.ts'
import { Closed, OrNull } from '../forms.ts'
import { Claim, Network } from './claim.ts'
import type { InferenceGateway, UnattestedReason } from './inference-gateway.ts'

export const claimFormat = 'strongroom/claim/v1'
/** The largest claim and network have less. */

const { inference, ...claimFields } = Claim.properties
const { key: _, ...inferenceFields } = inference.properties

export const ClaimDocument = Closed({
  format: Type.Literal(claimFormat),
  claim: Closed({
    ...claimFields,
    inference: Closed({
      ...inferenceFields,
      /** SHA-256 of the instance's gateway key, in hexadecimal; null where it has none. */
      keySha256: OrNull(Type.String({ pattern: '^[0-9a-f]{64}$' })),
    }),
  }),
  /** The network in force at the claim, which stays: a claimed guest refuses another. Null: there was none. */
  network: OrNull(Network),
})
export type ClaimDocument = Static<typeof ClaimDocument>

/** SHA-256 of a text's UTF-8. */
type Sha256 = (text: string) => Uint8Array

/** `keySha256`: of the claim's gateway key, null where it has none. */
export function claimDocument(claim: Claim, network: Network | null, keySha256: string | null): ClaimDocument {
  const { key: _, ...rest } = claim.inference
  return { format: claimFormat, claim: { ...claim, inference: { ...rest, keySha256 } }, network }
}

/** The canonical text, whose SHA-256 is `claimDigest`. */
export function claimText(document: ClaimDocument): string {
  return canonicalJson(document)
}

/** In the statement: `attested`, `none`, or why nothing vouches for the gateway. */
type GatewayWord = 'attested' | 'none' | UnattestedReason

function gatewayWord(gateway: InferenceGateway): GatewayWord {
  return gateway.kind === 'unattested' ? gateway.why : gateway.kind
}

/** Fields of the statement of kind `claim` about the document. */
export type ClaimFields = {
  readonly claimDigest: Uint8Array
  readonly inferenceUrl: string | null
  readonly inferenceModel: string | null
  readonly gateway: GatewayWord
  readonly gatewayDigest: Uint8Array
  readonly resolvers: readonly string[]
  readonly egressLimitBytes: number
  readonly egressNames: 'any' | 'listed'
}

export function claimFieldsOf(document: ClaimDocument, sha256: Sha256): ClaimFields {
  const { baseUrl, model, gateway } = document.claim.inference
  const { limitBytes, names } = document.claim.egress
  return {
    claimDigest: sha256(claimText(document)),
    inferenceUrl: baseUrl === '' ? null : baseUrl,
    inferenceModel: model === '' ? null : model,
    gateway: gatewayWord(gateway),
    gatewayDigest: sha256(canonicalJson(gateway)),
    resolvers: document.network?.resolvers ?? [],
    egressLimitBytes: limitBytes,
    egressNames: names,
  }
}
