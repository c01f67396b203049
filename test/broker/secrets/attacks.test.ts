// Goal: neither a program nor an upstream makes the broker read a message in another way than the other side does, and
// no response shows a secret.

import { expect, test } from 'bun:test'
import type { Secret } from '../../../src/contract/vm/orders/secret.ts'
import {
  type Answer,
  connectProgram,
  eachHead,
  received,
  rigHost,
  sendRaw,
  startRig,
} from '../../rigs/broker/terminated.ts'

const value = 'ghp_0123456789/abcdef&"x'
const secret: Secret = {
  ...{ name: 'GITHUB_TOKEN', host: rigHost, port: 443, header: 'Authorization', format: 'Bearer {}', value },
}
const stars = '*'.repeat(value.length)
const end = `Host: ${rigHost}\r\nConnection: close\r\n\r\n`

/** Status that the program gets for its bytes, and whether the upstream got anything. */
async function refused(request: string, limited: Secret = secret): Promise<string> {
  let isReached = false
  await using rig = await startRig({
    secrets: [limited],
    answer: eachHead((_, socket) => {
      isReached = true
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
    }),
  })
  const [status = ''] = (await sendRaw(rig, request)).split('\r\n')
  return isReached ? `passed on: ${status}` : status.replace(/^HTTP\/1\.1 (\d+) Refused$/, '$1')
}

// Goal: no request that two sides may read in two ways reaches the upstream.
test.each([
  ['an absolute target', `GET https://${rigHost}/ HTTP/1.1\r\n${end}`, '400'],
  ['an absolute target of another host', `GET https://other.test/ HTTP/1.1\r\n${end}`, '400'],
  ['CONNECT', `CONNECT other.test:443 HTTP/1.1\r\n${end}`, '405'],
  ['TRACE, which shows the request', `TRACE / HTTP/1.1\r\n${end}`, '405'],
  ['HTTP/1.0', `GET / HTTP/1.0\r\n${end}`, '505'],
  ['HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', '400'],
  ['another Host', 'GET / HTTP/1.1\r\nHost: other.test\r\n\r\n', '421'],
  ['another port of the host', `GET / HTTP/1.1\r\nHost: ${rigHost}:8443\r\n\r\n`, '421'],
  ['a Host with credentials', `GET / HTTP/1.1\r\nHost: other.test@${rigHost}\r\n\r\n`, '421'],
  ['no Host', 'GET / HTTP/1.1\r\n\r\n', '400'],
  ['two Hosts', `GET / HTTP/1.1\r\nHost: ${rigHost}\r\nHost: ${rigHost}\r\n\r\n`, '400'],
  ['both lengths', `POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n${end}0\r\n\r\n`, '400'],
  ['two lengths', `POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n${end}abc`, '400'],
  ['a list of lengths', `POST / HTTP/1.1\r\nContent-Length: 3, 3\r\n${end}abc`, '400'],
  ['a length with a sign', `POST / HTTP/1.1\r\nContent-Length: +3\r\n${end}abc`, '400'],
  ['two codings', `POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n${end}0\r\n\r\n`, '501'],
  ['a coding that looks like chunked', `POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n${end}0\r\n\r\n`, '501'],
  ['chunked twice', `POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n${end}`, '501'],
  ['a blank before the colon', `POST / HTTP/1.1\r\nTransfer-Encoding : chunked\r\n${end}0\r\n\r\n`, '400'],
  ['a folded line', `GET / HTTP/1.1\r\nX-A: 1\r\n Host: other.test\r\n${end}`, '400'],
  ['a lone LF', `GET / HTTP/1.1\r\nX-A: 1\nX-B: 2\r\n${end}`, '400'],
  ['a lone CR', `GET / HTTP/1.1\r\nX-A: 1\rX-B: 2\r\n${end}`, '400'],
  ['a NUL', `GET / HTTP/1.1\r\nX-A: 1\0\r\n${end}`, '400'],
  ['an empty line first', `\r\n\r\nGET / HTTP/1.1\r\n${end}`, '400'],
  ['a target with a blank', `GET /a b HTTP/1.1\r\n${end}`, '400'],
  ['another expectation', `POST / HTTP/1.1\r\nExpect: 200-ok\r\nContent-Length: 1\r\n${end}`, '417'],
  ['a head too long', `GET / HTTP/1.1\r\nX-A: ${'a'.repeat(40_000)}\r\n${end}`, '431'],
  ['too many fields', `GET / HTTP/1.1\r\n${'A: b\r\n'.repeat(129)}${end}`, '400'],
])('goal: refused before it is passed on: %s', async (_, request, status) => {
  expect(await refused(request)).toBe(status)
})

// Goal: an agent does not turn the method of a secret into another one by a field that its server reads.
test('goal: refused where a secret is limited: a field that overrides the method', async () => {
  const request = `POST / HTTP/1.1\r\nX-HTTP-Method-Override: DELETE\r\nContent-Length: 0\r\n${end}`
  expect(await refused(request, { ...secret, method: 'POST' })).toBe('403')
  expect(await refused(request)).toBe('passed on: HTTP/1.1 200 OK')
  // TRACE is refused without a limit, too.
  expect(await refused(`TRACE / HTTP/1.1\r\n${end}`, { ...secret, path: '/' })).toBe('405')
})

