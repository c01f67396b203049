// The OpenAPI 3.1 document of service B, the inference gateway. Pure; committed under test/golden.
// Chat and completion bodies are OpenAI's own: named here are the fields that the gateway checks.

import {
  keyConfigMediaType,
  keyConfigPath,
  responseNonceHeader,
  sealedHeadersHeader,
} from '../../../attest/ehbp/protocol.ts'
import { saltHeader } from '../../../attest/receipt/response.ts'
import { AttestationResponse } from '../../../contract/http/attestation.ts'
import {
  GatewayError,
  GatewayHealth,
  GatewayModel,
  GatewayModelList,
  GatewayUsage,
  GatewayUsageRows,
} from '../../../contract/http/inference.ts'
import {
  type ApiOperation,
  jsonContent,
  type OpenApiDocument,
  ref,
  toJsonSchema,
  toOpenApi,
} from '../../../http/openapi.ts'
import { receiptPathHeader, receiptsPath } from '../receipts.ts'
import { GatewayProblem } from '../responses.ts'
import {
  ChatCompletionRequest,
  CompletionRequest,
  CompletionResponse,
  EmbeddingsRequest,
  EmbeddingsResponse,
} from './bodies.ts'
import { FAILURES, HEADERS, PARAMETERS } from './parts.ts'
import { SHAPED_OPERATIONS, SHAPED_SCHEMAS } from './shapes.ts'

/** The whole document, as plain JSON. */
export function inferenceOpenapiDocument(): OpenApiDocument {
  return toOpenApi({
    info: {
      title: 'Strongroom inference gateway',
      version: '1.0.0',
      summary: 'An OpenAI-compatible API with public attestation.',
      description: DESCRIPTION,
    },
    bearer: {
      format: 'gw_<8>_<32>',
      description: 'A key from the operator: `gw_`, 8, `_` and 32 lowercase letters or digits.',
    },
    operations: OPERATIONS,
    schemas: {
      GatewayError: toJsonSchema(GatewayError),
      GatewayProblem: toJsonSchema(GatewayProblem),
      GatewayModel: toJsonSchema(GatewayModel),
      GatewayModelList: toJsonSchema(GatewayModelList),
      GatewayUsage: toJsonSchema(GatewayUsage),
      GatewayUsageRows: toJsonSchema(GatewayUsageRows),
      GatewayHealth: toJsonSchema(GatewayHealth),
      AttestationResponse: toJsonSchema(AttestationResponse),
      ChatCompletionRequest,
      CompletionRequest,
      CompletionResponse,
      ...SHAPED_SCHEMAS,
      EmbeddingsRequest,
      EmbeddingsResponse,
    },
    parameters: PARAMETERS,
    headers: HEADERS,
    failures: FAILURES,
    failureDocument: {
      schema: 'GatewayError',
      headers: { 'X-Request-ID': 'RequestId', 'X-Should-Retry': 'ShouldRetry' },
      toExample: error => ({ error }),
    },
  })
}

const DESCRIPTION = [
  'Errors are `{error: {code, message}}`. `x-should-retry` says whether repeating a request may help.',
  'Without a valid key nothing under /v1/ is told, not even which routes there are.',
  'A stream is whole only when it ends with `data: [DONE]`. One that breaks ends with an event that holds `error`, without [DONE].',
  'Responses and messages are chat completions in another form: what holds for the one holds for the others. A stream of messages ends with `message_stop` instead of [DONE].',
  'Bodies of completions may be encrypted to the keys of the attestation (EHBP: X25519 for stock clients, X-Wing by the length of the encapsulated key); then so are their responses, refusals included, whatever else is said here of their content. Headers, status and sizes stay in the clear. EHBP has no end marker: look for `[DONE]`, or for the whole JSON object.',
  'A request that is given up is charged what the upstream reported, else an estimate of its prompt and a token for each chunk delivered.',
].join('\n')

type Operation = ApiOperation<keyof typeof PARAMETERS, keyof typeof HEADERS, keyof typeof FAILURES>

const READ = ['MethodNotAllowed', 'RateLimited', 'Internal'] as const
const COMPLETION = [
  'InvalidRequest',
  'Unauthenticated',
  'NotFound',
  'MethodNotAllowed',
  'BodyTimeout',
  'BodyTooLarge',
  'KeyConfigMismatch',
  'RateLimited',
  'Internal',
  'UpstreamFailed',
  'Unavailable',
] as const
const SUCCESS = {
  status: 200,
  description: 'Success.',
  headers: { 'X-Request-ID': 'RequestId' },
} as const
const ANSWERED = {
  ...SUCCESS,
  headers: {
    ...SUCCESS.headers,
    'X-Strongroom-Receipt': 'Receipt',
    [receiptPathHeader]: 'ReceiptPath',
    [saltHeader]: 'ReceiptSalt',
    [responseNonceHeader]: 'ResponseNonce',
    [sealedHeadersHeader]: 'SealedHeaders',
  },
} as const

function completed(schema: string, stream: string): Operation['success'] {
  return {
    ...ANSWERED,
    content: {
      ...jsonContent(ref('schemas', schema)),
      'text/event-stream': { schema: { type: 'string', description: `With \`stream: true\`; ${stream}` } },
    },
  }
}
const COMPLETED = completed('CompletionResponse', 'ends with `data: [DONE]`.')

