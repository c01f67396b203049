// Goal: a failure of the fleet's database is one to wait for, to repeat or to report, by the codes written here.

import { expect, test } from 'bun:test'
import { Fault } from '../../src/base/fault.ts'
import { POSTGRES_LIMITS } from '../../src/fleet/driver.ts'
import {
  ConnectionFailure,
  directoryAway,
  failureOf,
  isConflict,
  reasonOf,
  sqlStateOf,
} from '../../src/fleet/failures.ts'

const reported = (code: string) => Object.assign(new Error('m'), { severity: 'ERROR', code })

// One of each class that means `away`, and its neighbours.
const AWAY = ['08006', '28P01', '3D000', '3F000', '53300', '57P01', '58030', '55P03', '25P03', '25006']
const OTHER = ['42P01', '23505', '40001', '40P01', '55000', '25P02', '25001', '07001', '2F000', '3B001', '54000']

test('goal: only a server that cannot serve now makes the fleet unavailable', () => {
  const codeOf = (error: unknown) => {
    const failure = failureOf(error)
    return failure instanceof Fault ? failure.code : failure === error ? 'as it was' : 'another'
  }
  for (const code of AWAY) expect([code, codeOf(reported(code))]).toEqual([code, 'fleet.unavailable'])
  for (const code of OTHER) expect([code, codeOf(reported(code))]).toEqual([code, 'as it was'])
  // PostgreSQL's words, of a server whose schema a restore replaced under the statement.
  const inside = (message: string) => Object.assign(new Error(message), { severity: 'ERROR', code: 'XX000' })
  for (const message of ['cache lookup failed for function 16422', 'could not open relation with OID 16500'])
    expect([message, codeOf(inside(message))]).toEqual([message, 'fleet.unavailable'])
  expect(codeOf(inside('unexpected chunk number 1'))).toBe('as it was')
  expect(codeOf(new ConnectionFailure('gone'))).toBe('fleet.unavailable')
  expect(codeOf(new Error('x'))).toBe('as it was')
  const { code, retryAfterSeconds } = directoryAway(null)
  expect([code, retryAfterSeconds]).toEqual(['fleet.unavailable', 2])
})

test('goal: a code is an SQLSTATE only if the server reported it', () => {
  expect(sqlStateOf(reported('42P01'))).toBe('42P01')
  expect(sqlStateOf(Object.assign(new Error('m'), { code: '42P01' }))).toBeNull()
  for (const code of ['ECONNRESET', '42p01', '42P0', '42P011'])
    expect([code, sqlStateOf(reported(code))]).toEqual([code, null])
  expect([sqlStateOf(null), sqlStateOf('x')]).toEqual([null, null])
})

test('goal: a serialization failure and a deadlock are repeated, nothing else', () => {
  expect(['40001', '40P01', '40002', '08006'].map(code => isConflict(reported(code)))).toEqual([
    true,
    true,
    false,
    false,
  ])
  expect(isConflict(new Error('x'))).toBe(false)
})

test('goal: the log has the reason below the words for clients', () => {
  const reset = Object.assign(new Error('reset'), { code: 'ECONNRESET' })
  const lost = new ConnectionFailure('lost', { cause: reset })
  expect(reasonOf(directoryAway(lost))).toBe('reset (ECONNRESET)')
  expect(reasonOf(new ConnectionFailure('no answer'))).toBe('no answer')
  expect(reasonOf(new Fault('fleet.unavailable', 'as it is'))).toBe('as it is (fleet.unavailable)')
  expect(reasonOf(new Error('plain'))).toBe('plain')
})

test('goal: how long the directory may take, and how much may wait for it, written out', () => {
  expect(POSTGRES_LIMITS).toEqual({
    connectMs: 3_000,
    statementMs: 4_000,
    lockMs: 3_000,
    transactionMs: 8_000,
    connectionCountMax: 8,
    waitingCountMax: 512,
  })
})
