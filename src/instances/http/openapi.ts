// The OpenAPI 3.1 document of service A, built only from the schemas in contract/. Pure; committed under test/golden.

import type { TSchema } from '@sinclair/typebox'
import { AttestationReceipt } from '../../contract/http/attestation.ts'
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
} from '../../contract/http/instance.ts'
import { InstanceAttestation } from '../../contract/http/instance-attestation.ts'
import { FailureEnvelope, Problem, SuccessEnvelope } from '../../contract/http/problem.ts'
import { PublishedFiles } from '../../contract/http/published.ts'
import { RestoreBegun, RestoreRequest, Snapshot, SnapshotAttempt, SnapshotList } from '../../contract/http/snapshot.ts'
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
import { joined } from '../../http/operations.ts'
import { LOG_DOCUMENTS, LOG_OPERATIONS, LOG_PARAMETERS } from '../../transparency/operations.ts'
import { INSTANCE_OPERATIONS, type InstanceOperation } from './operations.ts'
import { SNAPSHOT, SNAPSHOT_ATTEMPT, SNAPSHOT_TEXTS } from './snapshot-documents.ts'

/** Returns the whole document as plain JSON. */
export function openapiDocument(): OpenApiDocument {
  return toOpenApi({
    info: {
      title: 'Strongroom instances',
      version: '1.0.0',
      summary: 'Confidential virtual machines that run a packaged agent.',
      description: DESCRIPTION,
    },
    exampleAddress: 'https://instances.example:8441',
    bearer: {
      format: 'ca_<8>_<18>',
      description: 'A key from the operator: `ca_`, 8, `_` and 18 lowercase letters or digits.',
    },
    operations: [...joined(INSTANCE_OPERATIONS, DOCUMENTS), ...joined(LOG_OPERATIONS, LOG_DOCUMENTS)],
    schemas: toSchemas(),
    parameters: PARAMETERS,
    headers: HEADERS,
    failures: FAILURES,
    failureDocument: {
      schema: 'FailureEnvelope',
      headers: EVERY_RESPONSE,
      toExample: row => ({ ...IDS, error: problemExample(row) }),
    },
  })
}

const DESCRIPTION = [
  'Every JSON response is an envelope with a `request_id` of its own and either `data` or `error`.',
  'A method that a path does not have gets a 405 with the code `invalid_request`, an unknown path a 404; both in the envelope.',
  'Three messages are refused without an envelope, before they reach this API: one that is not well-formed HTTP (400), one whose request line and headers have more than 16 KiB (431), and one whose method is not registered for HTTP (the connection is closed).',
].join('\n')

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
/** Example with shortened bytes. */
const ATTESTATION = {
  schemaVersion: 1,
  scope: 'claim-only',
  organization: 'acme',
  name: CREATED.name,
  hostname: CREATED.hostname,
  nonce: 'AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8',
  known_hosts: `${CREATED.hostname} ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHsJzTQ0tPK4Tw9J6f8W6S1QhIYzG1mJtN5gRt0cMZrE`,
  public_key: PUBLIC_KEY,
  launch: '{"format":"strongroom/launch/v1"}',
  receipt: {
    format: 'strongroom/attest-pq/v1',
    platform: 'snp',
    statement: 'q2Rrt2',
    keys: { ed25519: 'IHsJzT', mldsa65: 'Q0tPK4', x25519: 'Tw9J6f', mlkem768: '8W6S1Q' },
    signatures: { ed25519: 'hIYzG1', mldsa65: 'mJtN5g' },
    evidence: { report: 'AwAAAA', vek: 'MIIFTD', chain: ['MIIGiT', 'MIIGYz'], crl: 'MIIEQD' },
  },
} as const
const PARAMETERS = {
  Name: parameter('path', 'name', 'Name of the instance.', toJsonSchema(InstanceName)),
  IdempotencyKey: parameter(
    'header',
    'Idempotency-Key',
    'Chosen by the client, once per intended instance: printable ASCII, and no comma before a space. Valid for 24 hours in the organization.',
    { type: 'string', minLength: 1, maxLength: idempotencyKeyCharsMax, pattern: '^[ -~]+$' },
  ),
  Nonce: parameter(
    'query',
    'nonce',
    '32 new random bytes, as base64url without padding: the attestation is made for them now. Without it: the attestation from the claim, for a nonce of the appliance.',
    { type: 'string', pattern: '^[A-Za-z0-9_-]{43}$' },
  ),
  Number: parameter('path', 'number', 'Number of the snapshot.', { type: 'integer', minimum: 1 }),
  Range: parameter('header', 'Range', 'One range of bytes (RFC 9110 14.2).', {
    type: 'string',
    pattern: '^bytes=[0-9]*-[0-9]*$',
  }),
  ...LOG_PARAMETERS,
  CorrelationId: parameter('header', 'X-Correlation-ID', 'Any value; it comes back in the envelope and in the header.'),
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
  RetryAfter: {
    description: 'Seconds to wait before the next attempt.',
    required: true,
    schema: { type: 'integer', minimum: 1 },
  },
  Platform: {
    description:
      'What the instances of this response run on, each value once: `snp`: SEV-SNP keeps their memory from the host; `kvm; simulated` and `tcg; simulated`: nothing does, and their evidence is simulated; `unknown`: made before this was recorded. A list names what is not terminated, and has no such header without any.',
    schema: { type: 'string', examples: ['snp'] },
  },
  Allow: COMMON_HEADERS.Allow,
  WwwAuthenticate: COMMON_HEADERS.WwwAuthenticate,
} as const

