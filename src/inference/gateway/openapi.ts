// The OpenAPI 3.1 document of service B, the inference gateway. Pure; committed under test/golden.
// Chat and completion bodies are OpenAI's own: named here are the fields that the gateway answers for.

import type { TSchema } from '@sinclair/typebox'
import { AttestationResponse } from '../../contract/attestation.ts'
import { GatewayError, GatewayErrorCode, GatewayHealth, GatewayModelList } from '../../contract/inference.ts'
import type { OpenApiDocument } from '../../instances/http/openapi.ts'
import { ChatCompletionRequest, CompletionAnswer, CompletionRequest } from './openapi-bodies.ts'

/** The whole document, as plain JSON. */
export function inferenceOpenapiDocument(): OpenApiDocument {
  return {
    openapi: '3.1.0',
    info: {
      title: 'Strongroom inference gateway',
      version: '1.0.0',
      summary: 'An OpenAI-compatible API with public attestation.',
      description: DESCRIPTION,
    },
    servers: [{ url: '/' }],
    security: [{ apiKey: [] }],
    paths: Object.fromEntries(OPERATIONS.map(one => [one.path, { [one.method]: toOperation(one) }])),
    components: {
      securitySchemes: {
        apiKey: {
          type: 'http',
          scheme: 'bearer',
          bearerFormat: 'gw_<8>_<32>',
          description: 'A key from the operator: `gw_`, 8, `_` and 32 lowercase letters or digits.',
        },
      },
      schemas: {
        GatewayError: plain(GatewayError),
        GatewayModelList: plain(GatewayModelList),
        GatewayHealth: plain(GatewayHealth),
        AttestationResponse: plain(AttestationResponse),
        ChatCompletionRequest,
        CompletionRequest,
        CompletionAnswer,
      },
      parameters: PARAMETERS,
      headers: HEADERS,
      responses: Object.fromEntries(Object.entries(FAILURES).map(([name, row]) => [name, toFailure(row)])),
    },
  }
}

const DESCRIPTION = [
  'Errors are `{error: {code, message}}`. `x-should-retry` says whether repeating a request may help.',
  'Without a valid key nothing under /v1/ is told, not even which routes there are.',
  'A stream is whole only when it ends with `data: [DONE]`. One that breaks ends with an event that holds `error`, without [DONE].',
  'A request that is given up is charged what the upstream reported, else an estimate of its prompt and a token for each chunk delivered.',
].join('\n')

const PARAMETERS = {
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
  Receipt: {
    name: 'X-Strongroom-Receipt',
    in: 'header',
    required: false,
    description: '`1` for a signed receipt of the answer.',
    schema: { const: '1' },
  },
} as const

const HEADERS = {
  RequestId: { description: 'The id of this request in the log and the ledger.', schema: { type: 'string' } },
  RetryAfter: { description: 'Seconds until it is worth trying again.', required: true, schema: { type: 'integer' } },
  ShouldRetry: {
    description: 'Whether repeating the request may help.',
    required: true,
    schema: { enum: ['true', 'false'] },
  },
  Allow: { description: 'Methods of this path.', required: true, schema: { type: 'string' } },
  WwwAuthenticate: { description: 'Always `Bearer`.', required: true, schema: { const: 'Bearer' } },
  Receipt: {
    description: 'Signed receipt of the answer. In a stream it is the comment line before `data: [DONE]` instead.',
    schema: { type: 'string' },
  },
} as const

type FailureRow = {
  readonly status: number
  readonly description: string
  readonly error: GatewayError['error']
  readonly headers?: readonly (keyof typeof HEADERS)[]
}

