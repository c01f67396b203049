// The OpenAPI 3.1 document of service A, from the schemas in contract/ alone. Pure; committed under test/golden.

import type { TSchema } from '@sinclair/typebox'
import {
  CreateInstance,
  egressLimitBytes,
  InstanceCreated,
  InstanceList,
  InstanceName,
  InstanceRecord,
  idempotencyKeyCharsMax,
  supportedAgent,
  supportedInferenceMode,
  UsageSummary,
} from '../../contract/instance.ts'
import { FailureEnvelope, Problem, SuccessEnvelope } from '../../contract/problem.ts'

export type OpenApiDocument = { readonly openapi: '3.1.0'; readonly paths: Record<string, object> } & Record<
  string,
  unknown
>

/** The whole document, as plain JSON. */
export function openapiDocument(): OpenApiDocument {
  const paths: Record<string, Record<string, object>> = {}
  for (const operation of OPERATIONS) {
    const path = paths[operation.path] ?? {}
    paths[operation.path] = { ...path, [operation.method]: toOperation(operation) }
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Strongroom instances',
      version: '1.0.0',
      summary: 'Confidential virtual machines that run a packaged agent.',
      description: DESCRIPTION,
    },
    servers: [{ url: '/' }],
    security: [{ apiKey: [] }],
    paths,
    components: {
      securitySchemes: {
        apiKey: {
          type: 'http',
          scheme: 'bearer',
          bearerFormat: 'ca_<8>_<18>',
          description: 'A key from the operator: `ca_`, 8, `_` and 18 lowercase letters or digits.',
        },
      },
      schemas: components(),
      parameters: PARAMETERS,
      headers: HEADERS,
      responses: Object.fromEntries(Object.entries(FAILURES).map(([name, row]) => [name, toFailure(row)])),
    },
  }
}

const DESCRIPTION = [
  'Every JSON answer is an envelope with a `request_id` of its own and either `data` or `error`.',
  'A method that a path does not have answers 405, an unknown path 404; both in the envelope.',
  'Only a message that is no well-formed HTTP is refused below this API, without an envelope.',
].join('\n')

type FailureName = keyof typeof FAILURES

type Operation = {
  readonly method: 'get' | 'post' | 'delete'
  readonly path: string
  readonly id: string
  readonly summary: string
  readonly description: string
  readonly public?: true
  readonly parameters: readonly (keyof typeof PARAMETERS)[]
  readonly body?: { readonly schema: string; readonly example: unknown }
  readonly success: { readonly status: 200 | 202; readonly description: string; readonly schema: string | null }
  readonly example: unknown
  readonly failures: readonly FailureName[]
}

const PUBLIC_KEY = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHsJzTQ0tPK4Tw9J6f8W6S1QhIYzG1mJtN5gRt0cMZrE ops@example.org'
const CREATED = {
  name: 'k3v9x2ma',
  status: 'provisioning',
  agent: supportedAgent,
  hostname: 'k3v9x2ma.acme.agents.internal',
  public_key: PUBLIC_KEY,
  inference_mode: supportedInferenceMode,
  inference_model: 'strongroom-tiny',
  egress_limit_bytes: egressLimitBytes,
} as const
const READY = {
  ...CREATED,
  status: 'ready',
  failure_code: null,
  failure_message: null,
  terminated_reason: null,
  created_at: '2026-11-20T08:30:00.000Z',
  ready_at: '2026-11-20T08:31:12.345Z',
  terminated_at: null,
} as const
const READ_FAILURES = ['Unauthenticated', 'Forbidden', 'MethodNotAllowed', 'InternalError'] as const

