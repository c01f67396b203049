// The claim document: everything that the host handed to an instance and that shapes it, as one canonical text. Pure.
//
// The statement of kind `claim` has its SHA-256, and the fields that an owner looks at in clear. The document has the
// digest of the gateway key that the guest drew, so it is no secret. Its schema follows the claim's: a new field of the
// claim is in the document without anybody's doing.

import { fromHex } from '../../base/bytes.ts'
import { canonicalJson } from '../../base/canonical-json.ts'
import { Closed, OrNull, Sha256 } from '../forms.ts'
import { type Static, Type } from '../type.ts'
import { Claim, DrawnKey } from './claim.ts'
import type { InferenceGateway, UnattestedReason } from './inference-gateway.ts'
import { Network } from './network.ts'

export const claimFormat = 'strongroom/claim/v1'
/** The largest claim and network have less. */

const { inference, ...claimFields } = Claim.properties
const { drawsKey: _, ...inferenceFields } = inference.properties

export const ClaimDocument = Closed({
  format: Type.Literal(claimFormat),
  claim: Closed({
    ...claimFields,
    inference: Closed({
      ...inferenceFields,
      /** The gateway key that the guest drew; null without a key. Absent in documents of older images. */
      key: Type.Optional(OrNull(DrawnKey)),
      /** SHA-256 of the gateway key that the host chose. Documents of older images alone have it. */
      keySha256: Type.Optional(OrNull(Sha256)),
    }),
  }),
  /** The network in force at the claim, which stays: a claimed guest refuses another. Null if there was none. */
  network: OrNull(Network),
})
export type ClaimDocument = Static<typeof ClaimDocument>

/** `key`: null if the claim requests none. */
export function claimDocument(claim: Claim, network: Network | null, key: DrawnKey | null): ClaimDocument {
  const { drawsKey: _, ...rest } = claim.inference
  return { format: claimFormat, claim: { ...claim, inference: { ...rest, key } }, network }
}

/** The canonical text, whose SHA-256 is `claimDigest`. */
export function claimText(document: ClaimDocument): string {
  return canonicalJson(document)
}

/** In the statement: `attested`, `none`, or why nothing attests the gateway. */
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
  /** SHA-256 of the secret of the gateway key that the guest drew. Null without such a key. */
  readonly gatewayKeyDigest: Uint8Array | null
}

/** `sha256`: of a text's UTF-8. */
export function claimFieldsOf(document: ClaimDocument, sha256: (text: string) => Uint8Array): ClaimFields {
  const { baseUrl, model, gateway, key } = document.claim.inference
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
    gatewayKeyDigest: key == null ? null : fromHex(key.secretSha256),
  }
}
