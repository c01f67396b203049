// Goal: the operations of service C, which of them need a key, and which each build VM repeats, are exactly these.

import { expect, test } from 'bun:test'
import { atVm, BUILD_OPERATIONS } from '../../../src/builds/http/operations.ts'
import type { Operation } from '../../../src/http/operations.ts'

/** An operation that states neither is neither. */
const ACCESS = { true: 'public', false: 'key' }

test('goal: a changed, new or missing operation fails', () => {
  const lines = Object.entries(BUILD_OPERATIONS).map(
    ([name, { method, path, isPublic }]) => `${name} ${method} ${path} ${ACCESS[`${isPublic}`]}`,
  )
  expect(lines).toEqual([
    'health GET /health public',
    'submitBuild POST /build key',
    'retrieveBuild GET /build/{id} key',
    'cancelBuild DELETE /build/{id} key',
    'followBuild GET /build/{id}/events key',
    'retrieveResult GET /build/{id}/result key',
    'reserveVm POST /vm key',
    'retrieveOpenapi GET /openapi.json public',
    'vmHealth GET /vm/{vm}/health public',
  ])
  const repeated = atVm<Operation>(Object.values(BUILD_OPERATIONS))
  expect(repeated.map(({ method, path, isPublic }) => [method, path, isPublic])).toEqual([
    ['POST', '/vm/{vm}/build', false],
    ['GET', '/vm/{vm}/build/{id}', false],
    ['DELETE', '/vm/{vm}/build/{id}', false],
    ['GET', '/vm/{vm}/build/{id}/events', false],
    ['GET', '/vm/{vm}/build/{id}/result', false],
  ])
})
