// What operations of the gateway's OpenAPI document share: parameters, headers, failures. Pure.

import { keyConfigProblemOf } from '../../../attest/ehbp/key-config.ts'
import { encapsulatedKeyHeader, keyConfigProblem } from '../../../attest/ehbp/protocol.ts'
import { GATEWAY_ERROR_TYPES, type GatewayError, type GatewayErrorCode } from '../../../contract/http/inference.ts'
import { type ApiFailure, COMMON_HEADERS, ref } from '../../../http/openapi.ts'
import { USAGE_FORMATS, usageByDefault } from '../../metering/usage-request.ts'

export const PARAMETERS = {
  ReceiptRequest: {
    name: 'id',
    in: 'path',
    required: true,
    description: 'X-Request-ID of the response.',
    schema: { type: 'string' },
  },
  Model: {
    name: 'id',
    in: 'path',
    required: true,
    description: 'Id of a model; a slash in it may be percent-encoded or not.',
    schema: { type: 'string' },
  },
  Nonce: {
    name: 'nonce',
    in: 'query',
    required: false,
    description: '32 random bytes; here or in X-Attestation-Nonce, not both. Used once.',
    schema: { type: 'string', pattern: '^[A-Za-z0-9_-]{43}$' },
  },
  NonceHeader: {
    name: 'X-Attestation-Nonce',
    in: 'header',
    required: false,
    description: 'The same as `nonce`.',
    schema: { type: 'string', pattern: '^[A-Za-z0-9_-]{43}$' },
  },
  UsageFrom: {
    name: 'from',
    in: 'query',
    required: false,
    description: 'First day in UTC. Where it is not said, the first of the month of `to`.',
    schema: { type: 'string', format: 'date' },
  },
  UsageTo: {
    name: 'to',
    in: 'query',
    required: false,
    description: 'Last day in UTC; it is included. Where it is not said, today.',
    schema: { type: 'string', format: 'date' },
  },
  UsageBy: {
    name: 'by',
    in: 'query',
    required: false,
    description: 'What to sum by: `key`, `model`, `day`, with commas in between; empty for one row with the sums.',
    schema: { type: 'string', default: usageByDefault },
  },
  UsageFormat: {
    name: 'format',
    in: 'query',
    required: false,
    description: '`csv` for spreadsheets.',
    schema: { enum: USAGE_FORMATS, default: 'json' },
  },
  Receipt: {
    name: 'X-Strongroom-Receipt',
    in: 'header',
    required: false,
    description:
      '`1` for a signed receipt with the response; `keep` for one that is fetched from `/v1/receipts/{id}`, because a header of 5 KB is more than some proxies take.',
    schema: { enum: ['1', 'keep'] },
  },
  EncapsulatedKey: {
    name: encapsulatedKeyHeader,
    in: 'header',
    required: false,
    description:
      'The body is encrypted (EHBP), and this is the encapsulated key in hexadecimal: 32 bytes for X25519, 1120 for X-Wing.',
    schema: { type: 'string', pattern: '^([0-9a-f]{64}|[0-9a-f]{2240})$' },
  },
} as const

export const HEADERS = {
  RequestId: { description: 'The id of this request in the log and the ledger.', schema: { type: 'string' } },
  RetryAfter: COMMON_HEADERS.RetryAfter,
  ShouldRetry: {
    description: 'Whether repeating the request may help.',
    required: true,
    schema: { enum: ['true', 'false'] },
  },
  Allow: COMMON_HEADERS.Allow,
  WwwAuthenticate: COMMON_HEADERS.WwwAuthenticate,
  Receipt: {
    description: 'Signed receipt of the response. In a stream it is the comment line before the last event instead.',
    schema: { type: 'string' },
  },
  ReceiptPath: {
    description: 'Where the receipt is once the response has ended. Only of requests that ask for `keep`.',
    schema: { type: 'string', pattern: '^/v1/receipts/[0-9a-f-]{36}$' },
  },
  ReceiptSalt: {
    description:
      'Hashed with request and response in the receipt, which is verified with it. Only here, and only of requests that ask for `keep`: other receipts carry their own.',
    schema: { type: 'string', pattern: '^[A-Za-z0-9_-]{43}$' },
  },
  ResponseNonce: {
    description: 'The response is encrypted (EHBP), and this is the nonce of its keys. Only of encrypted requests.',
    schema: { type: 'string', pattern: '^[0-9a-f]{64}$' },
  },
  SealedHeaders: {
    description:
      'X-Strongroom-Receipt and x-strongroom-ignored of an encrypted response, as base64url of one AES-256-GCM ciphertext: they would tell what is in the bodies.',
    schema: { type: 'string' },
  },
} as const

