// Idle connections that requests of one turn of the event loop take: which are fit, and how many system calls it takes.

import { expect, test } from 'bun:test'
import { closeSync, writeSync } from 'node:fs'
import type { Connection } from '../../../src/inference/upstream/connection.ts'
import { IdleProbe } from '../../../src/inference/upstream/idle-probe.ts'
import { unixSocketPair } from '../../../src/linux/libc/sockets.ts'

function idleConnections(count: number) {
  const pairs = Array.from({ length: count }, () => {
    const made = unixSocketPair()
    if (!made.ok) throw new Error(`socketpair: ${made.errno}`)
    return made.fds
  })
  const idle = pairs.map(([fd]) => ({ fd }) as Connection)
  return {
    idle,
    speak: (at: number) => writeSync(pairs[at]?.[1] ?? -1, 'x'),
    [Symbol.dispose]: () => pairs.flat().map(fd => closeSync(fd)),
  }
}

const turnEnd = () => new Promise<void>(resolve => setImmediate(resolve))

test('a connection that the peer has ended is reported, wherever it stands in the pool', async () => {
  // Goal: requests of one turn take every connection but the one with unread bytes, which each of them meets.
  for (let spoken = 0; spoken < 8; spoken += 1) {
    using bed = idleConnections(8)
    bed.speak(spoken)
    const probe = new IdleProbe()
    const seen: boolean[] = []
    for (const idle = [...bed.idle]; idle.length > 0; idle.pop()) seen.push(probe.hasUnread(idle))
    expect(seen).toEqual(Array.from({ length: 8 }, (_, at) => at === 7 - spoken))
    await turnEnd()
  }
})

test('a result does not outlive its turn, nor a use of the connection', async () => {
  // Goal: bytes that arrive after the turn, or with a response in the same turn, are seen before the next request.
  using bed = idleConnections(4)
  const probe = new IdleProbe()
  const [first, second, third, fourth] = bed.idle as [Connection, Connection, Connection, Connection]
  expect(probe.hasUnread([first, second, third, fourth])).toBe(false)
  expect(probe.hasUnread([first, second, third])).toBe(false)
  bed.speak(3)
  expect(probe.hasUnread([first, second, fourth])).toBe(true)
  await turnEnd()
  bed.speak(1)
  expect(probe.hasUnread([first, second])).toBe(true)
  expect(probe.hasUnread([first])).toBe(false)
  expect(probe.hasUnread([])).toBe(false)
})