const OPERATIONS: readonly Operation[] = [
  {
    method: 'post',
    path: '/v1/instances',
    id: 'createInstance',
    summary: 'Create an instance',
    description:
      'Accepts the request and begins provisioning; poll the instance until it is `ready` or `failed`. With an Idempotency-Key, a repetition within 24 hours gets the first answer again and creates nothing; with another body it is a conflict. Bodies are compared by meaning, not by spelling.',
    parameters: ['IdempotencyKey', 'CorrelationId'],
    body: { schema: 'CreateInstance', example: { public_key: PUBLIC_KEY } },
    success: { status: 202, description: 'Accepted.', schema: 'InstanceCreated' },
    example: { ...CREATED, created_at: '2026-11-20T08:30:00.000Z' },
    failures: ['InvalidRequest', ...READ_FAILURES, 'BodyTimeout', 'Conflict', 'BodyTooLarge'],
  },
  {
    method: 'get',
    path: '/v1/instances',
    id: 'listInstances',
    summary: 'List instances',
    description: 'Every record that is kept, the oldest first; terminated ones stay for at least 30 days.',
    parameters: ['CorrelationId'],
    success: { status: 200, description: 'All instances of the organization.', schema: 'InstanceList' },
    example: { instances: [READY], next_cursor: null },
    failures: READ_FAILURES,
  },
  {
    method: 'get',
    path: '/v1/instances/{name}',
    id: 'retrieveInstance',
    summary: 'Retrieve an instance',
    description: 'One record. An instance of another organization is as unknown as one that never was.',
    parameters: ['Name', 'CorrelationId'],
    success: { status: 200, description: 'The instance.', schema: 'InstanceRecord' },
    example: READY,
    failures: [...READ_FAILURES, 'NotFound'],
  },
  {
    method: 'delete',
    path: '/v1/instances/{name}',
    id: 'deleteInstance',
    summary: 'Delete an instance',
    description:
      'Accepted in every state. The DNS name goes at once, teardown follows; poll the instance until it is `terminated`. Repeating it changes nothing and shows the record as it is.',
    parameters: ['Name', 'CorrelationId'],
    success: { status: 202, description: 'Accepted.', schema: 'InstanceRecord' },
    example: { ...READY, status: 'terminating', terminated_reason: 'deleted_via_api' },
    failures: [...READ_FAILURES, 'NotFound'],
  },
  {
    method: 'get',
    path: '/v1/usage',
    id: 'retrieveUsage',
    summary: 'Usage of the current billing period',
    description: 'Periods are months counted from the signup of the organization, in UTC.',
    parameters: ['CorrelationId'],
    success: { status: 200, description: 'Prices and usage.', schema: 'UsageSummary' },
    example: {
      pricing: {
        period_start: '2026-11-03T14:05:09.000Z',
        period_end: '2026-12-03T14:05:09.000Z',
        subscription_cost_usd: '99.00',
        instance_hours_included: 750,
        overage_per_hour_usd: '0.125',
      },
      usage: {
        instance_hours_used: 41.75,
        inference_cost_usd: '3.20',
        egress_bytes: 73_400_320,
        egress_limit_bytes: egressLimitBytes,
        egress_observed_at: '2026-11-20T08:29:58.000Z',
        egress_blocked: false,
        egress_block_applied_at: null,
      },
    },
    failures: READ_FAILURES,
  },
  {
    method: 'get',
    path: '/openapi.json',
    id: 'retrieveOpenapi',
    summary: 'This document',
    description: 'Needs no key.',
    public: true,
    parameters: [],
    success: { status: 200, description: 'The OpenAPI document itself, without an envelope.', schema: null },
    example: undefined,
    failures: ['MethodNotAllowed', 'InternalError'],
  },
]

const PARAMETERS = {
  Name: {
    name: 'name',
    in: 'path',
    required: true,
    description: 'Name of the instance.',
    schema: toSchema(InstanceName, {}),
  },
  IdempotencyKey: {
    name: 'Idempotency-Key',
    in: 'header',
    required: false,
    description:
      'Chosen by the client, once per intended instance: printable ASCII, and no comma before a space. Valid for 24 hours in the organization.',
    schema: { type: 'string', minLength: 1, maxLength: idempotencyKeyCharsMax, pattern: '^[ -~]+$' },
  },
  CorrelationId: {
    name: 'X-Correlation-ID',
    in: 'header',
    required: false,
    description: 'Any value; it comes back in the envelope and in the header.',
    schema: { type: 'string' },
  },
} as const

const HEADERS = {
  RequestId: {
    description: 'The `request_id` of the envelope.',
    required: true,
    schema: { type: 'string', pattern: '^req_[a-z0-9]{24}$' },
  },
  CorrelationId: {
    description: 'The X-Correlation-ID of the request, if it had one.',
    schema: { type: 'string' },
  },
  Allow: { description: 'Methods of this path.', required: true, schema: { type: 'string' } },
  WwwAuthenticate: { description: 'Always `Bearer`.', required: true, schema: { const: 'Bearer' } },
} as const

const EVERY_ANSWER = {
  'X-Request-ID': ref('headers', 'RequestId'),
  'X-Correlation-ID': ref('headers', 'CorrelationId'),
}

type FailureRow = {
  readonly status: number
  readonly description: string
  readonly headers?: Record<string, object>
  readonly error: Problem
}

