// Goal: a second Host header is refused, wherever it stands and whatever it holds; a single one never is.

import { expect, test } from 'bun:test'
import { checkHost } from '../../src/http/head.ts'

/** Through Bun's own parser: how it joins headers is what this rests on. */
async function verdictOn(hosts: readonly string[]): Promise<string> {
  await using server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    fetch: request => {
      try {
        checkHost(request.headers)
        return new Response('accepted')
      } catch {
        return new Response('refused', { status: 400 })
      }
    },
  })
  const answer = Promise.withResolvers<string>()
  const lines = hosts.map(host => `Host: ${host}\r\n`).join('X-Between: 1\r\n')
  await Bun.connect({
    hostname: '127.0.0.1',
    port: server.port ?? 0,
    socket: {
      open: socket => void socket.write(`GET / HTTP/1.1\r\n${lines}Connection: close\r\n\r\n`),
      data: (_, bytes) => answer.resolve(bytes.toString().split('\r\n\r\n')[1] ?? ''),
      close: () => answer.resolve('closed'),
    },
  })
  return await answer.promise
}

// Goal: two hosts are refused, one is not.
test.each([
  [['a', 'b'], 'refused'],
  [['a', 'a'], 'refused'],
  [['a', ''], 'refused'],
  [['', 'a'], 'refused'],
  [['a,b'], 'refused'],
  [['a.example:8441'], 'accepted'],
  [['[::1]:8441'], 'accepted'],
  [[''], 'accepted'],
])('goal: hosts %p: %s', async (hosts, verdict) => {
  expect(await verdictOn(hosts)).toBe(verdict)
})