function shapedOperation({ response, stream, ...own }: (typeof SHAPED_OPERATIONS)[number]): Operation {
  const parameters = ['Receipt', 'EncapsulatedKey'] as const
  const success = completed(response, stream)
  return { method: 'post', ...own, isPublic: false, parameters, success, failures: COMPLETION }
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
    success: { ...SUCCESS, content: jsonContent(ref('schemas', 'GatewayHealth'), { status: 'ok' }) },
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
    success: { ...SUCCESS, content: jsonContent(ref('schemas', 'AttestationResponse')) },
    failures: ['InvalidRequest', 'Conflict', ...READ, 'AttestationUnavailable'],
  },
  {
    method: 'get',
    path: '/workload.json',
    id: 'workload',
    summary:
      'What a gateway in a VM of its own was launched for: HOST_DATA of its receipts is the SHA-256 of this text',
    isPublic: true,
    parameters: [],
    body: null,
    success: {
      ...SUCCESS,
      content: { 'application/json': { schema: { type: 'object', description: 'Canonical JSON, RFC 8785.' } } },
    },
    failures: ['NotFound', ...READ],
  },
  {
    method: 'get',
    path: keyConfigPath,
    id: 'keyConfig',
    summary: 'The X25519 key that requests can be encrypted to (EHBP), for stock clients',
    description: 'Nobody signs it. Whoever wants to know whose key it is takes the keys of /attestation.',
    isPublic: true,
    parameters: [],
    body: null,
    success: {
      ...SUCCESS,
      content: { [keyConfigMediaType]: { schema: { description: 'One key configuration, RFC 9458 section 3.1.' } } },
    },
    failures: READ,
  },
  {
    method: 'get',
    path: '/v1/models',
    id: 'listModels',
    summary: 'Model catalog',
    isPublic: false,
    parameters: [],
    body: null,
    success: {
      ...SUCCESS,
      content: jsonContent(ref('schemas', 'GatewayModelList'), {
        object: 'list',
        data: [{ id: 'strongroom-tiny', object: 'model', owned_by: 'strongroom' }],
      }),
    },
    failures: ['Unauthenticated', ...READ],
  },
  {
    method: 'get',
    path: '/v1/models/{id}',
    id: 'retrieveModel',
    summary: 'One model of the catalog',
    isPublic: false,
    parameters: ['Model'],
    body: null,
    success: { ...SUCCESS, content: jsonContent(ref('schemas', 'GatewayModel')) },
    failures: ['Unauthenticated', 'NotFound', ...READ],
  },
  {
    method: 'get',
    path: `${receiptsPath}{id}`,
    id: 'retrieveReceipt',
    summary: 'The signed receipt of a response that has ended, for the organization that asked for it',
    description:
      'For some minutes, as long as there is room, and not after a restart. Of encrypted requests none is kept: their receipts come encrypted with the response.',
    isPublic: false,
    parameters: ['ReceiptRequest'],
    body: null,
    success: {
      ...SUCCESS,
      content: {
        'text/plain': { schema: { type: 'string', description: 'base64url, as X-Strongroom-Receipt has it.' } },
      },
    },
    failures: ['Unauthenticated', 'NotFound', ...READ],
  },
  {
    method: 'get',
    path: '/v1/usage',
    id: 'retrieveUsage',
    summary: 'What the key has used: sums of the running month (UTC), or rows by model and day',
    description:
      'Without parameters the sums of the key and its organization in the running month (`GatewayUsage`); with any of them rows of the key (`GatewayUsageRows`), or the same as CSV. By the operator’s books, and what has ended since and is on its way there.',
    isPublic: false,
    parameters: ['UsageFrom', 'UsageTo', 'UsageBy', 'UsageFormat'],
    body: null,
    success: {
      ...SUCCESS,
      content: {
        'application/json': {
          schema: { oneOf: [ref('schemas', 'GatewayUsage'), ref('schemas', 'GatewayUsageRows')] },
        },
        'text/csv': {
          schema: {
            type: 'string',
            description: 'RFC 4180 with a line of names: the columns that were asked for, then the sums.',
          },
        },
      },
    },
    failures: ['InvalidRequest', 'Unauthenticated', ...READ, 'Unavailable'],
  },
  {
    method: 'post',
    path: '/v1/chat/completions',
    id: 'createChatCompletion',
    summary: 'Chat completion',
    isPublic: false,
    parameters: ['Receipt', 'EncapsulatedKey'],
    body: {
      schema: 'ChatCompletionRequest',
      example: { model: 'strongroom-tiny', messages: [{ role: 'user', content: 'Hello' }], stream: true },
    },
    success: COMPLETED,
    failures: COMPLETION,
  },
  {
    method: 'post',
    path: '/v1/completions',
    id: 'createCompletion',
    summary: 'Text completion',
    isPublic: false,
    parameters: ['Receipt', 'EncapsulatedKey'],
    body: { schema: 'CompletionRequest', example: { model: 'strongroom-tiny', prompt: 'Once upon a time' } },
    success: COMPLETED,
    failures: COMPLETION,
  },
  ...SHAPED_OPERATIONS.map(shapedOperation),
  {
    method: 'post',
    path: '/v1/embeddings',
    id: 'createEmbeddings',
    summary: 'Embeddings, of models that make them',
    description: 'A model has one use: for another endpoint than its own there is a 400 that names the right one.',
    isPublic: false,
    parameters: ['Receipt', 'EncapsulatedKey'],
    body: {
      schema: 'EmbeddingsRequest',
      example: { model: 'embeddings-small', input: ['Hello', 'Good bye'], encoding_format: 'base64' },
    },
    success: { ...ANSWERED, content: jsonContent(ref('schemas', 'EmbeddingsResponse')) },
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
    success: { ...SUCCESS, content: jsonContent({ type: 'object' }) },
    failures: READ,
  },
]
