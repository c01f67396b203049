// Goal: memory for large bodies has a bound, an organization holds half of it at most, and all of it comes back.

import { expect, test } from 'bun:test'
import { BusyFault } from '../../../src/inference/failure.ts'
import { BodyRoom } from '../../../src/inference/limits/body-room.ts'

const mib = 1_048_576

test('goal: two bodies of the limit for each of two organizations, and a refusal that says whose they are', () => {
  const room = new BodyRoom(32 * mib)
  const held = ['a', 'a', 'b', 'b'].map(name => room.take(32 * mib, name))
  expect(() => room.take(5 * mib, 'a')).toThrow('Your organization’s requests hold all memory')
  expect(() => room.take(5 * mib, 'c')).toThrow('Requests hold all memory')
  held[0]?.()
  held[0]?.()
  room.take(27 * mib, 'c')
  room.take(5 * mib, 'a')
  expect(() => room.take(1, 'c')).toThrow('Requests hold all memory')
})

test('goal: one body of a larger limit, as sent and decoded, has room for each of two organizations', () => {
  const room = new BodyRoom(256 * mib)
  for (const organization of ['a', 'a', 'b', 'b']) room.take(256 * mib, organization)
  expect(() => room.take(1, 'c')).toThrow('Requests hold all memory')
})

test('goal: who is refused may come again in five seconds', () => {
  const room = new BodyRoom(32 * mib)
  const refusal = () => {
    try {
      room.take(65 * mib, 'a')
    } catch (error) {
      return error
    }
  }
  const error = refusal()
  expect(error).toBeInstanceOf(BusyFault)
  expect(error instanceof BusyFault && error.retryAfterSeconds).toBe(5)
})
