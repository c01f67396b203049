// poll(2) over sockets with and without something to read.

import { expect, test } from 'bun:test'
import { closeSync, writeSync } from 'node:fs'
import { haveUnread, polledMax, unixSocketPair } from '../../src/linux/libc/sockets.ts'

function pair() {
  const made = unixSocketPair()
  if (!made.ok) throw new Error(`socketpair: ${made.errno}`)
  const [here, there] = made.fds
  return { here, there, [Symbol.dispose]: () => made.fds.map(fd => closeSync(fd)) }
}

test('each of many calls looks at its own socket', () => {
  // Goal: the compiler of the runtime moves small arrays; a call through an address of before would look at another
  // socket, and let the kernel write into memory of others.
  using idle = pair()
  using spoken = pair()
  writeSync(spoken.there, 'x')
  const seen = new Map<string, number>()
  for (let i = 0; i < 200_000; i += 1) {
    const said = `${haveUnread([idle.here])} ${haveUnread([spoken.here])}`
    seen.set(said, (seen.get(said) ?? 0) + 1)
  }
  expect([...seen]).toEqual([['false true', 200_000]])
})

test('an end is news, and so is a descriptor that is none', () => {
  // Goal: a connection that the peer has closed is not taken for another request.
  const { here, there } = pair()
  expect(haveUnread([here])).toEqual([false])
  closeSync(there)
  expect(haveUnread([here])).toEqual([true])
  closeSync(here)
  expect(haveUnread([here])).toEqual([true])
})

test('one call reports on each of its sockets', () => {
  // Goal: unread bytes of one socket are not reported for its neighbours, wherever it stands, and a second call does
  // not see the results of the first.
  using idle = pair()
  using spoken = pair()
  using other = pair()
  writeSync(spoken.there, 'x')
  expect(haveUnread([idle.here, spoken.here, other.here])).toEqual([false, true, false])
  expect(haveUnread([spoken.here, idle.here, -1])).toEqual([true, false, true])
  expect(haveUnread([other.here, idle.here, other.here])).toEqual([false, false, false])
  expect(haveUnread([])).toEqual([])
  expect(() => haveUnread(Array(polledMax + 1).fill(idle.here))).toThrow('a bounded number of sockets')
})