const FAILURES = {
  InvalidRequest: {
    status: 400,
    description: 'Invalid request or nonce, or more than the model takes.',
    error: { code: 'invalid_request', message: 'model must be the id of a model.' },
  },
  Unauthenticated: {
    status: 401,
    description: 'Missing, invalid or inactive key; decided before the body is read.',
    headers: ['WwwAuthenticate'],
    error: { code: 'unauthenticated', message: 'The API key is missing or invalid.' },
  },
  NotFound: {
    status: 404,
    description: 'Unknown model or route.',
    error: { code: 'not_found', message: 'There is no such model; see /v1/models.' },
  },
  MethodNotAllowed: {
    status: 405,
    description: 'The path exists, the method does not.',
    headers: ['Allow'],
    error: { code: 'method_not_allowed', message: 'The methods here are POST.' },
  },
  BodyTimeout: {
    status: 408,
    description: 'The body took too long to arrive.',
    error: { code: 'body_timeout', message: 'The body did not arrive within 30000 ms.' },
  },
  Conflict: {
    status: 409,
    description: 'The nonce was used before.',
    error: { code: 'conflict', message: 'This nonce was used before.' },
  },
  BodyTooLarge: {
    status: 413,
    description: 'The body is too large.',
    error: { code: 'body_too_large', message: 'The body is larger than 4194304 bytes.' },
  },
  RateLimited: {
    status: 429,
    description: 'A limit of requests, tokens or concurrency, or no upstream had room in time.',
    headers: ['RetryAfter'],
    error: { code: 'rate_limited', message: 'Too many requests wait for this model.' },
  },
  Internal: {
    status: 500,
    description: 'Unexpected; give the request id to the operator if it persists.',
    error: { code: 'internal', message: 'An unexpected error occurred.' },
  },
  UpstreamFailed: {
    status: 502,
    description: 'No upstream is available, or its answer is invalid.',
    error: { code: 'upstream_failed', message: 'The upstream did not answer in time.' },
  },
  AttestationUnavailable: {
    status: 503,
    description: 'Fresh evidence, or a receipt that was asked for, is not to be had. Accept nothing less.',
    error: { code: 'attestation_unavailable', message: 'There is no fresh attestation evidence.' },
  },
} as const satisfies Record<string, FailureRow>

type Operation = {
  readonly method: 'get' | 'post'
  readonly path: string
  readonly id: string
  readonly summary: string
  readonly isPublic: boolean
  readonly parameters: readonly (keyof typeof PARAMETERS)[]
  readonly body: { readonly schema: string; readonly example: unknown } | null
  readonly content: Record<string, object>
  readonly failures: readonly (keyof typeof FAILURES)[]
}

const READ = ['MethodNotAllowed', 'RateLimited', 'Internal'] as const
const COMPLETION = [
  'InvalidRequest',
  'Unauthenticated',
  'NotFound',
  'MethodNotAllowed',
  'BodyTimeout',
  'BodyTooLarge',
  'RateLimited',
  'Internal',
  'UpstreamFailed',
  'AttestationUnavailable',
] as const
const ANSWERED = {
  'application/json': { schema: ref('schemas', 'CompletionAnswer') },
  'text/event-stream': { schema: { type: 'string', description: 'With `stream: true`; ends with `data: [DONE]`.' } },
}

