// The parts of the inference gateway's wire that are ours (contract 2.4, 4.2, 7.2): errors, models, health. Pure.
// Chat and completion bodies are OpenAI's; src/inference/openai says what we require of them.

import type { FaultCode } from '../../base/fault.ts'
import { OneOf } from '../check.ts'
import { Closed, OrNull } from '../forms.ts'
import { KeyMaker } from '../key-rules.ts'
import { type Static, Type } from '../type.ts'
import { UsageSums, usageRows } from './usage-rows.ts'

/** Faults that clients see under their own code, with the status of FAULTS; all others show as `internal`. */
export const GATEWAY_PUBLIC_CODES = [
  'invalid_request',
  'context_length_exceeded',
  'unauthenticated',
  'not_found',
  'method_not_allowed',
  'unsupported_media_type',
  'upgrade_required',
  'body_timeout',
  'conflict',
  'body_too_large',
  'key_config_mismatch',
  'rate_limited',
  'budget_exceeded',
  'upstream_failed',
  'metering_unavailable',
  'attestation_unavailable',
] as const satisfies readonly FaultCode[]

/** `code` of every error that the gateway responds with. */
export const GatewayErrorCode = OneOf([...GATEWAY_PUBLIC_CODES, 'internal'])
export type GatewayErrorCode = Static<typeof GatewayErrorCode>

/** `type` of an error by its code, as OpenAI's API has it; official clients print it. */
export const GATEWAY_ERROR_TYPES = {
  invalid_request: 'invalid_request_error',
  context_length_exceeded: 'invalid_request_error',
  unauthenticated: 'authentication_error',
  not_found: 'invalid_request_error',
  method_not_allowed: 'invalid_request_error',
  unsupported_media_type: 'invalid_request_error',
  upgrade_required: 'invalid_request_error',
  body_timeout: 'invalid_request_error',
  conflict: 'invalid_request_error',
  body_too_large: 'invalid_request_error',
  key_config_mismatch: 'invalid_request_error',
  rate_limited: 'rate_limit_error',
  // OpenAI's word: its clients tell people that nothing is left to spend.
  budget_exceeded: 'insufficient_quota',
  upstream_failed: 'upstream_error',
  metering_unavailable: 'server_error',
  attestation_unavailable: 'server_error',
  internal: 'server_error',
} as const satisfies Record<GatewayErrorCode, string>

/**
 * Body of every error response. Unlike service A's it has no envelope and no request id. `code` and `message` are the
 * contract's (7.2).
 */
export const GatewayError = Closed({
  error: Closed({
    code: GatewayErrorCode,
    message: Type.String(),
    type: OneOf([...new Set(Object.values(GATEWAY_ERROR_TYPES))]),
    param: OrNull(Type.String(), {
      description: 'The field that is wrong, such as `messages[0].content`; null when it is not one field.',
    }),
  }),
})
export type GatewayError = Static<typeof GatewayError>

/** The body of an error response. `param`: the field at fault, if it is a single field. */
export function gatewayError(code: GatewayErrorCode, message: string, param: string | null = null): GatewayError {
  return { error: { code, message, type: GATEWAY_ERROR_TYPES[code], param } }
}

export const GatewayModel = Closed({
  id: Type.String(),
  object: Type.Literal('model'),
  created: Type.Integer({
    description: 'Unix time in seconds since when this gateway process has served the model.',
  }),
  owned_by: Type.String(),
  context_length: Type.Optional(
    Type.Integer({
      minimum: 1,
      description: 'Tokens of prompt and completion together; left out where the operator does not say.',
    }),
  ),
  pricing: Type.Optional(
    Closed(
      {
        prompt: Type.String({ description: 'USD for one token of the prompt, as a decimal.' }),
        completion: Type.String({ description: 'USD for one token of the completion, as a decimal.' }),
        input_cache_read: Type.Optional(
          Type.String({ description: 'USD for one token of the prompt out of a cache; left out: as `prompt`.' }),
        ),
      },
      { description: 'Left out for a model that is free.' },
    ),
  ),
})
export type GatewayModel = Static<typeof GatewayModel>
export const GatewayModelList = Closed({ object: Type.Literal('list'), data: Type.Array(GatewayModel) })
export type GatewayModelList = Static<typeof GatewayModelList>

/** Usage in the running calendar month. A request counts once it has ended. */
export const GatewayUsage = Closed({
  object: Type.Literal('usage'),
  key_made_by: Type.Union(KeyMaker.anyOf, {
    description:
      "`client`: the operator registered the key's digest. `host`: the host minted the key, so that it can act as this client. The value comes from the operator's host: only a client that made its key itself can rely on `client`.",
  }),
  period: Closed({
    start: Type.String({ description: 'Begin of the calendar month, ISO 8601 UTC.' }),
    end: Type.String({ description: 'Begin of the next one.' }),
  }),
  key: UsageSums,
  organization: OrNull(UsageSums, {
    description: 'All keys together; null for a key that was made for an instance.',
  }),
})
export type GatewayUsage = Static<typeof GatewayUsage>

/** Usage of the key, by model and day. */
export const GatewayUsageRows = Closed({ object: Type.Literal('usage.rows'), ...usageRows })
export type GatewayUsageRows = Static<typeof GatewayUsageRows>

export const GatewayHealth = Closed({ status: Type.Literal('ok') })
