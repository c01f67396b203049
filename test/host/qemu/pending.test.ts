// Goal: each response goes to the request that has its id, once; a late one, a second one and a stranger's go nowhere.

import { expect, test } from 'bun:test'
import { failure } from '../../../scripts/rigs/until.ts'
import { Fault } from '../../../src/base/fault.ts'
import { Pending } from '../../../src/host/qemu/pending.ts'

const patientMs = 60_000
const open = (countMax = 2) => new Pending<string>({ countMax, late: 'qmp.timeout', full: 'qmp.closed' })

test('goal: responses in any order, and a second one, or one with another id, changes nothing', async () => {
  const pending = open()
  const [a, b] = [pending.add('a', patientMs, 'first'), pending.add('b', patientMs, 'second')]
  expect([pending.has('a'), pending.has('b'), pending.has('c')]).toEqual([true, true, false])
  pending.resolve('b', 'for b')
  pending.resolve('b', 'again')
  pending.resolve('c', 'a stranger')
  pending.reject('c', new Fault('internal', 'a stranger'))
  expect([await b, pending.has('b')]).toEqual(['for b', false])
  pending.reject('a', new Fault('conflict', 'no'))
  expect(await failure(a)).toMatchObject({ code: 'conflict', message: 'no' })
})

test('goal: as many wait as may, the next is refused, and each that ends makes room', async () => {
  const pending = open()
  const first = pending.add('a', patientMs, 'first')
  const second = pending.add('b', patientMs, 'second')
  expect(await failure(pending.add('c', patientMs, 'third'))).toMatchObject({
    code: 'qmp.closed',
    message: 'third: 2 requests wait already',
  })
  pending.resolve('a', '1')
  const third = pending.add('c', patientMs, 'third')
  pending.rejectAll(new Fault('internal', 'gone'))
  for (const request of [second, third]) expect(await failure(request)).toMatchObject({ message: 'gone' })
  expect([await first, pending.has('b'), pending.has('c')]).toEqual(['1', false, false])
})

test('goal: a request without a response ends at its time, frees its place, and a late response goes nowhere', async () => {
  const pending = open(1)
  expect(await failure(pending.add('a', 5, 'first'))).toMatchObject({
    code: 'qmp.timeout',
    message: 'first: no response within 5 ms',
  })
  expect(pending.has('a')).toBe(false)
  const second = pending.add('b', patientMs, 'second')
  pending.resolve('a', 'late')
  pending.resolve('b', '2')
  expect(await second).toBe('2')
})
