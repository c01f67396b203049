// The inference gateway's wire where it is ours (contract 2.4, 4.2, 7.2): errors, models, health. Pure.
// Chat and completion bodies are OpenAI's; what we require of them is in services/inference.

import { type Static, Type } from '@sinclair/typebox'

const closed = { additionalProperties: false } as const

/** `code` of every error that the gateway answers with. */
export const GatewayErrorCode = Type.Union([
  Type.Literal('invalid_request'),
  Type.Literal('unauthenticated'),
  Type.Literal('not_found'),
  Type.Literal('method_not_allowed'),
  Type.Literal('body_timeout'),
  Type.Literal('conflict'),
  Type.Literal('body_too_large'),
  Type.Literal('rate_limited'),
  Type.Literal('upstream_failed'),
  Type.Literal('attestation_unavailable'),
  Type.Literal('internal'),
])
export type GatewayErrorCode = Static<typeof GatewayErrorCode>

/** No envelope and no request id in the body. */
export const GatewayError = Type.Object(
  { error: Type.Object({ code: GatewayErrorCode, message: Type.String() }, closed) },
  closed,
)
export type GatewayError = Static<typeof GatewayError>

export const GatewayModel = Type.Object(
  { id: Type.String(), object: Type.Literal('model'), owned_by: Type.String() },
  closed,
)
export const GatewayModelList = Type.Object({ object: Type.Literal('list'), data: Type.Array(GatewayModel) }, closed)
export type GatewayModelList = Static<typeof GatewayModelList>

export const GatewayHealth = Type.Object({ status: Type.Literal('ok') }, closed)