// Goal: no malformed body ends at the upstream as a whole one.
test.each([
  ['a size that is no number', 'x\r\nabc\r\n0\r\n\r\n'],
  ['a size with a prefix', '0x3\r\nabc\r\n0\r\n\r\n'],
  ['a size with a sign', '-3\r\nabc\r\n0\r\n\r\n'],
  ['a size beyond all', 'fffffffffffff3\r\nabc\r\n0\r\n\r\n'],
  ['data longer than its size', '2\r\nabc\r\n0\r\n\r\n'],
  ['a lone LF in an extension', '3;a\nb\r\nabc\r\n0\r\n\r\n'],
  ['a lone LF as the end of a line', `3\nabc\n0\n\n${'a'.repeat(1_100)}`],
  ['an endless extension', `3;${'a'.repeat(2_000)}\r\nabc\r\n0\r\n\r\n`],
  ['a malformed trailer', '3\r\nabc\r\n0\r\nX A\r\n\r\n'],
  ['endless trailers', `3\r\nabc\r\n0\r\n${'A: b\r\n'.repeat(10_000)}\r\n`],
])('goal: a malformed body reaches no end at the upstream: %s', async (_, body) => {
  let got = ''
  await using rig = await startRig({
    secrets: [secret],
    answer: socket => void socket.on('data', chunk => (got += chunk.toString('latin1'))),
  })
  const answer = await sendRaw(rig, `POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n${end}${body}`)
  expect(answer).toMatch(/^HTTP\/1\.1 4(00|31) Refused\r\n/)
  expect(got).not.toContain('0\r\n\r\n')
})

