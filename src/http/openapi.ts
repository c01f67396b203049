// OpenAPI 3.1 documents from a service's tables of operations, failures, parameters and headers. Pure.

import type { TSchema } from '@sinclair/typebox'
import { FAULTS, type FaultCode, statusOf } from '../base/fault.ts'
import type { Problem } from '../contract/http/problem.ts'
import { STORAGE_FAILURES } from './limited.ts'
import type { Joined, Operation } from './operations.ts'
import { internalErrorMessage } from './problem.ts'

export type OpenApiDocument = { readonly openapi: '3.1.0'; readonly paths: Record<string, object> } & Record<
  string,
  unknown
>

/** A service as its document describes it. `Parameter`, `Header` and `Failure` are the names of its tables' rows. */
export type ApiTables<
  Parameter extends string,
  Header extends string,
  Failure extends string,
  Code extends FaultCode,
> = {
  readonly info: {
    readonly title: string
    readonly version: string
    readonly summary: string
    readonly description: string
  }
  /** An example of its address under a reserved name: a client that still has it reaches no host. */
  readonly exampleAddress: string
  /** The form of a key, such as `gw_<8>_<32>`, and a sentence about it. */
  readonly bearer: { readonly format: string; readonly description: string }
  readonly operations: readonly Joined<string, ApiOperation<Parameter, Header, Failure>>[]
  readonly schemas: Readonly<Record<string, unknown>>
  readonly parameters: Readonly<Record<Parameter, object>>
  readonly headers: Readonly<Record<Header, object>>
  readonly failures: Readonly<Record<Failure, ApiFailure<Header, Code>>>
  /** The document that all failures share. */
  readonly failureDocument: {
    readonly schema: string
    readonly headers: HeaderNames<Header>
    readonly toExample: (failure: ApiFailure<Header, Code>) => unknown
  }
}

/** From the header's name on the wire to its row in the table. */
export type HeaderNames<Header extends string> = Readonly<Record<string, Header>>

/** Headers that mean the same in every service. */
export const COMMON_HEADERS = {
  RetryAfter: { description: 'Seconds until it is worth trying again.', required: true, schema: { type: 'integer' } },
  Allow: { description: 'Methods of this path.', required: true, schema: { type: 'string' } },
  WwwAuthenticate: { description: 'Always `Bearer`.', required: true, schema: { const: 'Bearer' } },
} as const

/** The documentation of an operation, besides its method and path. */
export type ApiOperation<Parameter extends string, Header extends string, Failure extends string> = {
  readonly summary: string
  readonly description?: string
  readonly parameters?: readonly Parameter[]
  readonly body?: { readonly schema: string; readonly example: unknown }
  readonly success: ApiSuccess<Header>
  readonly failures: readonly Failure[]
}

export type ApiSuccess<Header extends string> = {
  readonly status: number
  readonly description: string
  readonly headers: HeaderNames<Header>
  /** By media type. */
  readonly content: Readonly<Record<string, object>>
}

/** Status and wire code are those of `fault` in FAULTS. */
export type ApiFailure<Header extends string, Code extends FaultCode = FaultCode> = {
  readonly fault: Code
  /** Only if no fault has the status. */
  readonly status?: number
  readonly description: string
  readonly headers?: HeaderNames<Header>
  readonly message: string
  readonly param?: string
  /** By media type; left out for the common document. */
  readonly content?: Readonly<Record<string, object>>
}

const RETRY_AFTER = { 'Retry-After': 'RetryAfter' } as const

/** Failures, and parts of them, that read alike in several services. */
export const COMMON_FAILURES = {
  unauthenticated: {
    fault: 'unauthenticated',
    message: 'The Bearer token is missing or invalid.',
    headers: { 'WWW-Authenticate': 'WwwAuthenticate' },
  },
  forbidden: {
    fault: 'forbidden',
    description: 'The organization is suspended, or the key may only read.',
    message: 'This key may only read.',
  },
  methodNotAllowed: {
    fault: 'method_not_allowed',
    description: 'The path exists, the method does not.',
    headers: { Allow: 'Allow' },
  },
  bodyTimeout: { fault: 'body_timeout', description: 'The body took too long to arrive.' },
  bodyTooLarge: { fault: 'body_too_large', description: 'The body is too large.' },
  rateLimited: { fault: 'rate_limited', headers: RETRY_AFTER },
  internal: {
    fault: 'internal',
    description: 'Unexpected; give the request id to the operator if it persists.',
    message: internalErrorMessage,
  },
  /** The responses of `storageFault`. */
  notWritable: {
    fault: 'store.unwritable',
    description:
      'The database of this service cannot be written now: another program on its host has locked it, or its disk is full. Nothing was changed. Wait for the time in Retry-After.',
    headers: RETRY_AFTER,
    message: STORAGE_FAILURES['store.unwritable'].message,
  },
  unavailable: { fault: 'attestation_unavailable', headers: RETRY_AFTER },
} as const satisfies Record<string, Partial<ApiFailure<keyof typeof COMMON_HEADERS>>>

