// The OpenAPI 3.1 document of service C, attested builds. Pure; committed under test/golden.

import { BuildEvent, BuildRequest } from '../../contract/http/build.ts'
import { BuildAccepted, BuildProblem, BuildRecord, BuildVmReserved } from '../../contract/http/build-api.ts'
import {
  type ApiFailure,
  type ApiOperation,
  COMMON_HEADERS,
  jsonContent,
  NOT_WRITABLE,
  type OpenApiDocument,
  ref,
  toJsonSchema,
  toOpenApi,
} from '../../http/openapi.ts'

/** The whole document, as plain JSON. */
export function buildsOpenapiDocument(): OpenApiDocument {
  return toOpenApi({
    info: {
      title: 'Strongroom attested builds',
      version: '1.0.0',
      summary: 'Builds source code in confidential VMs and proves what built it.',
      description: DESCRIPTION,
    },
    bearer: {
      format: 'ca_<8>_<18>',
      description:
        'A key of the organization, as for service A. Where the operator has opened the service, none is needed.',
    },
    operations: [...OPERATIONS, ...OPERATIONS.filter(isOfOneBuild).map(ofVm), ...VM_OPERATIONS],
    schemas: {
      BuildRequest: toJsonSchema(BuildRequest),
      BuildAccepted: toJsonSchema(BuildAccepted),
      BuildRecord: toJsonSchema(BuildRecord),
      BuildEvent: toJsonSchema(BuildEvent),
      BuildVmReserved: toJsonSchema(BuildVmReserved),
      BuildProblem: toJsonSchema(BuildProblem),
    },
    parameters: PARAMETERS,
    headers: HEADERS,
    failures: FAILURES,
    failureDocument: {
      schema: 'BuildProblem',
      headers: { 'X-Request-ID': 'RequestId' },
      toExample: error => ({ error }),
    },
  })
}

const DESCRIPTION = [
  'Errors are `{error: {code, message, param?}}`. Every response has an X-Request-ID.',
  'A build has a virtual machine of its own, for itself alone. Without one it waits in a queue.',
  'The base address is a dispatcher. `POST /vm` reserves a VM, whose own address below `/vm/{vm}` has the same endpoints and takes exactly one build.',
  'A build belongs to the organization whose key submitted it; to all others it is unknown. A nonce is used once.',
  'Whatever goes wrong in a build is its `complete` event with `status: failed`, a stable `error_type` and words; HTTP errors are of requests.',
].join('\n')

const id = 'f0d5a1de-6c1b-4f0e-9c39-0a9a5f6b7c8d'
const vmId = '0b8f1c8e-9f5e-4c57-9b0a-1f6f6b7c2a3d'

const PARAMETERS = {
  Id: { name: 'id', in: 'path', required: true, description: 'job_id of the build.', schema: { type: 'string' } },
  Vm: { name: 'vm', in: 'path', required: true, description: 'vm_id of the VM.', schema: { type: 'string' } },
  From: {
    name: 'from',
    in: 'query',
    required: false,
    description: 'Only events after this id. Goes before Last-Event-ID.',
    schema: { type: 'integer', minimum: 0 },
  },
  LastEventId: {
    name: 'Last-Event-ID',
    in: 'header',
    required: false,
    description: 'The same as `from`, as clients of server-sent events send it when they connect again.',
    schema: { type: 'integer', minimum: 0 },
  },
  Range: {
    name: 'Range',
    in: 'header',
    required: false,
    description: 'One range of bytes (RFC 9110 14.2).',
    schema: { type: 'string', examples: ['bytes=1048576-'] },
  },
} as const

const HEADERS = {
  RequestId: { description: 'The id of this request in the log.', schema: { type: 'string' } },
  RetryAfter: COMMON_HEADERS.RetryAfter,
  Allow: COMMON_HEADERS.Allow,
  WwwAuthenticate: COMMON_HEADERS.WwwAuthenticate,
  ETag: { description: 'SHA-256 of the result, in quotes.', schema: { type: 'string' } },
} as const

