// Goal: a signal goes to the process that was meant, never to another one with its number; and a port counts as served
// only by the process that holds it.

import { expect, test } from 'bun:test'
import { identifyProcess, isAlive, isListening, signalProcess } from '../../src/guest/process-identity.ts'

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

test('goal: only the process that holds the listening socket listens, on that port, by either family', async () => {
  await using child = sleeping()
  const [own, other] = [identifyProcess(process.pid), identifyProcess(child.pid)]
  if (own === null || other === null) throw new Error('both run')
  for (const hostname of ['127.0.0.1', '::1']) {
    const server = Bun.listen({ hostname, port: 0, socket: { data: () => {} } })
    expect([isListening(own, server.port), isListening(other, server.port)]).toEqual([true, false])
    server.stop(true)
    expect([hostname, isListening(own, server.port)]).toEqual([hostname, false])
  }
  // A connection is no listener: the client's end has a port of its own.
  const server = Bun.listen({ hostname: '127.0.0.1', port: 0, socket: { data: () => {} } })
  const client = await Bun.connect({ hostname: '127.0.0.1', port: server.port, socket: { data: () => {} } })
  expect([client.localPort > 0, isListening(own, client.localPort)]).toEqual([true, false])
  client.end()
  server.stop(true)
})