const EVERY_RESPONSE = { 'X-Request-ID': 'RequestId', 'X-Correlation-ID': 'CorrelationId' } as const
const INSTANCE_RESPONSE = { ...EVERY_RESPONSE, 'X-Strongroom-Platform': 'Platform' } as const

const FAILURES = {
  InvalidRequest: {
    fault: 'invalid_request',
    description: 'Malformed or invalid input.',
    message: 'public_key is missing',
    param: 'public_key',
  },
  Unauthenticated: { ...COMMON_FAILURES.unauthenticated, description: 'No key, or none that is known and in force.' },
  Forbidden: COMMON_FAILURES.forbidden,
  NotFound: {
    fault: 'not_found',
    description: 'No such instance in this organization.',
    message: 'There is no instance of this name.',
  },
  MethodNotAllowed: {
    ...COMMON_FAILURES.methodNotAllowed,
    description: 'The path exists, the method does not; Allow names those that do.',
    message: 'The methods here are GET, HEAD, OPTIONS.',
  },
  BodyTimeout: { ...COMMON_FAILURES.bodyTimeout, message: 'The body did not arrive within 15000 ms.' },
  Conflict: {
    fault: 'conflict',
    description: 'The Idempotency-Key was used with a different body, or the organization has its limit of instances.',
    message: 'This Idempotency-Key was used with a different body in the last 24 hours.',
    param: 'Idempotency-Key',
  },
  NoSnapshot: {
    fault: 'conflict',
    description:
      'The instance is not ready, a snapshot of it is under way, or there is no room. The message names the reason.',
    message: 'A snapshot of this instance is under way.',
  },
  NotAttested: {
    fault: 'conflict',
    description: 'There is no attestation, or no fresh one: the instance is not ready. The message has the remedy.',
    message:
      'The instance is not ready yet, so there is no attestation; wait until its status is ready, then ask again.',
  },
  BodyTooLarge: { ...COMMON_FAILURES.bodyTooLarge, message: 'The body is larger than 65536 bytes.' },
  RateLimited: {
    ...COMMON_FAILURES.rateLimited,
    description:
      'Too many requests with this key in a minute; for a create also: too many creates of the organization in 24 hours, or too many records of it. Wait for the time in Retry-After. Repeating a create with its Idempotency-Key counts as a request and not as a create.',
    message: 'This key may send 600 requests per minute; wait for the time in Retry-After.',
  },
  Unavailable: {
    ...COMMON_FAILURES.unavailable,
    description:
      'A fresh attestation is not available: the virtual machine, or its host, does not answer, or certificates are missing. Wait for the time in Retry-After.',
    message: 'The virtual machine does not answer right now; try again after the time in Retry-After.',
  },
  NotWritable: COMMON_FAILURES.notWritable,
  InternalError: {
    ...COMMON_FAILURES.internal,
    description: 'Unexpected; retry, and give the request id to the operator if it persists.',
  },
} as const satisfies Record<string, ApiFailure<keyof typeof HEADERS>>