const FAILURES = {
  InvalidRequest: {
    status: 400,
    description: 'Malformed or invalid input.',
    error: { code: 'invalid_request', message: 'public_key is missing', param: 'public_key' },
  },
  Unauthenticated: {
    status: 401,
    description: 'No key, or none that is known and in force.',
    headers: { 'WWW-Authenticate': ref('headers', 'WwwAuthenticate') },
    error: { code: 'unauthenticated', message: 'The Bearer token is missing or invalid.' },
  },
  Forbidden: {
    status: 403,
    description: 'The organization is suspended, or the key may only read.',
    error: { code: 'forbidden', message: 'This key may only read.' },
  },
  NotFound: {
    status: 404,
    description: 'No such instance in this organization.',
    error: { code: 'not_found', message: 'There is no instance of this name.' },
  },
  MethodNotAllowed: {
    status: 405,
    description: 'The path exists, the method does not; Allow names those that do.',
    headers: { Allow: ref('headers', 'Allow') },
    error: { code: 'invalid_request', message: 'The methods here are GET, HEAD, OPTIONS.' },
  },
  BodyTimeout: {
    status: 408,
    description: 'The body took too long to arrive.',
    error: { code: 'invalid_request', message: 'The body did not arrive within 15000 ms.' },
  },
  Conflict: {
    status: 409,
    description: 'The Idempotency-Key was used with a different body, or the organization has its limit of instances.',
    error: {
      code: 'conflict',
      message: 'This Idempotency-Key was used with a different body in the last 24 hours.',
      param: 'Idempotency-Key',
    },
  },
  BodyTooLarge: {
    status: 413,
    description: 'The body is too large.',
    error: { code: 'invalid_request', message: 'The body is larger than 65536 bytes.' },
  },
  InternalError: {
    status: 500,
    description: 'Unexpected; retry, and give the request id to the operator if it persists.',
    error: { code: 'internal_error', message: 'An unexpected error occurred.' },
  },
} as const satisfies Record<string, FailureRow>

const REQUEST_ID = 'req_7f3k09xw2m5p8q1z4t6v0b2n'

function toOperation(operation: Operation): object {
  const { success } = operation
  const failures = [...operation.failures].sort((a, b) => FAILURES[a].status - FAILURES[b].status)
  return {
    operationId: operation.id,
    summary: operation.summary,
    description: operation.description,
    ...(operation.public ? { security: [] } : {}),
    ...(operation.parameters.length === 0
      ? {}
      : { parameters: operation.parameters.map(name => ref('parameters', name)) }),
    ...(operation.body === undefined
      ? {}
      : {
          requestBody: {
            required: true,
            content: json(ref('schemas', operation.body.schema), operation.body.example),
          },
        }),
    responses: {
      [success.status]: {
        description: success.description,
        headers: EVERY_ANSWER,
        content:
          success.schema === null
            ? { 'application/json': { schema: { type: 'object' } } }
            : json(ref('schemas', `${success.schema}Envelope`), {
                request_id: REQUEST_ID,
                correlation_id: null,
                data: operation.example,
              }),
      },
      ...Object.fromEntries(failures.map(name => [FAILURES[name].status, ref('responses', name)])),
    },
  }
}

function toFailure(row: FailureRow): object {
  return {
    description: row.description,
    headers: { ...EVERY_ANSWER, ...row.headers },
    content: json(ref('schemas', 'FailureEnvelope'), {
      request_id: REQUEST_ID,
      correlation_id: null,
      error: row.error,
    }),
  }
}

function json(schema: object, example: unknown): object {
  return { 'application/json': { schema, example } }
}

function ref(kind: string, name: string): { $ref: string } {
  return { $ref: `#/components/${kind}/${name}` }
}

/** Each schema under its name; where one holds another, it refers to it. */
function components(): Record<string, unknown> {
  const resources = { CreateInstance, InstanceCreated, InstanceRecord, InstanceList, UsageSummary }
  const named: Record<string, TSchema> = { Problem, ...resources }
  const out: Record<string, unknown> = {}
  for (const [name, schema] of Object.entries(named)) {
    const others = Object.fromEntries(Object.entries(named).filter(([other]) => other !== name))
    out[name] = toSchema(schema, others)
  }
  for (const [name, schema] of Object.entries(resources)) {
    if (schema !== CreateInstance) out[`${name}Envelope`] = toSchema(SuccessEnvelope(schema), named)
  }
  out.FailureEnvelope = toSchema(FailureEnvelope, named)
  return out
}

/** Plain JSON Schema 2020-12: named schemas become references, unions of constants become enums. */
function toSchema(schema: TSchema, named: Record<string, TSchema>): unknown {
  const names = new Map(Object.entries(named).map(([name, other]) => [JSON.stringify(other), name]))
  const visit = (node: unknown): unknown => {
    if (Array.isArray(node)) return node.map(visit)
    if (typeof node !== 'object' || node === null) return node
    const name = names.get(JSON.stringify(node))
    if (name !== undefined) return ref('schemas', name)
    const fields = Object.fromEntries(Object.entries(node).map(([key, value]) => [key, visit(value)]))
    const { anyOf, ...rest } = fields
    return Array.isArray(anyOf) ? { ...rest, ...toEnum(anyOf) } : fields
  }
  return visit(JSON.parse(JSON.stringify(schema)))
}

function toEnum(anyOf: readonly { const?: unknown; type?: unknown }[]): object {
  const isConstant = (option: { const?: unknown; type?: unknown }) =>
    Object.hasOwn(option, 'const') || option.type === 'null'
  if (!anyOf.every(isConstant)) return { anyOf }
  return {
    type: [...new Set(anyOf.map(option => option.type))],
    enum: anyOf.map(option => (option.type === 'null' ? null : option.const)),
  }
}