function example<const Code extends GatewayErrorCode>(code: Code, message: string, param: string | null = null) {
  return { code, message, type: GATEWAY_ERROR_TYPES[code], param }
}

const KEY_CONFIG_MISMATCH = example('key_config_mismatch', 'The body was not encrypted to the present keys.')

export const FAILURES = {
  InvalidRequest: {
    status: 400,
    description:
      'Invalid request or nonce; `context_length_exceeded` for a prompt that is longer than the context of the model.',
    error: example('invalid_request', 'model must be the id of a model.', 'model'),
  },
  Unauthenticated: {
    status: 401,
    description: 'Missing, invalid or inactive key; decided before the body is read.',
    headers: { 'WWW-Authenticate': 'WwwAuthenticate' },
    error: example('unauthenticated', 'The API key is missing or invalid.'),
  },
  NotFound: {
    status: 404,
    description:
      'Unknown model, receipt or route. Of a route it names those that there are: with a good key all, else the public ones.',
    error: example('not_found', 'There is no such model; see /v1/models.'),
  },
  MethodNotAllowed: {
    status: 405,
    description: 'The path exists, the method does not.',
    headers: { Allow: 'Allow' },
    error: example('method_not_allowed', 'The methods here are POST.'),
  },
  BodyTimeout: {
    status: 408,
    description: 'The body took too long to arrive.',
    error: example('body_timeout', 'The body did not arrive within 30000 ms.'),
  },
  Conflict: {
    status: 409,
    description: 'The nonce was used before.',
    error: example('conflict', 'This nonce was used before.'),
  },
  BodyTooLarge: {
    status: 413,
    description: 'The body is too large.',
    error: example('body_too_large', 'The body is larger than 4194304 bytes.'),
  },
  KeyConfigMismatch: {
    status: 422,
    description:
      'The body was encrypted to other keys than the present ones, or changed on its way. In the clear, and nobody signs it: attest the gateway again, encrypt to the keys of that attestation and send again.',
    error: KEY_CONFIG_MISMATCH,
    content: {
      [keyConfigProblem.mediaType]: {
        schema: ref('schemas', 'GatewayProblem'),
        example: { ...keyConfigProblemOf(KEY_CONFIG_MISMATCH.message), error: KEY_CONFIG_MISMATCH },
      },
    },
  },
  RateLimited: {
    status: 429,
    description:
      'A limit of requests, tokens or concurrency, or no upstream had room in time; `budget_exceeded` (type `insufficient_quota`) where a budget of the month has no room for what the request can cost at most.',
    headers: { 'Retry-After': 'RetryAfter' },
    error: example('rate_limited', 'Too many requests wait for this model.'),
  },
  Internal: {
    status: 500,
    description: 'Unexpected; give the request id to the operator if it persists.',
    error: example('internal', 'An unexpected error occurred.'),
  },
  UpstreamFailed: {
    status: 502,
    description: 'No upstream is available, or its response is invalid.',
    error: example('upstream_failed', 'The upstream did not answer in time.'),
  },
  Unavailable: {
    status: 503,
    description:
      'Usage cannot be recorded at present, or a receipt that was asked for is not available: nothing is served that is not metered.',
    error: example('metering_unavailable', 'Usage cannot be recorded at present; try again later.'),
  },
  AttestationUnavailable: {
    status: 503,
    description: 'Fresh evidence, or a receipt that was asked for, is not available. Accept nothing less.',
    error: example('attestation_unavailable', 'There is no fresh attestation evidence.'),
  },
} as const satisfies Record<string, ApiFailure<keyof typeof HEADERS> & GatewayError>