const IDS = { request_id: 'req_7f3k09xw2m5p8q1z4t6v0b2n', correlation_id: null } as const
const READ_FAILURES = ['Unauthenticated', 'Forbidden', 'MethodNotAllowed', 'RateLimited', 'InternalError'] as const

type Document = ApiOperation<keyof typeof PARAMETERS, keyof typeof HEADERS, keyof typeof FAILURES>

/** Returns an operation's success response, with `example` in the envelope. */
function enveloped(status: 200 | 202, description: string, schema: string, example: unknown): Document['success'] {
  const content = jsonContent(ref('schemas', `${schema}Envelope`), { ...IDS, data: example })
  const headers = schema.startsWith('Instance') ? INSTANCE_RESPONSE : EVERY_RESPONSE
  return { status, description, headers, content }
}

const DOCUMENTS: Readonly<Record<InstanceOperation, Document>> = {
  createInstance: {
    summary: 'Create an instance',
    description:
      'Accepts the request and begins provisioning; poll the instance until it is `ready` or `failed`. With an Idempotency-Key, a repetition within 24 hours gets the first response again and creates nothing; with another body it is a conflict. Bodies are compared by meaning, not by spelling.',
    parameters: ['IdempotencyKey', 'CorrelationId'],
    body: { schema: 'CreateInstance', example: { public_key: PUBLIC_KEY } },
    success: enveloped(202, 'Accepted.', 'InstanceCreated', { ...CREATED, created_at: '2026-11-20T08:30:00.000Z' }),
    failures: ['InvalidRequest', ...READ_FAILURES, 'BodyTimeout', 'Conflict', 'BodyTooLarge', 'NotWritable'],
  },
  listInstances: {
    summary: 'List instances',
    description: 'Every record that is kept, the oldest first; terminated ones stay for at least 30 days.',
    parameters: ['CorrelationId'],
    success: enveloped(200, 'All instances of the organization.', 'InstanceList', {
      instances: [READY],
      next_cursor: null,
    }),
    failures: READ_FAILURES,
  },
  retrieveInstance: {
    summary: 'Retrieve an instance',
    description: 'One record. An instance of another organization is as unknown as one that never was.',
    parameters: ['Name', 'CorrelationId'],
    success: enveloped(200, 'The instance.', 'InstanceRecord', READY),
    failures: [...READ_FAILURES, 'NotFound'],
  },
  retrieveInstanceAttestation: {
    summary: 'Attestation of an instance',
    description:
      'What the instance proves of itself, to be verified before the first login (`strongroom verify instance`): a receipt over launch, name, organization, SSH host key and public key, with all certificates. Nothing in it is to be trusted before that. Of one virtual machine at most one fresh attestation is made at a time, and each key has a limit of them per minute. What was made at the claim is kept as long as the record.',
    parameters: ['Name', 'Nonce', 'CorrelationId'],
    success: enveloped(200, 'The attestation.', 'InstanceAttestation', ATTESTATION),
    failures: [...READ_FAILURES, 'InvalidRequest', 'NotFound', 'NotAttested', 'Unavailable'],
  },
  deleteInstance: {
    summary: 'Delete an instance',
    description:
      'Accepted in every state. The DNS name goes at once, teardown follows; poll the instance until it is `terminated`. Repeating it changes nothing and shows the record as it is.',
    parameters: ['Name', 'CorrelationId'],
    success: enveloped(202, 'Accepted.', 'InstanceRecord', {
      ...READY,
      status: 'terminating',
      terminated_reason: 'deleted_via_api',
    }),
    failures: [...READ_FAILURES, 'NotFound', 'NotWritable'],
  },
  createSnapshot: {
    summary: 'Take a snapshot of an instance',
    description: SNAPSHOT_TEXTS.create,
    parameters: ['Name', 'CorrelationId'],
    success: enveloped(202, 'Begun.', 'SnapshotAttempt', SNAPSHOT_ATTEMPT),
    failures: [...READ_FAILURES, 'NotFound', 'NoSnapshot', 'NotWritable'],
  },
  listInstanceSnapshots: {
    summary: 'List the snapshots of an instance',
    description: SNAPSHOT_TEXTS.list,
    parameters: ['Name', 'CorrelationId'],
    success: enveloped(200, 'Its snapshots.', 'SnapshotList', { snapshots: [SNAPSHOT], attempts: [] }),
    failures: [...READ_FAILURES, 'NotFound'],
  },
  retrieveSnapshot: {
    summary: 'Download a snapshot',
    description: SNAPSHOT_TEXTS.retrieve,
    parameters: ['Name', 'Number', 'Range', 'CorrelationId'],
    success: {
      status: 200,
      description: 'The ciphertext.',
      headers: EVERY_RESPONSE,
      content: { 'application/octet-stream': { schema: { type: 'string', format: 'binary' } } },
    },
    failures: [...READ_FAILURES, 'NotFound'],
  },
  deleteSnapshot: {
    summary: 'Delete a snapshot',
    description: 'The ciphertext and its record are gone at once.',
    parameters: ['Name', 'Number', 'CorrelationId'],
    success: enveloped(200, 'The deleted snapshot.', 'Snapshot', SNAPSHOT),
    failures: [...READ_FAILURES, 'NotFound', 'NotWritable'],
  },
  restoreSnapshot: {
    summary: 'Hand a snapshot to an instance',
    description: SNAPSHOT_TEXTS.restore,
    parameters: ['Name', 'CorrelationId'],
    body: { schema: 'RestoreRequest', example: { instance: SNAPSHOT.instance, number: SNAPSHOT.number } },
    success: enveloped(202, 'Begun.', 'RestoreBegun', { pipe: 'b7t2m9q4x1v8c3z6', bytes: SNAPSHOT.bytes }),
    failures: ['InvalidRequest', ...READ_FAILURES, 'NotFound', 'NoSnapshot', 'NotWritable'],
  },
  listSnapshots: {
    summary: 'List snapshots',
    description: SNAPSHOT_TEXTS.listAll,
    parameters: ['CorrelationId'],
    success: enveloped(200, 'The snapshots.', 'SnapshotList', { snapshots: [SNAPSHOT], attempts: [] }),
    failures: READ_FAILURES,
  },
  retrieveUsage: {
    summary: 'Usage of the current billing period',
    description: 'Periods are months counted from the signup of the organization, in UTC.',
    parameters: ['CorrelationId'],
    success: enveloped(200, 'Prices and usage.', 'UsageSummary', {
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
    }),
    failures: READ_FAILURES,
  },
  retrievePublished: {
    summary: "The operator's files for clients",
    description:
      'Manifests of the images, the operator key and the authority, as `strongroom client init` takes them. They come from the host itself and prove nothing: compare them with the transparency log or over another channel. Needs no key.',
    success: {
      status: 200,
      description: 'The files, without an envelope.',
      headers: EVERY_RESPONSE,
      content: jsonContent(ref('schemas', 'PublishedFiles')),
    },
    failures: ['MethodNotAllowed', 'InternalError'],
  },
  retrieveOpenapi: {
    summary: 'This document',
    description: 'Needs no key.',
    success: {
      status: 200,
      description: 'The OpenAPI document itself, without an envelope.',
      headers: EVERY_RESPONSE,
      content: jsonContent({ type: 'object' }),
    },
    failures: ['MethodNotAllowed', 'InternalError'],
  },
}

/** Returns every schema by name. Nested schemas become references. */
function toSchemas(): Record<string, unknown> {
  const instances = { CreateInstance, InstanceCreated, InstanceRecord, InstanceList, InstanceAttestation }
  const snapshots = { Snapshot, SnapshotAttempt, SnapshotList, RestoreRequest, RestoreBegun }
  const resources = { ...instances, ...snapshots, UsageSummary }
  const named: Record<string, TSchema> = { Problem, AttestationReceipt, ...resources }
  const out: Record<string, unknown> = {}
  for (const [name, schema] of Object.entries(named)) {
    const others = Object.fromEntries(Object.entries(named).filter(([other]) => other !== name))
    out[name] = toJsonSchema(schema, others)
  }
  for (const [name, schema] of Object.entries(resources)) {
    if (schema !== CreateInstance && schema !== RestoreRequest)
      out[`${name}Envelope`] = toJsonSchema(SuccessEnvelope(schema), named)
  }
  out.PublishedFiles = toJsonSchema(PublishedFiles, named)
  out.FailureEnvelope = toJsonSchema(FailureEnvelope, named)
  return out
}
