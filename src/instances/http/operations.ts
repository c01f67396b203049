// The operations of service A (contract 4.1, the attestation and snapshots of instances, and the operator's files).
// Pure.

import { publishedPath } from '../../contract/http/published.ts'
import type { Operation } from '../../http/operations.ts'

export const INSTANCE_OPERATIONS = {
  createInstance: { method: 'POST', path: '/v1/instances', isPublic: false },
  listInstances: { method: 'GET', path: '/v1/instances', isPublic: false },
  retrieveInstance: { method: 'GET', path: '/v1/instances/{name}', isPublic: false },
  retrieveInstanceAttestation: { method: 'GET', path: '/v1/instances/{name}/attestation', isPublic: false },
  deleteInstance: { method: 'DELETE', path: '/v1/instances/{name}', isPublic: false },
  createSnapshot: { method: 'POST', path: '/v1/instances/{name}/snapshots', isPublic: false },
  listInstanceSnapshots: { method: 'GET', path: '/v1/instances/{name}/snapshots', isPublic: false },
  retrieveSnapshot: { method: 'GET', path: '/v1/instances/{name}/snapshots/{number}', isPublic: false },
  deleteSnapshot: { method: 'DELETE', path: '/v1/instances/{name}/snapshots/{number}', isPublic: false },
  restoreSnapshot: { method: 'POST', path: '/v1/instances/{name}/restore', isPublic: false },
  listSnapshots: { method: 'GET', path: '/v1/snapshots', isPublic: false },
  retrieveUsage: { method: 'GET', path: '/v1/usage', isPublic: false },
  retrievePublished: { method: 'GET', path: publishedPath, isPublic: true },
  retrieveOpenapi: { method: 'GET', path: '/openapi.json', isPublic: true },
} as const satisfies Record<string, Operation>

export type InstanceOperation = keyof typeof INSTANCE_OPERATIONS
