// Goal: a program of the VM uses a secret that it cannot read, over connections that prove their names.

import { expect, test } from 'bun:test'
import type { Secret } from '../../../src/contract/vm/orders/secret.ts'
import { connectProgram, eachHead, received, rigHost, sendRaw, startRig } from '../../rigs/broker/terminated.ts'

const value = 'ghp_0123456789abcdef'
const secret: Secret = {
  ...{ name: 'GITHUB_TOKEN', host: rigHost, port: 443, header: 'Authorization', format: 'Bearer {}', value },
}
const ok = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'

test('goal: the secret replaces what the program sent, for the upstream alone', async () => {
  const heads: string[] = []
  await using rig = await startRig({
    secrets: [secret],
    answer: eachHead((head, socket) => {
      heads.push(head)
      socket.write(ok)
    }),
  })
  const answer = await sendRaw(
    rig,
    `GET /user?q=1 HTTP/1.1\r\nHost: ${rigHost}\r\nAUTHORIZATION: Bearer a\r\nauthorization: b\r\nX-A: 1\r\nConnection: close, x-b\r\nX-B: 2\r\n\r\n`,
  )
  expect(answer).toBe('HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok')
  expect(heads).toEqual([
    `GET /user?q=1 HTTP/1.1\r\nHost: ${rigHost}\r\nX-A: 1\r\nAccept-Encoding: identity\r\nAuthorization: Bearer ${value}`,
  ])
  expect(rig.refused()).toEqual([])
})

test('goal: pipelined requests are answered in order over one connection to the upstream', async () => {
  await using rig = await startRig({
    secrets: [secret],
    answer: eachHead((head, socket, count) => {
      const body = `${count} ${head.split(' ')[1]}`
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
    }),
  })
  const get = (path: string, more = '') => `GET ${path} HTTP/1.1\r\nHost: ${rigHost}\r\n${more}\r\n`
  const answer = await sendRaw(rig, get('/a') + get('/b'), get('/c', 'Connection: close\r\n'))
  expect(answer.match(/\d \/[abc]/g)).toEqual(['1 /a', '2 /b', '3 /c'])
  expect(rig.connections()).toBe(1)
})

test('goal: an upstream that cannot prove its name gets no request', async () => {
  for (const options of [{ upstreamName: 'evil.test' }, { isTrusted: false }]) {
    let bytes = 0
    await using rig = await startRig({
      ...options,
      secrets: [secret],
      answer: socket => void socket.on('data', chunk => (bytes += chunk.length)),
    })
    const answer = await sendRaw(rig, `GET / HTTP/1.1\r\nHost: ${rigHost}\r\n\r\n`)
    expect(answer).toStartWith('HTTP/1.1 502 Refused\r\n')
    expect(answer).toContain('strongroom: no verified connection to the server: ')
    expect(rig.refused()).toHaveLength(1)
    expect(bytes).toBe(0)
  }
})

test('goal: a program that offers HTTP/2 gets HTTP/1.1', async () => {
  await using rig = await startRig({ secrets: [secret], answer: eachHead((_, socket) => socket.write(ok)) })
  const socket = await connectProgram(rig, { ALPNProtocols: ['h2', 'http/1.1'] })
  expect(socket.alpnProtocol).toBe('http/1.1')
  socket.write(`GET / HTTP/1.1\r\nHost: ${rigHost}\r\nConnection: close\r\n\r\n`)
  expect(await received(socket)).toEndWith('ok')
})

test('goal: a changed policy closes both sides', async () => {
  let isUpstreamClosed = false
  const asked = Promise.withResolvers<void>()
  const closed = Promise.withResolvers<void>()
  await using rig = await startRig({
    secrets: [secret],
    answer: socket => {
      socket.on('data', () => asked.resolve())
      socket.on('close', () => {
        isUpstreamClosed = true
        closed.resolve()
      })
    },
  })
  const answer = sendRaw(rig, `GET / HTTP/1.1\r\nHost: ${rigHost}\r\n\r\n`)
  await asked.promise
  rig.closeAll()
  expect(await answer).toBe('')
  await closed.promise
  expect(isUpstreamClosed).toBe(true)
})
