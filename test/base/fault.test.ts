// Goal: the HTTP status and the wire code of each failure, written out: clients act on both.

import { expect, test } from 'bun:test'
import { FAULTS, Fault, messageOf, statusOf, systemErrorCode, WIRE_CODES, wrapFault } from '../../src/base/fault.ts'

test('goal: a row that gets another status or wire code fails', () => {
  expect(WIRE_CODES).toEqual({
    invalid_request: 400,
    unauthenticated: 401,
    forbidden: 403,
    not_found: 404,
    conflict: 409,
    internal_error: 500,
  })
  const lines = (Object.keys(FAULTS) as (keyof typeof FAULTS)[]).map(
    code => `${code} ${statusOf(code)} ${FAULTS[code].wire}`,
  )
  expect(lines).toEqual([
    'invalid_request 400 invalid_request',
    'body_too_large 413 invalid_request',
    'body_timeout 408 invalid_request',
    'method_not_allowed 405 invalid_request',
    'unsupported_media_type 415 invalid_request',
    'upgrade_required 426 invalid_request',
    'context_length_exceeded 400 invalid_request',
    'unauthenticated 401 unauthenticated',
    'forbidden 403 forbidden',
    'not_found 404 not_found',
    'conflict 409 conflict',
    'key_config_mismatch 422 invalid_request',
    'rate_limited 429 invalid_request',
    'budget_exceeded 429 invalid_request',
    'upstream_failed 502 internal_error',
    'metering_unavailable 503 internal_error',
    'attestation_unavailable 503 internal_error',
    'internal 500 internal_error',
    'config.invalid 400 invalid_request',
    'config.file 500 internal_error',
    'store.newer 500 internal_error',
    'store.older 500 internal_error',
    'store.busy 503 internal_error',
    'store.unwritable 503 internal_error',
    'store.corrupt 503 internal_error',
    'store.missing 500 internal_error',
    'fleet.unavailable 503 internal_error',
    'fleet.forbidden 403 forbidden',
    'fleet.password 503 internal_error',
    'fleet.newer 500 internal_error',
    'fleet.older 500 internal_error',
    'fleet.build_newer 500 internal_error',
    'host.command_failed 500 internal_error',
    'host.command_timeout 500 internal_error',
    'host.unsupported 500 internal_error',
    'host.disk_full 500 internal_error',
    'host.listen_failed 500 internal_error',
    'qmp.timeout 500 internal_error',
    'qmp.closed 500 internal_error',
    'qmp.refused 500 internal_error',
    'channel.timeout 500 internal_error',
    'channel.closed 500 internal_error',
    'channel.refused 500 internal_error',
    'ssh.unreachable 500 internal_error',
    'ssh.wrong_host_key 500 internal_error',
    'launch.mismatch 500 internal_error',
    'attest.unavailable 503 internal_error',
    'image.invalid 500 internal_error',
    'api.unreachable 500 internal_error',
    'admin.unreachable 500 internal_error',
  ])
})

test('goal: context goes in front, code and cause stay', () => {
  const cause = new Fault('not_found', 'no file')
  const wrapped = wrapFault(cause, 'open x')
  expect([wrapped.code, wrapped.message, wrapped.cause, wrapped.status]).toEqual([
    'not_found',
    'open x: no file',
    cause,
    404,
  ])
  expect(wrapFault(new Error('e'), 'read')).toMatchObject({ code: 'internal', message: 'read: e' })
  expect(wrapFault('e', 'read', 'conflict')).toMatchObject({ code: 'conflict', message: 'read: e' })
  expect(new Fault('conflict', 'm', { param: 'name' })).toMatchObject({ name: 'Fault', param: 'name' })
  expect([messageOf('x'), messageOf(new Error('y'))]).toEqual(['x', 'y'])
  expect([systemErrorCode({ code: 'ENOENT' }), systemErrorCode({ code: 7 }), systemErrorCode(null)]).toEqual([
    'ENOENT',
    null,
    null,
  ])
})
