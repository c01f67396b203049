// The OpenAPI 3.1 document of service B, the inference gateway. Pure; committed under test/golden. Chat and completion
// bodies are OpenAI's; the document names the fields that the gateway checks.

import {
  epochHeader,
  keyConfigMediaType,
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
  gatewayError,
} from '../../../contract/http/inference.ts'
import {
  type ApiOperation,
  jsonContent,
  type OpenApiDocument,
  ref,
  toJsonSchema,
  toOpenApi,
} from '../../../http/openapi.ts'
import { joined } from '../../../http/operations.ts'
import { queueHeader } from '../../upstream/queue.ts'
import { receiptPathHeader } from '../receipts.ts'
import { costUsdHeader } from '../respond.ts'
import { GatewayProblem } from '../responses.ts'
import { GATEWAY_OPERATIONS, type GatewayOperation } from '../routes.ts'
import {
  ChatCompletionRequest,
  CompletionRequest,
  CompletionResponse,
  EmbeddingsRequest,
  EmbeddingsResponse,
  RerankRequest,
  RerankResponse,
  ResponseTokenCount,
  TokenCount,
} from './bodies.ts'
import { SHAPED_SCHEMAS } from './dialects.ts'
import { FAILURES, HEADERS, PARAMETERS } from './parts.ts'

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
    operations: joined<GatewayOperation, Document>(GATEWAY_OPERATIONS, DOCUMENTS),
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
      TokenCount,
      ResponseTokenCount,
      EmbeddingsRequest,
      EmbeddingsResponse,
      RerankRequest,
      RerankResponse,
    },
    parameters: PARAMETERS,
    headers: HEADERS,
    failures: FAILURES,
    failureDocument: {
      schema: 'GatewayError',
      headers: { 'X-Request-ID': 'RequestId', 'X-Should-Retry': 'ShouldRetry' },
      toExample: ({ fault, message, param }) => gatewayError(fault, message, param),
    },
  })
}

const DESCRIPTION = [
  'Errors are `{error: {code, message}}`. `x-should-retry` is true if repeating the request may help.',
  'Without a valid key, responses under /v1/ say nothing, not even which routes exist.',
  'A stream is whole only when it ends with `data: [DONE]`. One that breaks ends with an event that holds `error`, without [DONE].',
  'GET requests under /v1/ take the key in `x-api-key` too, if there is no `Authorization`.',
  'Responses and messages are chat completions in another form: what holds for the one holds for the others. A stream of messages ends with `message_stop` instead of [DONE].',
  'Bodies of completions may be encrypted to the keys of the attestation (EHBP: X25519 for stock clients, X-Wing by the length of the encapsulated key); then so are their responses, refusals included, whatever else this document states about their content. Headers, status and sizes stay in the clear. EHBP has no end marker: look for `[DONE]`, or for the whole JSON object.',
  'A request that is given up is charged what the upstream reported, else an estimate of its prompt and a token for each chunk delivered.',
].join('\n')

type Document = ApiOperation<keyof typeof PARAMETERS, keyof typeof HEADERS, keyof typeof FAILURES>
type Content = Document['success']['content']

const READ = ['MethodNotAllowed', 'RateLimited', 'Internal'] as const

function success(content: Content): Document['success'] {
  return { status: 200, description: 'Success.', headers: { 'X-Request-ID': 'RequestId' }, content }
}

/** Shared by operations that cost tokens. */
const METERED = {
  parameters: ['Receipt', 'Cost', 'ContentEncoding', 'EncapsulatedKey', 'RequestNonce'],
  failures: [
    'InvalidRequest',
    'Unauthenticated',
    'BudgetSpent',
    'NotFound',
    'MethodNotAllowed',
    'BodyTimeout',
    'BodyTooLarge',
    'UnsupportedMediaType',
    'UpgradeRequired',
    'KeyConfigMismatch',
    'RateLimited',
    'Internal',
    'UpstreamFailed',
    'Unavailable',
  ],
} as const

const COUNT_PARAMETERS = ['ContentEncoding', 'EncapsulatedKey', 'RequestNonce'] as const