const OPERATIONS: readonly Operation[] = [
  {
    method: 'get',
    path: '/health',
    id: 'health',
    summary: 'Liveness; no attestation evidence',
    isPublic: true,
    parameters: [],
    body: null,
    content: { 'application/json': { schema: ref('schemas', 'GatewayHealth'), example: { status: 'ok' } } },
    failures: READ,
  },
  {
    method: 'get',
    path: '/attestation',
    id: 'attestation',
    summary: 'Fresh launch and admission evidence; send neither key nor prompt',
    isPublic: true,
    parameters: ['Nonce', 'NonceHeader'],
    body: null,
    content: { 'application/json': { schema: ref('schemas', 'AttestationResponse') } },
    failures: ['InvalidRequest', 'Conflict', ...READ, 'AttestationUnavailable'],
  },
  {
    method: 'get',
    path: '/v1/models',
    id: 'listModels',
    summary: 'Model catalog',
    isPublic: false,
    parameters: [],
    body: null,
    content: {
      'application/json': {
        schema: ref('schemas', 'GatewayModelList'),
        example: { object: 'list', data: [{ id: 'strongroom-tiny', object: 'model', owned_by: 'strongroom' }] },
      },
    },
    failures: ['Unauthenticated', ...READ],
  },
  {
    method: 'post',
    path: '/v1/chat/completions',
    id: 'createChatCompletion',
    summary: 'Chat completion',
    isPublic: false,
    parameters: ['Receipt'],
    body: {
      schema: 'ChatCompletionRequest',
      example: { model: 'strongroom-tiny', messages: [{ role: 'user', content: 'Hello' }], stream: true },
    },
    content: ANSWERED,
    failures: COMPLETION,
  },
  {
    method: 'post',
    path: '/v1/completions',
    id: 'createCompletion',
    summary: 'Text completion',
    isPublic: false,
    parameters: ['Receipt'],
    body: { schema: 'CompletionRequest', example: { model: 'strongroom-tiny', prompt: 'Once upon a time' } },
    content: ANSWERED,
    failures: COMPLETION,
  },
  {
    method: 'get',
    path: '/openapi.json',
    id: 'retrieveOpenapi',
    summary: 'This document',
    isPublic: true,
    parameters: [],
    body: null,
    content: { 'application/json': { schema: { type: 'object' } } },
    failures: READ,
  },
]

function toOperation(operation: Operation): object {
  const { parameters, body } = operation
  const failures = [...operation.failures].sort((a, b) => FAILURES[a].status - FAILURES[b].status)
  const content = (schema: string, example: unknown) => ({
    'application/json': { schema: ref('schemas', schema), example },
  })
  return {
    operationId: operation.id,
    summary: operation.summary,
    ...(operation.isPublic ? { security: [] } : {}),
    ...(parameters.length === 0 ? {} : { parameters: parameters.map(name => ref('parameters', name)) }),
    ...(body === null ? {} : { requestBody: { required: true, content: content(body.schema, body.example) } }),
    responses: {
      200: {
        description: 'Success.',
        headers: {
          'X-Request-ID': ref('headers', 'RequestId'),
          ...(parameters.includes('Receipt') ? { 'X-Strongroom-Receipt': ref('headers', 'Receipt') } : {}),
        },
        content: operation.content,
      },
      ...Object.fromEntries(failures.map(name => [FAILURES[name].status, ref('responses', name)])),
    },
  }
}

const HEADER_NAMES: Partial<Record<keyof typeof HEADERS, string>> = {
  RetryAfter: 'Retry-After',
  Allow: 'Allow',
  WwwAuthenticate: 'WWW-Authenticate',
}

function toFailure(row: FailureRow): object {
  return {
    description: row.description,
    headers: {
      'X-Request-ID': ref('headers', 'RequestId'),
      'X-Should-Retry': ref('headers', 'ShouldRetry'),
      ...Object.fromEntries((row.headers ?? []).map(name => [HEADER_NAMES[name] ?? name, ref('headers', name)])),
    },
    content: { 'application/json': { schema: ref('schemas', 'GatewayError'), example: { error: row.error } } },
  }
}

function ref(kind: string, name: string): { $ref: string } {
  return { $ref: `#/components/${kind}/${name}` }
}

/** A schema without TypeBox's symbols; unions of constants become enums. */
function plain(schema: TSchema): unknown {
  const codes = JSON.stringify(GatewayErrorCode)
  const visit = (node: unknown): unknown => {
    if (Array.isArray(node)) return node.map(visit)
    if (typeof node !== 'object' || node === null) return node
    if (JSON.stringify(node) === codes) {
      return { type: 'string', enum: GatewayErrorCode.anyOf.map(option => option.const) }
    }
    return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, visit(value)]))
  }
  return visit(JSON.parse(JSON.stringify(schema)))
}