const FAILURES = {
  InvalidRequest: {
    status: 400,
    description: 'The request is not as it must be; nothing was used up by it.',
    error: { code: 'invalid_request', message: 'nonce must be 1 to 16 bytes in hexadecimal.', param: 'nonce' },
  },
  Unauthenticated: {
    status: 401,
    description: 'Missing, invalid or revoked key; decided before the body is read.',
    headers: { 'WWW-Authenticate': 'WwwAuthenticate' },
    error: { code: 'unauthenticated', message: 'The Bearer token is missing or invalid.' },
  },
  Forbidden: {
    status: 403,
    description: 'The organization is suspended, or the key may only read.',
    error: { code: 'forbidden', message: 'This key may only read.' },
  },
  NotFound: {
    status: 404,
    description: 'Unknown, of another organization, not there yet, or removed.',
    error: { code: 'not_found', message: 'There is no build of this id.' },
  },
  MethodNotAllowed: {
    status: 405,
    description: 'The path exists, the method does not.',
    headers: { Allow: 'Allow' },
    error: { code: 'invalid_request', message: 'The methods here are OPTIONS, POST.' },
  },
  BodyTimeout: {
    status: 408,
    description: 'The body took too long to arrive.',
    error: { code: 'invalid_request', message: 'The body did not arrive within 600000 ms.' },
  },
  Conflict: {
    status: 409,
    description: 'The nonce was used for another build, or this VM has accepted its build.',
    error: { code: 'conflict', message: 'This VM has accepted a build already; each takes one.' },
  },
  BodyTooLarge: {
    status: 413,
    description: 'The body, its source or its other fields are too large.',
    error: { code: 'invalid_request', message: 'source_data holds more than 67108864 bytes.', param: 'source_data' },
  },
  RangeNotSatisfiable: {
    status: 416,
    description: 'The range begins behind the end; without a body.',
    error: { code: 'invalid_request', message: '' },
  },
  RateLimited: {
    status: 429,
    description: 'The queue is full, or a limit of the organization, of requests or of room is reached.',
    headers: { 'Retry-After': 'RetryAfter' },
    error: { code: 'invalid_request', message: 'As many builds as may wait (32) are waiting.' },
  },
  NotWritable: NOT_WRITABLE,
  InternalError: {
    status: 500,
    description: 'Unexpected; give the request id to the operator if it persists.',
    error: { code: 'internal_error', message: 'An unexpected error occurred.' },
  },
  Unavailable: {
    status: 503,
    description: 'The VM is not up now.',
    headers: { 'Retry-After': 'RetryAfter' },
    error: { code: 'internal_error', message: 'This VM is not up now; a build that is sent to it waits for it.' },
  },
} as const satisfies Record<string, ApiFailure<keyof typeof HEADERS>>

type Operation = ApiOperation<keyof typeof PARAMETERS, keyof typeof HEADERS, keyof typeof FAILURES>

const READ = ['Unauthenticated', 'Forbidden', 'NotFound', 'MethodNotAllowed', 'RateLimited', 'InternalError'] as const
const PUBLIC = ['MethodNotAllowed', 'RateLimited', 'InternalError'] as const
const SUBMIT = [...READ, 'InvalidRequest', 'BodyTimeout', 'Conflict', 'BodyTooLarge', 'NotWritable'] as const

const text = (description: string) => ({ 'text/plain': { schema: { type: 'string', description } } })

function success(description: string, content: Operation['success']['content']): Operation['success'] {
  return { status: 200, description, headers: { 'X-Request-ID': 'RequestId' }, content }
}

const RECORD = {
  job_id: id,
  state: 'ok',
  nonce: '000102030405060708090a0b0c0d0e0f',
  source: { kind: 'archive', name: 'hello.tar.gz', size_bytes: 20_480, sha256: 'a1'.repeat(32) },
  project_dir: null,
  toolchain: null,
  reproduce: false,
  vm_id: vmId,
  attested: { measurement: 'b2'.repeat(48), source_tree: 'c3'.repeat(32), simulated: false },
  result: {
    size_bytes: 1_048_576,
    sha256: 'd4'.repeat(32),
    provenance_sha256: 'e5'.repeat(32),
    url: `https://builds.example/build/${id}/result`,
  },
  commands: [`strongroom verify build ./hello --nonce 000102030405060708090a0b0c0d0e0f --source SOURCE`],
  error_type: null,
  error: null,
  created_at: '2026-11-22T08:30:00.000Z',
  started_at: '2026-11-22T08:30:01.000Z',
  finished_at: '2026-11-22T08:32:07.000Z',
}

