// Goal: resolvers are read as resolv.conf(5) has them, and no other answer is taken for theirs. See
// delegation.driver.test.ts, too.

import { expect, test } from 'bun:test'
import { type Answer, decode, encode } from 'dns-packet'
import { failure } from '../../../scripts/rigs/until.ts'
import { askDns, parseResolvers, systemResolvers } from '../../../src/linux/net/dns-ask.ts'

test('goal: the first three addresses, and no names', () => {
  const text =
    '# nameserver 9.9.9.9\nsearch x\nnameserver 127.0.0.53\nnameserver not-an-address\nnameserver ::1\noptions edns0\nnameserver 1.1.1.1\nnameserver 8.8.8.8\n'
  expect(parseResolvers(text)).toEqual(['127.0.0.53', '::1', '1.1.1.1'])
  expect(parseResolvers('')).toEqual([])
  expect(systemResolvers('/nonexistent/resolv.conf')).toEqual([])
})

test('goal: of several datagrams the one counts that answers this question by its id; what is longer than wanted is not read', async () => {
  const from = new Set<number>()
  const a = (data: string): Answer => ({ type: 'A', name: 'a.example', ttl: 60, data })
  const server = await Bun.udpSocket({
    hostname: '127.0.0.1',
    port: 0,
    socket: {
      error: () => {},
      data: (socket, bytes, port, address) => {
        from.add(port)
        const { id = 0, questions = [] } = decode(bytes)
        const send = (change: object, data: string) =>
          socket.send(encode({ type: 'response', id, questions, answers: [a(data)], ...change }), port, address)
        socket.send(Buffer.alloc(40, 0xff), port, address)
        send({ id: id ^ 1 }, '192.0.2.1')
        send({ type: 'query' }, '192.0.2.2')
        send({ questions: [{ type: 'A', name: 'b.example' }] }, '192.0.2.3')
        send({ questions: [{ type: 'AAAA', name: 'a.example' }] }, '192.0.2.4')
        send({ answers: Array.from({ length: 20 }, () => a('192.0.2.5')) }, '')
      },
    },
  })
  const question = { server: '127.0.0.1', port: server.port, name: 'a.example', type: 'A', recursion: true } as const
  for (let n = 0; n < 8; n += 1) {
    const { answers } = await askDns({ ...question, timeoutMs: 15_000 })
    expect(answers.map(answer => (answer as { data?: unknown }).data)).toEqual(Array(20).fill('192.0.2.5'))
  }
  // From a port of its own each time.
  expect(from.size).toBeGreaterThan(4)
  expect(await failure(askDns({ ...question, timeoutMs: 15_000, answerBytesMax: 400 }))).toMatchObject({
    code: 'host.command_failed',
    message: expect.stringContaining('more than requested'),
  })
  server.close()
})
