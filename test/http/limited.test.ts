// Goal: a client that comes too soon, or while the database cannot be used, reads when to come again, and nothing of
// the failure.

import { expect, test } from 'bun:test'
import { Fault } from '../../src/base/fault.ts'
import { LimitedFault, retryAfterOf, storageFault, UnavailableFault } from '../../src/http/limited.ts'
import { failureHeaders, internalErrorMessage, isInternal } from '../../src/http/problem.ts'

const day = 24 * 60 * 60

test('goal: Retry-After is in whole seconds, at least one and at most 45 days', () => {
  const seconds = [-5, 0, 1, 1_000, 1_001, 45 * day * 1_000, 45 * day * 1_000 + 1, Number.MAX_SAFE_INTEGER].map(
    waitMs => [new LimitedFault('m', waitMs), new UnavailableFault('m', waitMs)].map(retryAfterOf),
  )
  expect(seconds).toEqual([1, 1, 1, 1, 2, 45 * day, 45 * day, 45 * day].map(each => [each, each]))
  expect([new Fault('conflict', 'm'), new Error('m'), null].map(retryAfterOf)).toEqual([null, null, null])
})

test('goal: 429 for a client that comes too soon, 503 for what is not to be had', () => {
  expect(new LimitedFault('m', 1)).toMatchObject({ code: 'rate_limited', status: 429 })
  expect(new UnavailableFault('m', 1)).toMatchObject({ code: 'attestation_unavailable', status: 503 })
  expect(new UnavailableFault('m', 1, { code: 'fleet.unavailable' })).toMatchObject({ code: 'fleet.unavailable' })
})

// Goal: a client reads that nothing was changed, and how long it should wait: longer where a person has to act.
test.each([
  [
    'SQLITE_BUSY',
    'store.busy',
    2,
    'The database of this service is locked by another program. Nothing was changed; send the request ' +
      'again after the time in Retry-After.',
  ],
  [
    'ENOSPC',
    'store.unwritable',
    30,
    'This service cannot write to its disk at present. Nothing was changed; tell the operator, and send the request ' +
      'again after the time in Retry-After.',
  ],
  [
    'SQLITE_CORRUPT',
    'store.corrupt',
    60,
    'The database of this service is damaged. Nothing was changed; tell the operator, and send the request again ' +
      'after the time in Retry-After.',
  ],
] as const)('%s', (code, fault, seconds, message) => {
  const cause = Object.assign(new Error('/secret/path: raw'), { code })
  const found = storageFault(cause)
  expect([found?.code, found?.status, found?.message, found?.retryAfterSeconds]).toEqual([
    ...[fault, 503, message, seconds],
  ] as never)
  expect(found?.cause).toBe(cause)
  expect(storageFault(cause, 'own words')).toMatchObject({ code: fault, message: 'own words' })
})

test('goal: another failure, a refusal, and what says already when to come again, are left as they are', () => {
  const busy = Object.assign(new Error('raw'), { code: 'SQLITE_BUSY' })
  for (const error of [
    new Error('m'),
    new Fault('conflict', 'm', { cause: busy }),
    new UnavailableFault('m', 1, { cause: busy }),
    null,
    'SQLITE_BUSY',
  ]) {
    expect([error, storageFault(error)]).toEqual([error, null])
  }
})

test('goal: a failure of ours and a refusal are told apart, and each status has the headers that it requires', () => {
  const errors = [
    new Error('m'),
    'x',
    new Fault('internal', 'm'),
    new Fault('store.busy', 'm'),
    new Fault('conflict', 'm'),
  ]
  expect(errors.map(isInternal)).toEqual([true, true, true, true, false])
  expect(internalErrorMessage).toBe('An unexpected error occurred.')
  expect([401, 408, 413, 400, 404, 500].map(failureHeaders)).toEqual([
    { 'www-authenticate': 'Bearer' },
    { connection: 'close' },
    { connection: 'close' },
    ...[{}, {}, {}],
  ])
})
