// Goal: the operations of service A, and which of them need a key, are exactly these.

import { expect, test } from 'bun:test'
import { INSTANCE_OPERATIONS } from '../../../src/instances/http/operations.ts'

/** An operation that states neither is neither. */
const ACCESS = { true: 'public', false: 'key' }

test('goal: a changed, new or missing operation fails', () => {
  const lines = Object.entries(INSTANCE_OPERATIONS).map(
    ([name, { method, path, isPublic }]) => `${name} ${method} ${path} ${ACCESS[`${isPublic}`]}`,
  )
  expect(lines).toEqual([
    'createInstance POST /v1/instances key',
    'listInstances GET /v1/instances key',
    'retrieveInstance GET /v1/instances/{name} key',
    'retrieveInstanceAttestation GET /v1/instances/{name}/attestation key',
    'deleteInstance DELETE /v1/instances/{name} key',
    'createSnapshot POST /v1/instances/{name}/snapshots key',
    'listInstanceSnapshots GET /v1/instances/{name}/snapshots key',
    'retrieveSnapshot GET /v1/instances/{name}/snapshots/{number} key',
    'deleteSnapshot DELETE /v1/instances/{name}/snapshots/{number} key',
    'restoreSnapshot POST /v1/instances/{name}/restore key',
    'listSnapshots GET /v1/snapshots key',
    'retrieveUsage GET /v1/usage key',
    'retrievePublished GET /.well-known/strongroom public',
    'retrieveOpenapi GET /openapi.json public',
  ])
})
