// The parts of the inference gateway's wire that are ours (contract 2.4, 4.2, 7.2): errors, models, health. Pure.
// Chat and completion bodies are OpenAI's; src/inference/openai says what we require of them.

import { type Static, Type } from '@sinclair/typebox'
import type { FaultCode } from '../base/fault.ts'
import { OneOf } from './shape.ts'

const closed = { additionalProperties: false } as const

/** Faults that a client of the gateway sees under their own code, with the status of FAULTS. Every other one is `internal`. */
export const GATEWAY_PUBLIC_CODES = [
  'invalid_request',
  'unauthenticated',
  'not_found',
  'method_not_allowed',
  'body_timeout',
  'conflict',
  'body_too_large',
  'rate_limited',
  'upstream_failed',
  'attestation_unavailable',
] as const satisfies readonly FaultCode[]

/** `code` of every error that the gateway responds with. */
export const GatewayErrorCode = OneOf([...GATEWAY_PUBLIC_CODES, 'internal'])
export type GatewayErrorCode = Static<typeof GatewayErrorCode>

/** Body of every error response: no envelope and no request id, unlike service A's. */
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