/** A parameter of operations; those in the path are required. */
export function parameter(
  place: 'path' | 'query' | 'header',
  name: string,
  description: string,
  schema: unknown = { type: 'string' },
): object {
  return { name, in: place, required: place === 'path', description, schema }
}

/** The whole document, as plain JSON. */
export function toOpenApi<
  Parameter extends string,
  Header extends string,
  Failure extends string,
  Code extends FaultCode,
>(api: ApiTables<Parameter, Header, Failure, Code>): OpenApiDocument {
  const paths: Record<string, Record<string, object>> = {}
  for (const operation of api.operations) {
    const method = operation.method.toLowerCase()
    paths[operation.path] = { ...paths[operation.path], [method]: toOperation(operation, api.failures) }
  }
  const failures = Object.entries<ApiFailure<Header, Code>>(api.failures)
  return {
    openapi: '3.1.0',
    info: api.info,
    servers: [
      { url: api.exampleAddress, description: 'An example: replace it by the address that the operator gave you.' },
    ],
    security: [{ apiKey: [] }],
    paths,
    components: {
      securitySchemes: {
        apiKey: {
          type: 'http',
          scheme: 'bearer',
          bearerFormat: api.bearer.format,
          description: api.bearer.description,
        },
      },
      schemas: api.schemas,
      parameters: api.parameters,
      headers: api.headers,
      responses: Object.fromEntries(failures.map(([name, row]) => [name, toFailure(row, api.failureDocument)])),
    },
  }
}

/** Routes missing in the document, and documented operations without a route, one line each. */
export function routeFaults(
  { paths }: OpenApiDocument,
  routes: readonly Pick<Operation, 'method' | 'path'>[],
): readonly string[] {
  const documented = Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods).map(method => `${method.toUpperCase()} ${path}`),
  )
  const served = routes.map(({ method, path }) => `${method} ${path}`)
  return [
    ...served.filter(place => !documented.includes(place)).map(place => `${place} is not documented`),
    ...documented.filter(place => !served.includes(place)).map(place => `${place} has no route`),
  ]
}

function toOperation<Failure extends string>(
  { id, isPublic, row }: Joined<string, ApiOperation<string, string, Failure>>,
  failures: Readonly<Record<Failure, ApiFailure<string>>>,
): object {
  const { parameters = [], body, success } = row
  const statusOfRow = (name: Failure) => failures[name].status ?? statusOf(failures[name].fault)
  const failed = [...row.failures].sort((a, b) => statusOfRow(a) - statusOfRow(b))
  return {
    operationId: id,
    summary: row.summary,
    ...(row.description === undefined ? {} : { description: row.description }),
    ...(isPublic ? { security: [] } : {}),
    ...(parameters.length === 0 ? {} : { parameters: parameters.map(name => ref('parameters', name)) }),
    ...(body === undefined
      ? {}
      : { requestBody: { required: true, content: jsonContent(ref('schemas', body.schema), body.example) } }),
    responses: {
      [success.status]: {
        description: success.description,
        headers: headerRefs(success.headers),
        content: success.content,
      },
      ...Object.fromEntries(failed.map(name => [statusOfRow(name), ref('responses', name)])),
    },
  }
}

function toFailure<Header extends string, Code extends FaultCode>(
  row: ApiFailure<Header, Code>,
  common: ApiTables<never, Header, never, Code>['failureDocument'],
): object {
  return {
    description: row.description,
    headers: headerRefs({ ...common.headers, ...row.headers }),
    content: row.content ?? jsonContent(ref('schemas', common.schema), common.toExample(row)),
  }
}

/** A failure as services A and C send it. */
export function problemExample({ fault, message, param }: ApiFailure<string>): Problem {
  return { code: FAULTS[fault].wire, message, ...(param === undefined ? {} : { param }) }
}

function headerRefs(names: HeaderNames<string>): Record<string, object> {
  return Object.fromEntries(Object.entries(names).map(([onWire, name]) => [onWire, ref('headers', name)]))
}

export function jsonContent(schema: object, example?: unknown): Record<string, object> {
  return { 'application/json': example === undefined ? { schema } : { schema, example } }
}

export function ref(kind: 'schemas' | 'parameters' | 'headers' | 'responses', name: string): { $ref: string } {
  return { $ref: `#/components/${kind}/${name}` }
}

/** Plain JSON Schema 2020-12: schemas among `named` become references, unions of constants become enums. */
export function toJsonSchema(schema: TSchema, named: Readonly<Record<string, TSchema>> = {}): unknown {
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
  // Serialized first, because TypeBox keeps symbols beside the fields.
  return visit(JSON.parse(JSON.stringify(schema)))
}

type UnionMember = { readonly const?: unknown; readonly type?: unknown }

function toEnum(anyOf: readonly UnionMember[]): object {
  const isConstant = (member: UnionMember) => Object.hasOwn(member, 'const') || member.type === 'null'
  if (!anyOf.every(isConstant)) return { anyOf }
  const types = [...new Set(anyOf.map(member => member.type))]
  return {
    type: types.length === 1 ? types[0] : types,
    enum: anyOf.map(member => (member.type === 'null' ? null : member.const)),
  }
}
