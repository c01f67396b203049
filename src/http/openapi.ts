// OpenAPI 3.1 documents from a service's tables of operations, failures, parameters and headers. Pure.

import type { TSchema } from '@sinclair/typebox'

export type OpenApiDocument = { readonly openapi: '3.1.0'; readonly paths: Record<string, object> } & Record<
  string,
  unknown
>

/** A service as its document describes it. `Parameter`, `Header` and `Failure` are the names of its tables' rows. */
export type ApiTables<Parameter extends string, Header extends string, Failure extends string> = {
  readonly info: {
    readonly title: string
    readonly version: string
    readonly summary: string
    readonly description: string
  }
  /** The form of a key, such as `gw_<8>_<32>`, and a sentence about it. */
  readonly bearer: { readonly format: string; readonly description: string }
  readonly operations: readonly ApiOperation<Parameter, Header, Failure>[]
  readonly schemas: Readonly<Record<string, unknown>>
  readonly parameters: Readonly<Record<Parameter, object>>
  readonly headers: Readonly<Record<Header, object>>
  readonly failures: Readonly<Record<Failure, ApiFailure<Header>>>
  /** What all failures have in common. */
  readonly failureDocument: {
    readonly schema: string
    readonly headers: HeaderNames<Header>
    /** A row's `error` as it looks on the wire. */
    readonly toExample: (error: unknown) => unknown
  }
}

/** From the header's name on the wire to its row in the table. */
export type HeaderNames<Header extends string> = Readonly<Record<string, Header>>

/** Rows of every service's table of headers that mean the same in each. */
export const COMMON_HEADERS = {
  RetryAfter: { description: 'Seconds until it is worth trying again.', required: true, schema: { type: 'integer' } },
  Allow: { description: 'Methods of this path.', required: true, schema: { type: 'string' } },
  WwwAuthenticate: { description: 'Always `Bearer`.', required: true, schema: { const: 'Bearer' } },
} as const

/** A method at a path. */
export type ApiOperation<Parameter extends string, Header extends string, Failure extends string> = {
  readonly method: 'get' | 'post' | 'delete'
  readonly path: string
  readonly id: string
  readonly summary: string
  readonly description?: string
  /** Needs no key. */
  readonly isPublic: boolean
  readonly parameters: readonly Parameter[]
  readonly body: { readonly schema: string; readonly example: unknown } | null
  readonly success: {
    readonly status: number
    readonly description: string
    readonly headers: HeaderNames<Header>
    /** By media type. */
    readonly content: Readonly<Record<string, object>>
  }
  readonly failures: readonly Failure[]
}

export type ApiFailure<Header extends string> = {
  readonly status: number
  readonly description: string
  readonly headers?: HeaderNames<Header>
  readonly error: unknown
  /** By media type; left out where it is the common document. */
  readonly content?: Readonly<Record<string, object>>
}

/** Of what must be stored to be answered: `storageFault` of limited.ts. */
export const NOT_WRITABLE = {
  status: 503,
  description:
    'The database of this service cannot be written now: another program on its host holds it, or its disk is full. Nothing was changed. Wait as long as Retry-After says.',
  headers: { 'Retry-After': 'RetryAfter' },
  error: {
    code: 'internal_error',
    message:
      'This service cannot write to its disk at present. Nothing was changed; tell the operator, and send the request again as soon as Retry-After says.',
  },
} as const satisfies ApiFailure<'RetryAfter'>

/** The whole document, as plain JSON. */
export function toOpenApi<Parameter extends string, Header extends string, Failure extends string>(
  api: ApiTables<Parameter, Header, Failure>,
): OpenApiDocument {
  const paths: Record<string, Record<string, object>> = {}
  for (const operation of api.operations) {
    paths[operation.path] = { ...paths[operation.path], [operation.method]: toOperation(operation, api.failures) }
  }
  const failures = Object.entries<ApiFailure<Header>>(api.failures)
  return {
    openapi: '3.1.0',
    info: api.info,
    servers: [{ url: '/' }],
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

function toOperation<Failure extends string>(
  operation: ApiOperation<string, string, Failure>,
  failures: Readonly<Record<Failure, ApiFailure<string>>>,
): object {
  const { parameters, body, success } = operation
  const failed = [...operation.failures].sort((a, b) => failures[a].status - failures[b].status)
  return {
    operationId: operation.id,
    summary: operation.summary,
    ...(operation.description === undefined ? {} : { description: operation.description }),
    ...(operation.isPublic ? { security: [] } : {}),
    ...(parameters.length === 0 ? {} : { parameters: parameters.map(name => ref('parameters', name)) }),
    ...(body === null
      ? {}
      : { requestBody: { required: true, content: jsonContent(ref('schemas', body.schema), body.example) } }),
    responses: {
      [success.status]: {
        description: success.description,
        headers: headerRefs(success.headers),
        content: success.content,
      },
      ...Object.fromEntries(failed.map(name => [failures[name].status, ref('responses', name)])),
    },
  }
}

function toFailure(row: ApiFailure<string>, common: ApiTables<never, string, never>['failureDocument']): object {
  return {
    description: row.description,
    headers: headerRefs({ ...common.headers, ...row.headers }),
    content: row.content ?? jsonContent(ref('schemas', common.schema), common.toExample(row.error)),
  }
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
  // Through text, because TypeBox keeps symbols beside the fields.
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
