// The operations of service C (contract 4.3). Pure.

import type { Operation } from '../../http/operations.ts'

export const BUILD_OPERATIONS = {
  health: { method: 'GET', path: '/health', isPublic: true },
  submitBuild: { method: 'POST', path: '/build', isPublic: false },
  retrieveBuild: { method: 'GET', path: '/build/{id}', isPublic: false },
  cancelBuild: { method: 'DELETE', path: '/build/{id}', isPublic: false },
  followBuild: { method: 'GET', path: '/build/{id}/events', isPublic: false },
  retrieveResult: { method: 'GET', path: '/build/{id}/result', isPublic: false },
  reserveVm: { method: 'POST', path: '/vm', isPublic: false },
  retrieveOpenapi: { method: 'GET', path: '/openapi.json', isPublic: true },
  vmHealth: { method: 'GET', path: '/vm/{vm}/health', isPublic: true },
} as const satisfies Record<string, Operation>

export type BuildOperation = keyof typeof BUILD_OPERATIONS

/** Returns the operations of builds, repeated at the address of every build VM. */
export function atVm<O extends Operation>(operations: readonly O[]): O[] {
  const ofBuilds = operations.filter(({ path }) => path.startsWith('/build'))
  return ofBuilds.map(operation => ({ ...operation, path: `/vm/{vm}${operation.path}` }))
}
