// The OpenAPI 3.1 document of service C, attested builds. Pure; committed under test/golden.

import { BuildEvent, BuildRequest } from '../../contract/http/build.ts'
import { BuildAccepted, BuildProblem, BuildRecord, BuildVmReserved } from '../../contract/http/build-api.ts'
import {
  type ApiFailure,
  type ApiOperation,
  COMMON_FAILURES,
  COMMON_HEADERS,
  jsonContent,
  type OpenApiDocument,
  parameter,
  problemExample,
  ref,
  toJsonSchema,
  toOpenApi,
} from '../../http/openapi.ts'
import { type Joined, joined } from '../../http/operations.ts'
import { LOG_DOCUMENTS, LOG_OPERATIONS, LOG_PARAMETERS } from '../../transparency/operations.ts'
import { atVm, BUILD_OPERATIONS, type BuildOperation } from './operations.ts'

/** Returns the whole document as plain JSON. */
export function buildsOpenapiDocument(): OpenApiDocument {
  return toOpenApi({
    info: {
      title: 'Strongroom attested builds',
      version: '1.0.0',
      summary: 'Builds source code in confidential VMs and proves what built it.',
      description: DESCRIPTION,
    },
    exampleAddress: 'https://builds.example:8443',
    bearer: {
      format: 'ca_<8>_<18>',
      description: 'A key of the organization, as for service A. Not required if the operator has opened the service.',
    },
    operations: documented(),
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
      toExample: row => ({ error: problemExample(row) }),
    },
  })
}

const DESCRIPTION = [
  'Errors are `{error: {code, message, param?}}`. Every response has an X-Request-ID.',
  'Each build runs in its own virtual machine. While none is free, the build waits in a queue.',
  'The base address is a dispatcher. `POST /vm` reserves a VM, whose own address below `/vm/{vm}` has the same endpoints and takes exactly one build.',
  'A build belongs to the organization whose key submitted it, and is not found for others. A nonce is used once.',
  'A failed build ends with a `complete` event with `status: failed`, a stable `error_type` and a message; HTTP errors concern requests.',
].join('\n')

const id = 'f0d5a1de-6c1b-4f0e-9c39-0a9a5f6b7c8d'
const vmId = '0b8f1c8e-9f5e-4c57-9b0a-1f6f6b7c2a3d'

const PARAMETERS = {
  Id: parameter('path', 'id', 'job_id of the build.'),
  Vm: parameter('path', 'vm', 'vm_id of the VM.'),
  ...LOG_PARAMETERS,
  From: parameter('query', 'from', 'Only events after this id. Takes precedence over Last-Event-ID.', {
    type: 'integer',
    minimum: 0,
  }),
  LastEventId: parameter(
    'header',
    'Last-Event-ID',
    'The same as `from`; clients of server-sent events send it when they reconnect.',
    { type: 'integer', minimum: 0 },
  ),
  Range: parameter('header', 'Range', 'One range of bytes (RFC 9110 14.2).', {
    type: 'string',
    examples: ['bytes=1048576-'],
  }),
} as const

const HEADERS = {
  RequestId: { description: 'The id of this request in the log.', schema: { type: 'string' } },
  ...COMMON_HEADERS,
  ETag: { description: 'SHA-256 of the result, in quotes.', schema: { type: 'string' } },
} as const

const FAILURES = {
  InvalidRequest: {
    fault: 'invalid_request',
    description: 'The request is invalid; its nonce was not used up.',
    message: 'nonce must be 1 to 16 bytes in hexadecimal.',
    param: 'nonce',
  },
  Unauthenticated: {
    ...COMMON_FAILURES.unauthenticated,
    description: 'Missing, invalid or revoked key; decided before the body is read.',
  },
  Forbidden: COMMON_FAILURES.forbidden,
  NotFound: {
    fault: 'not_found',
    description: 'Unknown, of another organization, not available yet, or removed.',
    message: 'Build not found.',
  },
  MethodNotAllowed: { ...COMMON_FAILURES.methodNotAllowed, message: 'The methods here are OPTIONS, POST.' },
  BodyTimeout: { ...COMMON_FAILURES.bodyTimeout, message: 'The body did not arrive within 600000 ms.' },
  Conflict: {
    fault: 'conflict',
    description: 'The nonce was used for another build, or this VM has accepted its build.',
    message: 'This VM has already accepted a build; each VM takes one.',
  },
  BodyTooLarge: {
    ...COMMON_FAILURES.bodyTooLarge,
    description: 'The body, its source or its other fields are too large.',
    message: 'source_data holds more than 67108864 bytes.',
    param: 'source_data',
  },
  RangeNotSatisfiable: {
    fault: 'invalid_request',
    status: 416,
    description: 'The range begins after the end; no body.',
    message: '',
  },
  RateLimited: {
    ...COMMON_FAILURES.rateLimited,
    description: 'The queue is full, or a limit of the organization, of requests or of disk space is reached.',
    message: 'The queue is full: 32 builds are waiting; retry later.',
  },
  NotWritable: COMMON_FAILURES.notWritable,
  InternalError: COMMON_FAILURES.internal,
  Unavailable: {
    ...COMMON_FAILURES.unavailable,
    description: 'The VM is not running now.',
    message: 'This VM is not running now; a build that is sent to it waits until it is.',
  },
} as const satisfies Record<string, ApiFailure<keyof typeof HEADERS>>

