// Goal: requests and responses of every form arrive as a whole and in turn, and what is cut short never looks whole.

import { expect, test } from 'bun:test'
import type { Secret } from '../../../src/contract/vm/orders/secret.ts'
import { connectProgram, eachHead, received, rigHost, sendRaw, startRig } from '../../rigs/broker/terminated.ts'

const secret: Secret = {
  name: 'GITHUB_TOKEN',
  host: rigHost,
  port: 443,
  header: 'X-Key',
  format: '{}',
  value: 'ghp_0123456789abcdef',
}
const get = (path: string, more = '') => `GET ${path} HTTP/1.1\r\nHost: ${rigHost}\r\n${more}\r\n`
const last = 'Connection: close\r\n'

test('goal: a kept connection that the server has closed costs a GET nothing', async () => {
  const heads: string[] = []
  await using rig = await startRig({
    secrets: [secret],
    answer: eachHead((head, socket) => {
      heads.push(head.split(' ', 2).join(' '))
      // It ends the connection without a word about it.
      socket.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
    }),
  })
  const answer = await sendRaw(rig, get('/a') + get('/b') + get('/c', last))
  expect(answer.match(/\r\n\r\nok/g)).toHaveLength(3)
  // The server may have read a request that it did not answer.
  expect([...new Set(heads)]).toEqual(['GET /a', 'GET /b', 'GET /c'])
})

test('goal: what a server sends after its response answers no later request', async () => {
  let late = () => {}
  await using rig = await startRig({
    secrets: [secret],
    answer: eachHead((head, socket) => {
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood')
      if (!head.startsWith('GET /a')) return
      late = () => void socket.write('HTTP/1.1 408 Request Timeout\r\nContent-Length: 4\r\n\r\nlate')
    }),
  })
  const socket = await connectProgram(rig)
  const first = new Promise<void>(resolve => {
    socket.on('data', (chunk: Buffer) => chunk.toString().endsWith('good') && resolve())
  })
  socket.write(get('/a'))
  await first
  // Each exchange of another connection comes after what was sent before it.
  await sendRaw(rig, get('/b', last))
  late()
  await sendRaw(rig, get('/b', last))
  const answer = received(socket)
  socket.write(get('/c', last))
  const text = await answer
  expect([text.endsWith('good'), text.includes('late')]).toEqual([true, false])
})

test('goal: a request that changes something is sent once, over a connection of its own', async () => {
  let posts = 0
  await using rig = await startRig({
    secrets: [secret],
    answer: eachHead((head, socket) => {
      if (head.startsWith('GET')) {
        socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
        return
      }
      posts += 1
      socket.destroy()
    }),
  })
  for (const body of ['Content-Length: 0\r\n', '']) {
    const before = rig.connections()
    const answer = await sendRaw(rig, `${get('/a')}POST /b HTTP/1.1\r\nHost: ${rigHost}\r\n${body}\r\n`)
    expect(answer.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 502'])
    expect(rig.connections() - before).toBe(2)
  }
  expect(posts).toBe(2)
})

// Goal: a response without a body ends with its head.
test.each([
  ['HEAD', 'HEAD', 'HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n', 'Content-Length: 50\r\n'],
  [
    '304',
    'GET',
    'HTTP/1.1 304 Not Modified\r\nContent-Length: 50\r\nETag: "a"\r\n\r\n',
    'ETag: "a"\r\nContent-Length: 50\r\n',
  ],
  ['204', 'DELETE', 'HTTP/1.1 204 No Content\r\nContent-Length: 50\r\n\r\n', ''],
  ['an empty body', 'GET', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n', 'Content-Length: 0\r\n'],
])('goal: %s has no body, and the next response is read after it', async (_, method, response, fields) => {
  await using rig = await startRig({
    secrets: [secret],
    answer: eachHead((head, socket) => {
      const isFirst = !head.startsWith('GET /next')
      socket.write(isFirst ? response : 'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext')
    }),
  })
  const answer = await sendRaw(rig, `${method} / HTTP/1.1\r\nHost: ${rigHost}\r\n\r\n${get('/next', last)}`)
  const [first] = response.split('\r\n')
  expect(answer).toBe(
    `${first}\r\n${fields}Connection: keep-alive\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnext`,
  )
})

test('goal: a response up to the end of the connection arrives in chunks, with its end', async () => {
  await using rig = await startRig({
    secrets: [secret],
    answer: eachHead((_, socket) => void socket.end('HTTP/1.0 200 OK\r\n\r\nold server')),
  })
  const answer = await sendRaw(rig, get('/', last))
  expect(answer).toBe(
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\na\r\nold server\r\n0\r\n\r\n',
  )
})

test('goal: an upload that breaks off never looks whole to the server', async () => {
  for (const fields of ['Transfer-Encoding: chunked\r\n', 'Content-Length: 1000\r\n']) {
    const got = Promise.withResolvers<string>()
    const begun = Promise.withResolvers<void>()
    await using rig = await startRig({
      secrets: [secret],
      answer: socket => {
        let text = ''
        socket.on('data', (chunk: Buffer) => {
          text += chunk.toString('latin1')
          if (text.includes('first')) begun.resolve()
        })
        socket.on('close', () => got.resolve(text))
      },
    })
    const socket = await connectProgram(rig)
    socket.write(`PUT / HTTP/1.1\r\nHost: ${rigHost}\r\n${fields}\r\n`)
    socket.write(fields.startsWith('T') ? '5\r\nfirst\r\n' : 'first')
    await begun.promise
    socket.end()
    await received(socket)
    const text = await got.promise
    expect(text).toContain('first')
    expect(text).not.toMatch(/0\r\n\r\n$/)
  }
})

test('goal: a server that stops in the middle of an upload ends it with an error', async () => {
  await using rig = await startRig({
    secrets: [secret],
    answer: socket => void socket.once('data', () => socket.destroy()),
  })
  const answer = await sendRaw(
    rig,
    `PUT / HTTP/1.1\r\nHost: ${rigHost}\r\nContent-Length: 3000000\r\n\r\n`,
    Buffer.alloc(1_000_000),
  )
  expect(answer).toMatch(/^HTTP\/1\.1 502 Refused\r\n/)
})

test('goal: events arrive one by one while the response goes on', async () => {
  const more: (() => void)[] = []
  await using rig = await startRig({
    secrets: [secret],
    answer: eachHead((_, socket) => {
      socket.write('HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n')
      more.push(() => socket.write('9\r\ndata: 1\n\n\r\n'))
    }),
  })
  const socket = await connectProgram(rig)
  const next = () => new Promise<string>(resolve => socket.once('data', (chunk: Buffer) => resolve(chunk.toString())))
  const head = next()
  socket.write(get('/events'))
  expect(await head).toStartWith('HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n')
  for (let event = 0; event < 3; event += 1) {
    const arrived = next()
    more[0]?.()
    expect(await arrived).toBe('9\r\ndata: 1\n\n\r\n')
  }
  socket.destroy()
})
