// Parameters, headers and failures that operations of the gateway's OpenAPI document share. Pure.

import { keyConfigProblemOf } from '../../../attest/ehbp/key-config.ts'
import { encapsulatedKeyHeader, keyConfigProblem, requestNonceHeader } from '../../../attest/ehbp/protocol.ts'
import { type GatewayErrorCode, gatewayError } from '../../../contract/http/gateway-error.ts'
import { type ApiFailure, COMMON_FAILURES, COMMON_HEADERS, parameter, ref } from '../../../http/openapi.ts'
import { USAGE_FORMATS, usageByDefault } from '../../metering/usage-request.ts'
import { spentStatus } from '../responses.ts'

const Nonce = { type: 'string', pattern: '^[A-Za-z0-9_-]{43}$' }
const Day = { type: 'string', format: 'date' }

export const PARAMETERS = {
  ReceiptRequest: parameter('path', 'id', 'X-Request-ID of the response.'),
  Response: parameter('path', 'id', 'Id of the response.', { type: 'string', pattern: '^resp_[0-9a-f]{32}$' }),
  ItemsLimit: parameter('query', 'limit', 'Maximum number of items in the page.', {
    ...{ type: 'integer', minimum: 1, maximum: 100, default: 20 },
  }),
  ItemsOrder: parameter('query', 'order', '`desc`: the last item first.', { enum: ['asc', 'desc'], default: 'desc' }),
  ItemsAfter: parameter('query', 'after', 'Id of the item before the page: `last_id` of the previous page.'),
  Model: parameter('path', 'id', 'Id of a model; a slash in it may be percent-encoded or not.'),
  Nonce: parameter('query', 'nonce', '32 random bytes; here or in X-Attestation-Nonce, not both. Used once.', Nonce),
  NonceHeader: parameter('header', 'X-Attestation-Nonce', 'The same as `nonce`.', Nonce),
  UsageFrom: parameter('query', 'from', 'First day in UTC. Default: the first of the month of `to`.', Day),
  UsageTo: parameter('query', 'to', 'Last day in UTC, inclusive. Default: today.', Day),
  UsageBy: parameter(
    'query',
    'by',
    'Columns to group by: `key`, `model`, `day`, separated by commas; empty for one row with the totals.',
    { type: 'string', default: usageByDefault },
  ),
  UsageFormat: parameter('query', 'format', '`csv` for spreadsheets.', { enum: USAGE_FORMATS, default: 'json' }),
  Receipt: parameter(
    'header',
    'X-Strongroom-Receipt',
    '`1` for a signed receipt with the response; `keep` for one that is fetched from `/v1/receipts/{id}`, because a header of 5 KB is more than some proxies take.',
    { enum: ['1', 'keep'] },
  ),
  Cost: parameter('header', 'X-Strongroom-Cost', '`1` for the cost with a plain response that is not a stream.', {
    enum: ['1'],
  }),
  ContentEncoding: parameter(
    'header',
    'Content-Encoding',
    'The coding of the body. Limits count the decoded body, and receipts are over it. An encrypted body is decoded after it is opened.',
    { enum: ['gzip', 'zstd', 'identity'], default: 'identity' },
  ),
  EncapsulatedKey: parameter(
    'header',
    encapsulatedKeyHeader,
    'The body is encrypted (EHBP), and this is the encapsulated key in hexadecimal: 32 bytes for X25519, 1120 for X-Wing.',
    { type: 'string', pattern: '^([0-9a-f]{64}|[0-9a-f]{2240})$' },
  ),
  RequestNonce: parameter(
    'header',
    requestNonceHeader,
    'The body is bound to method, path and API key: it opens with no other. This is the nonce of its keys in hexadecimal: the replay epoch, which is in X-Strongroom-Epoch of /attestation, then 16 fresh random bytes. Requests with different nonces may share an encapsulated key.',
    { type: 'string', pattern: '^[0-9a-f]{64}$' },
  ),
} as const

