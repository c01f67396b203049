// Goal: a signal goes to the process that was meant, never to another one with its number.

import { expect, test } from 'bun:test'
import { identifyProcess, isAlive, signalProcess } from '../../src/guest/process-identity.ts'

const sleeping = () => Bun.spawn(['sleep', '600'])

test('goal: a process is alive until it ends, and a number that no process has is none', async () => {
  await using child = sleeping()
  const identity = identifyProcess(child.pid)
  expect(identity).toEqual({ pid: child.pid, startTicks: expect.any(Number) })
  if (identity === null) throw new Error('the process runs')
  expect(isAlive(identity)).toBe(true)
  expect(signalProcess(identity, 'SIGKILL')).toBe(true)
  await child.exited
  expect([child.signalCode, isAlive(identity), signalProcess(identity, 'SIGKILL')]).toEqual(['SIGKILL', false, false])
  expect(identifyProcess(2 ** 22 + 1)).toBeNull()
})

test('goal: a process that began at another time gets no signal, though it has the number', async () => {
  await using child = sleeping()
  const identity = identifyProcess(child.pid)
  if (identity === null) throw new Error('the process runs')
  for (const startTicks of [identity.startTicks - 1, identity.startTicks + 1]) {
    const former = { pid: child.pid, startTicks }
    expect([isAlive(former), signalProcess(former, 'SIGKILL')]).toEqual([false, false])
  }
  expect([child.exitCode, child.signalCode, isAlive(identity)]).toEqual([null, null, true])
})