/** `stream`: the response with `stream: true`; null if there is none. */
function completed(schema: string, stream: string | null): Document['success'] {
  const events = { schema: { type: 'string', description: `With \`stream: true\`; ${stream}` } }
  return {
    status: 200,
    description: 'Success.',
    headers: {
      'X-Request-ID': 'RequestId',
      'X-Strongroom-Receipt': 'Receipt',
      [costUsdHeader]: 'CostUsd',
      [queueHeader]: 'Queue',
      [receiptPathHeader]: 'ReceiptPath',
      [saltHeader]: 'ReceiptSalt',
      [responseNonceHeader]: 'ResponseNonce',
      [sealedHeadersHeader]: 'SealedHeaders',
    },
    content: { ...jsonContent(ref('schemas', schema)), ...(stream === null ? {} : { 'text/event-stream': events }) },
  }
}

const COMPLETED = completed('CompletionResponse', 'ends with `data: [DONE]`.')

const DOCUMENTS: Readonly<Record<GatewayOperation, Document>> = {
  health: {
    summary: 'Liveness; no attestation evidence',
    success: success(jsonContent(ref('schemas', 'GatewayHealth'), { status: 'ok' })),
    failures: READ,
  },
  attestation: {
    summary: 'Fresh launch and admission evidence; send neither key nor prompt',
    parameters: ['Nonce', 'NonceHeader'],
    success: {
      ...success(jsonContent(ref('schemas', 'AttestationResponse'))),
      headers: { 'X-Request-ID': 'RequestId', [epochHeader]: 'Epoch' },
    },
    failures: ['InvalidRequest', 'Conflict', ...READ, 'AttestationUnavailable'],
  },
  workload: {
    summary:
      'What a gateway in a VM of its own was launched for: HOST_DATA of its receipts is the SHA-256 of this text',
    success: success(jsonContent({ type: 'object', description: 'Canonical JSON, RFC 8785.' })),
    failures: ['NotFound', ...READ],
  },
  keyConfig: {
    summary: 'The X25519 key that requests can be encrypted to (EHBP), for stock clients',
    description: 'The list is unsigned. For authenticated keys use /attestation.',
    success: success({
      [keyConfigMediaType]: { schema: { description: 'One key configuration, RFC 9458 section 3.1.' } },
    }),
    failures: READ,
  },
  listModels: {
    summary: 'Model catalog',
    success: success(
      jsonContent(ref('schemas', 'GatewayModelList'), {
        object: 'list',
        data: [{ id: 'strongroom-tiny', object: 'model', owned_by: 'strongroom' }],
      }),
    ),
    failures: ['Unauthenticated', ...READ],
  },
  retrieveModel: {
    summary: 'One model of the catalog',
    parameters: ['Model'],
    success: success(jsonContent(ref('schemas', 'GatewayModel'))),
    failures: ['Unauthenticated', 'NotFound', ...READ],
  },
  retrieveReceipt: {
    summary: 'The signed receipt of a response that has ended, for the key that asked for it',
    description:
      'For some minutes, as long as there is room, and not after a restart. Of encrypted requests none is kept: their receipts come encrypted with the response.',
    parameters: ['ReceiptRequest'],
    success: success({
      'text/plain': { schema: { type: 'string', description: 'base64url, as X-Strongroom-Receipt has it.' } },
    }),
    failures: ['Unauthenticated', 'NotFound', ...READ],
  },
  retrieveUsage: {
    summary: 'What the key has used: sums of the running month (UTC), or rows by model and day',
    description:
      'Without parameters the sums of the key and its organization in the running month (`GatewayUsage`); with any of them rows of the key (`GatewayUsageRows`), or the same as CSV. By the operator’s books, and what has ended since and is on its way there.',
    parameters: ['UsageFrom', 'UsageTo', 'UsageBy', 'UsageFormat'],
    success: success({
      ...jsonContent({ oneOf: [ref('schemas', 'GatewayUsage'), ref('schemas', 'GatewayUsageRows')] }),
      'text/csv': {
        schema: {
          type: 'string',
          description: 'RFC 4180 with a line of names: the requested columns, then the sums.',
        },
      },
    }),
    failures: ['InvalidRequest', 'Unauthenticated', ...READ, 'Unavailable'],
  },
  createChatCompletion: {
    ...METERED,
    summary: 'Chat completion',
    body: {
      schema: 'ChatCompletionRequest',
      example: { model: 'strongroom-tiny', messages: [{ role: 'user', content: 'Hello' }], stream: true },
    },
    success: COMPLETED,
  },
  createCompletion: {
    ...METERED,
    summary: 'Text completion',
    body: { schema: 'CompletionRequest', example: { model: 'strongroom-tiny', prompt: 'Once upon a time' } },
    success: COMPLETED,
  },
  createResponse: {
    ...METERED,
    summary: 'Response, made of a chat completion; kept for minutes for the same key, unless `store` is false',
    body: { schema: 'ResponsesRequest', example: { model: 'strongroom-tiny', input: 'Hello', stream: true } },
    success: completed(
      'ResponsesResponse',
      "OpenAI's events of a response, `response.completed` or `response.incomplete` and `data: [DONE]` last. One that breaks ends with `response.failed` and `error`.",
    ),
  },
  compactResponse: {
    ...METERED,
    summary: 'Summary of a conversation by the model, as an item that the client keeps',
    description: 'As a response whose input ends with an item `compaction_trigger`. `stream` has no effect.',
    body: { schema: 'ResponsesRequest', example: { model: 'strongroom-tiny', input: 'Hello' } },
    success: completed('CompactionResponse', null),
  },
  countInputTokens: {
    summary: 'Estimate of the tokens of a response’s prompt; runs no model and costs nothing',
    description: 'By the same rule as `/v1/messages/count_tokens`. What the request builds on counts too.',
    parameters: COUNT_PARAMETERS,
    failures: METERED.failures,
    body: { schema: 'ResponsesRequest', example: { model: 'strongroom-tiny', input: 'Hello' } },
    success: success(
      jsonContent(ref('schemas', 'ResponseTokenCount'), { object: 'response.input_tokens', input_tokens: 12 }),
    ),
  },
  listInputItems: {
    summary: 'The items that the request of a kept response had in `input`, in pages',
    description:
      'As long as the response can be retrieved. Items of earlier responses, which `previous_response_id` named, are in the lists of those. The ids are for `after` alone.',
    parameters: ['Response', 'ItemsLimit', 'ItemsOrder', 'ItemsAfter'],
    success: success(jsonContent(ref('schemas', 'InputItems'))),
    failures: ['InvalidRequest', 'Unauthenticated', 'NotFound', ...READ],
  },
  retrieveResponse: {
    summary: 'A response that is kept for the key that asked for it, without `previous_response_id`',
    description:
      'For as long as requests can build on it. `stream=true` is a 400. A response to an encrypted request is never retrieved: the id would stand in the path, in the clear.',
    parameters: ['Response'],
    success: success(jsonContent(ref('schemas', 'ResponsesResponse'))),
    failures: ['InvalidRequest', 'Unauthenticated', 'NotFound', ...READ],
  },
  createMessage: {
    ...METERED,
    summary: 'Message, made of a chat completion',
    description:
      "The key may stand in x-api-key instead. An error has `type: 'error'` beside `error`, and Anthropic's types in `error.type`.",
    body: {
      schema: 'MessagesRequest',
      example: { model: 'strongroom-tiny', max_tokens: 100, messages: [{ role: 'user', content: 'Hello' }] },
    },
    success: completed(
      'MessagesResponse',
      "Anthropic's events of a message, `message_stop` last. One that breaks ends with `error`.",
    ),
  },
  countMessageTokens: {
    summary: 'Estimate of the tokens of a message’s prompt; runs no model and costs nothing',
    description:
      'Four bytes of the text make a token, as in estimates of usage; a picture or document counts as 1600. `max_tokens` may be left out.',
    parameters: COUNT_PARAMETERS,
    failures: METERED.failures,
    body: {
      schema: 'MessagesRequest',
      example: { model: 'strongroom-tiny', max_tokens: 100, messages: [{ role: 'user', content: 'Hello' }] },
    },
    success: success(jsonContent(ref('schemas', 'TokenCount'), { input_tokens: 12 })),
  },
  createEmbeddings: {
    ...METERED,
    summary: 'Embeddings, of models that make them',
    description: 'A model has one use: for another endpoint than its own there is a 400 that names the right one.',
    body: {
      schema: 'EmbeddingsRequest',
      example: { model: 'embeddings-small', input: ['Hello', 'Good bye'], encoding_format: 'base64' },
    },
    success: completed('EmbeddingsResponse', null),
  },
  rerank: {
    ...METERED,
    summary: 'Documents ranked by their relevance to a query, of models that rank',
    description:
      'A model has one use: for another endpoint than its own there is a 400 that names the right one. Tokens are those that the engine reports, or else an estimate with the query once for each document.',
    body: {
      schema: 'RerankRequest',
      example: { model: 'reranker-small', query: 'What is a panda?', documents: ['A bear.', 'A car.'], top_n: 1 },
    },
    success: completed('RerankResponse', null),
  },
  retrieveOpenapi: {
    summary: 'This document',
    success: success(jsonContent({ type: 'object' })),
    failures: READ,
  },
}