test('goal: a body is framed anew, without extensions and trailers; what follows it is the next request', async () => {
  let got = ''
  await using rig = await startRig({
    secrets: [secret],
    answer: socket => {
      socket.on('data', (chunk: Buffer) => {
        got += chunk.toString('latin1')
        if (got.endsWith('0\r\n\r\n')) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
      })
    },
  })
  const body = '3;x="GET / HTTP/1.1"\r\nabc\r\n0002\r\nde\r\n0\r\nAuthorization: mine\r\nX: y\r\n\r\n'
  const next = 'GET /admin HTTP/1.1\r\nHost: other.test\r\n\r\n'
  const answer = await sendRaw(
    rig,
    `POST /a HTTP/1.1\r\nTransfer-Encoding: Chunked\r\nHost: ${rigHost}\r\n\r\n${body}${next}`,
  )
  expect(answer.match(/^HTTP\/1\.1 \d+/gm)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 421'])
  expect(unchunked(got)).toBe('abcde')
  expect(got).not.toContain('mine')
  expect(got).not.toContain('/admin')
})

/** The body of a message whose chunks have no extensions. */
function unchunked(message: string): string {
  const [, chunks = ''] = message.split(/\r\n\r\n([\s\S]*)/)
  return chunks.replace(/[0-9a-f]+\r\n([\s\S]*?)\r\n/g, '$1')
}

/** Returns the bytes that the program gets for a response of the upstream to one request. */
async function passed(answer: Answer, request = `GET / HTTP/1.1\r\n${end}`): Promise<string> {
  await using rig = await startRig({ secrets: [secret], answer })
  return await sendRaw(rig, request)
}
const answering = (...parts: string[]) =>
  eachHead((_, socket) => {
    for (const part of parts) socket.write(part, 'latin1')
    socket.end()
  })

// Goal: no response that two sides may read in two ways reaches the program.
test.each([
  ['both lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
  ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd'],
  ['another coding', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabcd'],
  ['a lone LF in a field', `HTTP/1.1 200 OK\r\nLocation: /\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n`],
  ['a lone CR in a field', `HTTP/1.1 200 OK\r\nLocation: /\rSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n`],
  ['a folded line', 'HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n'],
  ['no HTTP', 'SSH-2.0-OpenSSH\r\n\r\n\r\n'],
  ['another protocol', 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n'],
  ['endless interim responses', 'HTTP/1.1 103 Early Hints\r\n\r\n'.repeat(20)],
  ['a compressed body', 'HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc'],
  ['a head that breaks off', 'HTTP/1.1 200 OK\r\nContent-Le'],
  ['nothing', ''],
])('goal: a response that two sides may read in two ways is refused: %s', async (_, response) => {
  const answer = await passed(answering(response))
  expect(answer).toMatch(/^HTTP\/1\.1 502 Refused\r\nContent-Type: text\/plain; charset=utf-8\r\n/)
  expect(answer).not.toContain('a=b')
})

test('goal: a body that breaks off ends without its last chunk, and without a message of ours', async () => {
  const head = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n'
  for (const rest of ['', 'x\r\n', '3\r\nab']) {
    const answer = await passed(answering(head + rest))
    expect(answer).toStartWith('HTTP/1.1 200 OK\r\n')
    expect(answer).not.toContain('0\r\n\r\n')
    expect(answer).not.toContain('strongroom')
  }
})

test('goal: the next request never gets what an upstream sent beyond its response', async () => {
  await using rig = await startRig({
    secrets: [secret],
    answer: eachHead((head, socket, count) => {
      const more = count === 1 && head.startsWith('GET /a') ? 'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil' : ''
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood${more}`)
    }),
  })
  const answer = await sendRaw(rig, `GET /a HTTP/1.1\r\nHost: ${rigHost}\r\n\r\nGET /b HTTP/1.1\r\n${end}`)
  expect(answer.match(/good|evil/g)).toEqual(['good', 'good'])
  expect(rig.connections()).toBe(2)
})

test('goal: an echo of the request shows asterisks in head, body and every encoding', async () => {
  const json = JSON.stringify(value).slice(1, -1)
  const basic = Buffer.from(`some user:${value}!`).toString('base64')
  const forms = [value, json, encodeURIComponent(value), Buffer.from(value).toString('hex')]
  const body = forms.join(' ')
  const answer = await passed(
    answering(
      `HTTP/1.1 302 Bearer ${value}\r\nLocation: https://other.test/?t=${encodeURIComponent(value)}\r\nX-${stars}: a\r\n`,
      `Content-Length: ${body.length + basic.length}\r\n\r\n`,
      body + basic,
    ),
  )
  expect(answer).toStartWith(`HTTP/1.1 302 Bearer ${stars}\r\nLocation: https://other.test/?t=***`)
  for (const form of forms) expect(answer).not.toContain(form)
  expect(answer).not.toContain(Buffer.from(value.slice(3, 18)).toString('base64'))
  const [, shown = ''] = answer.split('\r\n\r\n')
  expect(shown.length).toBe(body.length + basic.length)
  expect(Buffer.from(shown.slice(body.length).replaceAll('*', 'A'), 'base64').toString('latin1')).not.toContain(
    value.slice(2, -2),
  )
})

test('goal: a secret across pieces and chunks is found, and what begins like one is not held back for ever', async () => {
  await using rig = await startRig({
    secrets: [secret],
    answer: eachHead((_, socket) => {
      socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n')
      for (const byte of `<${value}>`) socket.write(`1\r\n${byte}\r\n`)
      // It stays like this: the stream goes on and is not at its end.
      socket.write('9\r\ndata: ghx\r\n')
    }),
  })
  const socket = await connectProgram(rig)
  const shown = Promise.withResolvers<string>()
  let text = ''
  socket.on('data', (chunk: Buffer) => {
    text += chunk.toString('latin1')
    if (text.includes('ghx')) shown.resolve(text)
  })
  socket.write(`GET / HTTP/1.1\r\n${end}`)
  expect(unchunked(await shown.promise)).toBe(`<${stars}>data: ghx`)
  socket.destroy()
})

test('goal: an upstream that answers before the end of the body ends the connection with that answer', async () => {
  const answer = await passed(
    eachHead((_, socket) => void socket.write('HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno')),
    `POST / HTTP/1.1\r\nHost: ${rigHost}\r\nContent-Length: 1000000\r\n\r\npart`,
  )
  expect(answer).toBe('HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno')
})

test('goal: Expect is answered, and not passed on', async () => {
  let got = ''
  await using rig = await startRig({
    secrets: [secret],
    answer: socket => {
      socket.on('data', (chunk: Buffer) => {
        got += chunk.toString('latin1')
        if (got.endsWith('body'))
          socket.end('HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n')
      })
    },
  })
  const socket = await connectProgram(rig)
  const answer = received(socket)
  socket.write(`PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n${end}`)
  await new Promise(resolve => socket.once('data', resolve))
  socket.write('body')
  expect(await answer).toBe(
    'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n',
  )
  expect(got).not.toContain('Expect')
})

test('goal: no upgrade, no other protocol, no range is requested of the upstream', async () => {
  const heads: string[] = []
  await using rig = await startRig({
    secrets: [secret],
    answer: eachHead((head, socket) => {
      heads.push(head)
      socket.write('HTTP/1.1 200 OK\r\nAlt-Svc: h3=":443"\r\nContent-Length: 0\r\n\r\n')
    }),
  })
  const asked =
    'Upgrade: websocket\r\nHTTP2-Settings: AA\r\nTE: trailers\r\nRange: bytes=0-5\r\nAccept-Encoding: gzip\r\n'
  const answer = await sendRaw(
    rig,
    `GET / HTTP/1.1\r\n${asked}${end.replace('close', 'close, Upgrade, Authorization')}`,
  )
  expect(heads).toEqual([
    `GET / HTTP/1.1\r\nHost: ${rigHost}\r\nAccept-Encoding: identity\r\nAuthorization: Bearer ${value}`,
  ])
  expect(answer).not.toContain('h3')
})
