// The OpenAPI 3.1 document of service B, the inference gateway. Pure. Chat and completion bodies are OpenAI's; the
// document names the fields that the gateway checks.
//
// The gateway serves openapi.json, which `bun scripts/openapi.ts --write` generates from this file, so that measured
// programs contain only the text.

import {
  epochHeader,
  keyConfigMediaType,
  responseNonceHeader,
  sealedHeadersHeader,
} from '../../../attest/ehbp/protocol.ts'
import { saltHeader } from '../../../attest/receipt/response.ts'
import { AttestationResponse } from '../../../contract/http/attestation.ts'
import { gatewayError } from '../../../contract/http/gateway-error.ts'
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
import { joined } from '../../../http/operations.ts'
import { queueHeader } from '../../upstream/queue.ts'
import { receiptPathHeader } from '../receipts.ts'
import { costUsdHeader } from '../respond.ts'
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
import { GatewayProblem } from './gateway-problem.ts'
import { FAILURES, HEADERS, PARAMETERS } from './parts.ts'

/** Returns the whole document as plain JSON. */
export function inferenceOpenapiDocument(): OpenApiDocument {
  return toOpenApi({
    info: {
      title: 'Strongroom inference gateway',
      version: '1.0.0',
      summary: 'An OpenAI-compatible API with public attestation.',
      description: DESCRIPTION,
    },
    exampleAddress: 'https://gateway.example:8442',
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
  'Without a valid key, responses under /v1/ reveal nothing, not even which routes exist.',
  'A stream is complete only when it ends with `data: [DONE]`. A broken stream ends with an event that holds `error`, without [DONE].',
  'GET requests under /v1/ also accept the key in `x-api-key` if there is no `Authorization`.',
  'Responses and messages are chat completions in another form, and the same rules apply to them. A stream of messages ends with `message_stop` instead of [DONE].',
  'Bodies of completions may be encrypted to the keys of the attestation (EHBP: X25519 for stock clients, X-Wing by the length of the encapsulated key); their responses, including refusals, are then encrypted too, whatever else this document states about their content. Headers, status and sizes stay in the clear. EHBP has no end marker: look for `[DONE]`, or for the whole JSON object.',
  'A cancelled request is charged what the upstream reported, or else an estimate of its prompt plus one token for each chunk delivered.',
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

/** Describes a success. `stream`: the response with `stream: true`; null if there is none. */
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
    summary: 'Workload for which a gateway VM was launched: HOST_DATA of its receipts is the SHA-256 of this text',
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
    summary: 'Signed receipt of a finished response, for the key that requested it',
    description:
      'Stored for some minutes while there is room, and lost at a restart. Receipts of encrypted requests are not stored: they are sent encrypted with the response.',
    parameters: ['ReceiptRequest'],
    success: success({
      'text/plain': { schema: { type: 'string', description: 'base64url, as in X-Strongroom-Receipt.' } },
    }),
    failures: ['Unauthenticated', 'NotFound', ...READ],
  },
  retrieveUsage: {
    summary: 'Usage of the key: totals of the current month (UTC), or rows by model and day',
    description:
      'Without parameters the totals of the key and its organization in the current month (`GatewayUsage`); with any parameter rows of the key (`GatewayUsageRows`), or the same as CSV. Includes finished requests that are not yet in the operator’s ledger.',
    parameters: ['UsageFrom', 'UsageTo', 'UsageBy', 'UsageFormat'],
    success: success({
      ...jsonContent({ oneOf: [ref('schemas', 'GatewayUsage'), ref('schemas', 'GatewayUsageRows')] }),
      'text/csv': {
        schema: {
          type: 'string',
          description: 'RFC 4180 with a header line: the requested columns, then the totals.',
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
    summary: 'Response, made from a chat completion; stored for minutes for the same key, unless `store` is false',
    body: { schema: 'ResponsesRequest', example: { model: 'strongroom-tiny', input: 'Hello', stream: true } },
    success: completed(
      'ResponsesResponse',
      "OpenAI's events of a response, `response.completed` or `response.incomplete` and `data: [DONE]` last. A broken stream ends with `response.failed` and `error`.",
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
    description: 'By the same rule as `/v1/messages/count_tokens`. Earlier responses that the request names count too.',
    parameters: COUNT_PARAMETERS,
    failures: METERED.failures,
    body: { schema: 'ResponsesRequest', example: { model: 'strongroom-tiny', input: 'Hello' } },
    success: success(
      jsonContent(ref('schemas', 'ResponseTokenCount'), { object: 'response.input_tokens', input_tokens: 12 }),
    ),
  },
  listInputItems: {
    summary: 'Items of `input` in the request of a stored response, in pages',
    description:
      'Available while the response can be retrieved. Items of an earlier response, which `previous_response_id` named, are in the list of that response. Use the ids only for `after`.',
    parameters: ['Response', 'ItemsLimit', 'ItemsOrder', 'ItemsAfter'],
    success: success(jsonContent(ref('schemas', 'InputItems'))),
    failures: ['InvalidRequest', 'Unauthenticated', 'NotFound', ...READ],
  },
  retrieveResponse: {
    summary: 'Stored response, for the key that requested it, without `previous_response_id`',
    description:
      'Available while requests can build on it. `stream=true` is a 400. Responses to encrypted requests cannot be retrieved, because the id would be in the path, in plaintext.',
    parameters: ['Response'],
    success: success(jsonContent(ref('schemas', 'ResponsesResponse'))),
    failures: ['InvalidRequest', 'Unauthenticated', 'NotFound', ...READ],
  },
  createMessage: {
    ...METERED,
    summary: 'Message, made from a chat completion',
    description:
      "The key can be in x-api-key instead. An error has `type: 'error'` next to `error`, and Anthropic's types in `error.type`.",
    body: {
      schema: 'MessagesRequest',
      example: { model: 'strongroom-tiny', max_tokens: 100, messages: [{ role: 'user', content: 'Hello' }] },
    },
    success: completed(
      'MessagesResponse',
      "Anthropic's events of a message, `message_stop` last. A broken stream ends with `error`.",
    ),
  },
  countMessageTokens: {
    summary: 'Estimate of the tokens of a message’s prompt; runs no model and costs nothing',
    description:
      'Counts one token for four bytes of text, as in usage estimates, and 1600 for a picture or document. `max_tokens` is optional.',
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
    summary: 'Embeddings, from embedding models',
    description: 'A model serves one kind of endpoint: any other returns a 400 that names the right one.',
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
      'A model serves one kind of endpoint: any other returns a 400 that names the right one. Tokens are those that the engine reports, or else an estimate that counts the query once for each document.',
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
