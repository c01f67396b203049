import { expect, test } from 'bun:test'
import { createSerial } from '../../../src/base/work/serial.ts'

test('goal: work runs one at a time, in order, and a failure reaches its own caller only', async () => {
  const serial = createSerial()
  const log: string[] = []
  const gate = Promise.withResolvers<void>()
  const first = serial.run(async () => {
    await gate.promise
    log.push('first')
    return 1
  })
  const second = serial.run(async () => {
    log.push('second')
    throw new Error('second failed')
  })
  const third = serial.run(async () => {
    log.push('third')
    return 3
  })
  expect(serial.size()).toBe(3)
  gate.resolve()
  expect(await Promise.allSettled([first, second, third])).toEqual([
    { status: 'fulfilled', value: 1 },
    { status: 'rejected', reason: new Error('second failed') },
    { status: 'fulfilled', value: 3 },
  ])
  expect(log).toEqual(['first', 'second', 'third'])
  expect(serial.size()).toBe(0)
})