type Document = ApiOperation<keyof typeof PARAMETERS, keyof typeof HEADERS, keyof typeof FAILURES>

const READ = ['Unauthenticated', 'Forbidden', 'NotFound', 'MethodNotAllowed', 'RateLimited', 'InternalError'] as const
const PUBLIC = ['MethodNotAllowed', 'RateLimited', 'InternalError'] as const
const SUBMIT = [...READ, 'InvalidRequest', 'BodyTimeout', 'Conflict', 'BodyTooLarge', 'NotWritable'] as const

const text = (description: string) => ({ 'text/plain': { schema: { type: 'string', description } } })

function success(description: string, content: Document['success']['content']): Document['success'] {
  return { status: 200, description, headers: { 'X-Request-ID': 'RequestId' }, content }
}

const RECORD = {
  job_id: id,
  state: 'ok',
  nonce: '000102030405060708090a0b0c0d0e0f',
  source: { kind: 'archive', name: 'hello.tar.gz', size_bytes: 20_480, sha256: 'a1'.repeat(32) },
  project_dir: null,
  toolchain: 'cargo',
  options: { package: 'hello', features: ['tls'] },
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

const DOCUMENTS: Readonly<Record<BuildOperation, Document>> = {
  health: {
    summary: 'Liveness',
    success: success('The service is up.', text('`ok`')),
    failures: PUBLIC,
  },
  submitBuild: {
    summary: 'Submit a build',
    description:
      'Exactly one of `repo_url` and `source_data`. The source is written to disk while it arrives: send `nonce` and the other fields in any order. A null field counts as absent.',
    body: {
      schema: 'BuildRequest',
      example: { nonce: '000102030405060708090a0b0c0d0e0f', source_data: 'H4sIAAAAAAAA…' },
    },
    success: success('Accepted.', {
      ...jsonContent(ref('schemas', 'BuildAccepted'), { job_id: id, build_url: `https://builds.example/build/${id}` }),
    }),
    failures: SUBMIT,
  },
  retrieveBuild: {
    summary: 'State and digests of a build',
    parameters: ['Id'],
    success: success('The record.', jsonContent(ref('schemas', 'BuildRecord'), RECORD)),
    failures: READ,
  },
  cancelBuild: {
    summary: 'Cancel a build',
    description: 'Accepted in every state; has no effect on a finished build.',
    parameters: ['Id'],
    success: success(
      'The current record.',
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
  followBuild: {
    summary: 'Events of a build, from its start to `complete`',
    description:
      'Server-sent events: `event`, an `id` that counts from 1, and `data`, which is a BuildEvent as JSON. The stream begins with the first event and ends after the one `complete`; a slow reader loses no events. If a build prints too much, an event of type `host` reports how many lines were left out.',
    parameters: ['Id', 'From', 'LastEventId'],
    success: success('The stream.', {
      'text/event-stream': { schema: { type: 'string', description: 'Each `data` is a BuildEvent.' } },
    }),
    failures: [...READ, 'InvalidRequest'],
  },
  retrieveResult: {
    summary: 'The result: a gzipped tarball with artifacts, provenance and evidence',
    description: 'Only after a successful `complete`. With Range, status 206 and that part.',
    parameters: ['Id', 'Range'],
    success: {
      status: 200,
      description: 'The whole result.',
      headers: { 'X-Request-ID': 'RequestId', ETag: 'ETag' },
      content: { 'application/gzip': { schema: { type: 'string', contentMediaType: 'application/gzip' } } },
    },
    failures: [...READ, 'RangeNotSatisfiable'],
  },
  reserveVm: {
    summary: 'Reserve a VM for one build',
    description: 'The reservation expires unless a build uses it.',
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
  retrieveOpenapi: {
    summary: 'This document',
    success: success('The document.', jsonContent({ type: 'object' })),
    failures: PUBLIC,
  },
  vmHealth: {
    summary: 'Liveness of one VM',
    parameters: ['Vm'],
    success: success('The VM is up.', text('`ok`')),
    failures: [...PUBLIC, 'NotFound', 'Unavailable'],
  },
}

/** Repeats the operations of builds at the address of a VM, after those of the dispatcher. */
function documented(): Joined<string, Document>[] {
  const all: readonly Joined<string, Document>[] = joined(BUILD_OPERATIONS, DOCUMENTS)
  const ofVm = atVm(all).map(({ id, row, ...place }) => ({
    ...place,
    id: `${id}OfVm`,
    row: {
      ...row,
      summary: `${row.summary}, at the address of its VM`,
      parameters: ['Vm', ...(row.parameters ?? [])] as const,
    },
  }))
  return [...all.toSpliced(-1, 0, ...ofVm), ...joined(LOG_OPERATIONS, LOG_DOCUMENTS)]
}