export const HEADERS = {
  RequestId: {
    description: 'The id of this request in the log and the ledger. Unrelated to ids in the body of the response.',
    schema: { type: 'string' },
  },
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
  CostUsd: {
    description:
      'Cost of the request in US dollars, exact. Only of requests that ask for it, without a stream and in the clear.',
    schema: { type: 'string', pattern: '^[0-9]+\\.[0-9]{9}$' },
  },
  Queue: {
    description:
      'Only where the request waits or has waited: `position=3, wait=20, waited=10`. `position` and `wait` (seconds, an estimate) are those of a stream whose request still waits, in the gateway or in the engine. `waited` counts the seconds in the gateway. Numbers are rounded up. Comments of the stream (`: queue position=2, wait=10`) follow.',
    schema: { type: 'string', pattern: '^[a-z]+=[0-9]+(, [a-z]+=[0-9]+)*$' },
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
  Epoch: {
    description:
      'The replay epoch: the first 16 bytes of the nonce of a bound request, in hexadecimal. Not secret, and not signed.',
    schema: { type: 'string', pattern: '^[0-9a-f]{32}$' },
  },
  SealedHeaders: {
    description:
      'X-Strongroom-Receipt, x-strongroom-ignored and X-Strongroom-Epoch of an encrypted response, as base64url of one AES-256-GCM ciphertext. The first two would tell what is in the bodies. The last names another replay epoch than the request did; after `stale ` it refuses the request, whose own epoch has ended.',
    schema: { type: 'string' },
  },
} as const

const keyConfigMismatch = 'The body was not encrypted to the present keys.'

export const FAILURES = {
  InvalidRequest: {
    fault: 'invalid_request',
    description:
      'Invalid request or nonce; `context_length_exceeded` for a prompt that is longer than the context of the model.',
    message: 'model must be the id of a model.',
    param: 'model',
  },
  Unauthenticated: {
    ...COMMON_FAILURES.unauthenticated,
    description: 'Missing, invalid or inactive key; decided before the body is read.',
    message:
      'The API key is missing, wrong, expired or revoked. Check the key that your program sends, or ask the operator for one.',
  },
  BudgetSpent: {
    fault: 'budget_exceeded',
    status: spentStatus,
    description: 'A budget cannot cover the maximum cost of the request (type `insufficient_quota`).',
    message:
      'The token budget of this key for 2026-11 cannot cover the maximum cost of this request. Lower max_tokens, or ask the operator to raise the budget. It resets at 2026-12-01T00:00:00.000Z.',
  },
  NotFound: {
    fault: 'not_found',
    description:
      'Unknown model, receipt or route. Of a route it names those that there are: with a good key all, else the public ones.',
    message: 'This key cannot use a model with that name. GET /v1/models lists the models it can use.',
  },
  MethodNotAllowed: { ...COMMON_FAILURES.methodNotAllowed, message: 'The methods here are POST.' },
  UpgradeRequired: {
    fault: 'upgrade_required',
    description: 'The client asked for a WebSocket, which this endpoint does not offer. Send the request over HTTP.',
    headers: { Allow: 'Allow' },
    message: 'WebSockets are not supported: send POST over HTTP.',
  },
  UnsupportedMediaType: {
    fault: 'unsupported_media_type',
    description: 'Content-Encoding names an unsupported coding, or more than one.',
    message: 'Content-Encoding must be gzip or zstd, and only one of them. Change or remove the header.',
    param: 'content-encoding',
  },
  BodyTimeout: { ...COMMON_FAILURES.bodyTimeout, message: 'The body did not arrive within 30000 ms.' },
  Conflict: {
    fault: 'conflict',
    description: 'The nonce was used before.',
    message: 'This nonce was used before.',
  },
  BodyTooLarge: { ...COMMON_FAILURES.bodyTooLarge, message: 'The body is larger than 33554432 bytes.' },
  KeyConfigMismatch: {
    fault: 'key_config_mismatch',
    description:
      'The body was encrypted to other keys than the present ones, bound to another path or API key, or changed on its way. The response is plain and unsigned: attest the gateway again, encrypt to the keys of that attestation and send again. An encrypted one refuses a replay epoch that has ended.',
    message: keyConfigMismatch,
    content: {
      [keyConfigProblem.mediaType]: {
        schema: ref('schemas', 'GatewayProblem'),
        example: {
          ...keyConfigProblemOf(keyConfigMismatch),
          ...gatewayError('key_config_mismatch', keyConfigMismatch),
        },
      },
    },
  },
  RateLimited: {
    ...COMMON_FAILURES.rateLimited,
    description:
      'A limit of requests, tokens or concurrency was reached, or no upstream had room in time. The message names the wait and, for a queue, the position. `budget_exceeded` if running requests reserve the rest of a budget.',
    message: 'Too many requests wait for this model. This one was at position 5. Retry in 12 s.',
  },
  Internal: COMMON_FAILURES.internal,
  UpstreamFailed: {
    fault: 'upstream_failed',
    description: 'No upstream is available, or its response is invalid.',
    message: 'The engine sent nothing within the time limit. Send a shorter prompt, or contact the operator.',
  },
  Unavailable: {
    fault: 'metering_unavailable',
    description:
      'Usage cannot be recorded at present, and the gateway serves nothing unmetered. With `attestation_unavailable`: a requested receipt is not available, or the upstream of the model has not shown its required evidence. With `fleet.unavailable`: this host does not know the key, and cannot read the directory of its fleet, which may have it.',
    message: 'Usage cannot be recorded at present; try again later.',
  },
  AttestationUnavailable: {
    fault: 'attestation_unavailable',
    description: 'Fresh evidence, or a requested receipt, is not available. Do not continue without it.',
    message: 'Fresh attestation evidence is not available.',
  },
} as const satisfies Record<string, ApiFailure<keyof typeof HEADERS, GatewayErrorCode>>
