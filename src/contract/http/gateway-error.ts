// Errors of the inference gateway (contract 7.2): their codes and types. Pure. Apart from inference.ts, because the
// gateway checks none of the schemas there.

import type { FaultCode } from '../../base/fault.ts'

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
  'fleet.unavailable',
] as const satisfies readonly FaultCode[]

/** `code` of every error that the gateway responds with. */
export const GATEWAY_ERROR_CODES = [...GATEWAY_PUBLIC_CODES, 'internal'] as const
export type GatewayErrorCode = (typeof GATEWAY_ERROR_CODES)[number]

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
  'fleet.unavailable': 'server_error',
  internal: 'server_error',
} as const satisfies Record<GatewayErrorCode, string>

/** Body of an error response, a `GatewayError` (inference.ts). `param`: the field at fault, if it is a single field. */
export function gatewayError(code: GatewayErrorCode, message: string, param: string | null = null) {
  return { error: { code, message, type: GATEWAY_ERROR_TYPES[code], param } }
}