const OPERATIONS: readonly Operation[] = [
  {
    method: 'get',
    path: '/health',
    id: 'health',
    summary: 'Liveness',
    isPublic: true,
    parameters: [],
    body: null,
    success: success('The service is up.', text('`ok`')),
    failures: PUBLIC,
  },
  {
    method: 'post',
    path: '/build',
    id: 'submitBuild',
    summary: 'Submit a build',
    description:
      'Exactly one of `repo_url` and `source_data`. The source is written to disk while it arrives: send `nonce` and all else in any order. A field that is null is as if it were left out.',
    isPublic: false,
    parameters: [],
    body: {
      schema: 'BuildRequest',
      example: { nonce: '000102030405060708090a0b0c0d0e0f', source_data: 'H4sIAAAAAAAA…' },
    },
    success: success('Accepted.', {
      ...jsonContent(ref('schemas', 'BuildAccepted'), { job_id: id, build_url: `https://builds.example/build/${id}` }),
    }),
    failures: SUBMIT,
  },
  {
    method: 'get',
    path: '/build/{id}',
    id: 'retrieveBuild',
    summary: 'State and digests of a build',
    isPublic: false,
    parameters: ['Id'],
    body: null,
    success: success('The record.', jsonContent(ref('schemas', 'BuildRecord'), RECORD)),
    failures: READ,
  },
  {
    method: 'delete',
    path: '/build/{id}',
    id: 'cancelBuild',
    summary: 'Cancel a build',
    description: 'Accepted in every state; without effect on a build that has ended.',
    isPublic: false,
    parameters: ['Id'],
    body: null,
    success: success(
      'The record as it is now.',
      jsonContent(ref('schemas', 'BuildRecord'), {
        ...RECORD,
        result: null,
        state: 'cancelled',
        error_type: 'cancelled',
        error: 'The build was cancelled.',
        commands: [],
      }),
    ),
    failures: [...READ, 'NotWritable'],
  },
  {
    method: 'get',
    path: '/build/{id}/events',
    id: 'followBuild',
    summary: 'Events of a build, from its begin to `complete`',
    description:
      'Server-sent events: `event`, an `id` that counts from 1, and `data`, which is a BuildEvent as JSON. The stream begins with the first event and ends after the one `complete`; who reads slowly loses nothing. Events that were left out, because a build printed too much, are announced by one of type `host`.',
    isPublic: false,
    parameters: ['Id', 'From', 'LastEventId'],
    body: null,
    success: success('The stream.', {
      'text/event-stream': { schema: { type: 'string', description: 'Each `data` is a BuildEvent.' } },
    }),
    failures: [...READ, 'InvalidRequest'],
  },
  {
    method: 'get',
    path: '/build/{id}/result',
    id: 'retrieveResult',
    summary: 'The result: a gzipped tarball with artifacts, provenance and evidence',
    description: 'Only after a successful `complete`. With Range, status 206 and the part.',
    isPublic: false,
    parameters: ['Id', 'Range'],
    body: null,
    success: {
      status: 200,
      description: 'The whole result.',
      headers: { 'X-Request-ID': 'RequestId', ETag: 'ETag' },
      content: { 'application/gzip': { schema: { type: 'string', contentMediaType: 'application/gzip' } } },
    },
    failures: [...READ, 'RangeNotSatisfiable'],
  },
  {
    method: 'post',
    path: '/vm',
    id: 'reserveVm',
    summary: 'Reserve a VM for one build',
    description: 'It is kept for a while, and then for its build.',
    isPublic: false,
    parameters: [],
    body: null,
    success: success(
      'Reserved.',
      jsonContent(ref('schemas', 'BuildVmReserved'), {
        vm_id: vmId,
        vm_url: `https://builds.example/vm/${vmId}`,
        expires_at: '2026-11-22T08:45:00.000Z',
      }),
    ),
    failures: [...READ, 'NotWritable'],
  },
  {
    method: 'get',
    path: '/openapi.json',
    id: 'retrieveOpenapi',
    summary: 'This document',
    isPublic: true,
    parameters: [],
    body: null,
    success: success('The document.', jsonContent({ type: 'object' })),
    failures: PUBLIC,
  },
]

const VM_OPERATIONS: readonly Operation[] = [
  {
    method: 'get',
    path: '/vm/{vm}/health',
    id: 'vmHealth',
    summary: 'Liveness of one VM',
    isPublic: true,
    parameters: ['Vm'],
    body: null,
    success: success('The VM is up.', text('`ok`')),
    failures: [...PUBLIC, 'NotFound', 'Unavailable'],
  },
]

function isOfOneBuild({ path }: Operation): boolean {
  return path.startsWith('/build')
}

/** The same at the address of one VM. */
function ofVm(operation: Operation): Operation {
  return {
    ...operation,
    path: `/vm/{vm}${operation.path}`,
    id: `${operation.id}OfVm`,
    summary: `${operation.summary}, at the address of its VM`,
    parameters: ['Vm', ...operation.parameters],
  }
}
