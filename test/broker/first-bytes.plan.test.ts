// Goal: the first bytes of a connection name one server or none: a ClientHello by its server name, plain HTTP by its
// Host, whatever pieces they come in; every other form of either is refused.

import { describe, expect, test } from 'bun:test'
import { createServer } from 'node:net'
import { connect } from 'node:tls'
import { firstBytesMax, readFirstBytes } from '../../src/broker/first-bytes.plan.ts'

const read = (text: string) => readFirstBytes(Buffer.from(text, 'latin1'))

/** Returns the first bytes of a TLS client of this runtime. */
async function helloOf(servername: string): Promise<Buffer> {
  const got = Promise.withResolvers<Buffer>()
  const server = createServer(socket => {
    socket.on('error', () => {})
    socket.once('data', bytes => {
      got.resolve(Buffer.from(bytes))
      socket.destroy()
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', () => resolve()))
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('it listens')
  const client = connect({ host: '127.0.0.1', port: address.port, servername })
  client.on('error', () => {})
  try {
    return await got.promise
  } finally {
    client.destroy()
    server.close()
  }
}

const u16 = (value: number) => Buffer.of(value >> 8, value & 0xff)
const sized = (bytes: Buffer) => Buffer.concat([u16(bytes.length), bytes])
const nameEntry = (name: string, type = 0) => Buffer.concat([Buffer.of(type), sized(Buffer.from(name))])
const extension = (type: number, data: Buffer) => Buffer.concat([u16(type), sized(data)])
const serverName = (...entries: Buffer[]) => extension(0, sized(Buffer.concat(entries)))
function hello(extensions: Buffer, after = Buffer.alloc(0)): Buffer {
  const body = Buffer.concat([
    ...[
      Buffer.of(3, 3),
      Buffer.alloc(32),
      Buffer.of(0),
      Buffer.of(0, 2, 0x13, 1),
      Buffer.of(1, 0),
      sized(extensions),
      after,
    ],
  ])
  return Buffer.concat([Buffer.of(1, 0), u16(body.length), body])
}
const record = (message: Buffer, type = 22) => Buffer.concat([Buffer.of(type, 3, 1), sized(message)])
const github = hello(serverName(nameEntry('GitHub.com')))

describe('a ClientHello', () => {
  test('goal: of a real client has its server name, after each byte before it was undecided', async () => {
    const bytes = await helloOf('api.github.com')
    expect(readFirstBytes(bytes)).toEqual({ kind: 'tls', host: 'api.github.com' })
    for (let length = 0; length < bytes.length; length += 1) {
      expect(readFirstBytes(bytes.subarray(0, length))).toEqual({ kind: 'partial' })
    }
  })

  test('goal: over several records is one message, and the name has one spelling', () => {
    const pieces = Buffer.concat([
      record(github.subarray(0, 3)),
      record(github.subarray(3, 50)),
      record(github.subarray(50)),
    ])
    expect(readFirstBytes(pieces)).toEqual({ kind: 'tls', host: 'github.com' })
    expect(readFirstBytes(Buffer.concat([record(github), Buffer.from('early data')]))).toMatchObject({ kind: 'tls' })
  })

  // Goal: every other form is refused, and says why.
  test.each([
    ['no server name', record(hello(extension(16, Buffer.of(0, 3, 2, 104, 50)))), 'its ClientHello has no server name'],
    ['two names', record(hello(serverName(nameEntry('a.example'), nameEntry('b.example')))), 'several server names'],
    [
      'the extension twice',
      record(hello(Buffer.concat([serverName(nameEntry('a.example')), serverName(nameEntry('b.example'))]))),
      'several server names',
    ],
    ['a name of another type', record(hello(serverName(nameEntry('a.example', 1)))), 'malformed'],
    ['an empty list', record(hello(serverName())), 'malformed'],
    ['bytes behind its extensions', record(hello(serverName(nameEntry('a.example')), Buffer.of(0))), 'malformed'],
    ['another message first', record(Buffer.concat([Buffer.of(2, 0, 0, 1, 0)])), 'malformed'],
    [
      'another record within',
      Buffer.concat([record(github.subarray(0, 9)), record(github.subarray(9), 23)]),
      'malformed',
    ],
    ['an empty record', Buffer.concat([record(github.subarray(0, 9)), record(Buffer.alloc(0))]), 'malformed'],
    ['a record above the limit', Buffer.concat([Buffer.of(22, 3, 1), u16(16_385)]), 'malformed'],
  ])('with %s', (_, bytes, reason) => {
    const found = readFirstBytes(bytes)
    expect(found).toMatchObject({ kind: 'refused' })
    expect('reason' in found ? found.reason : '').toContain(reason)
  })

  test('goal: lengths that lie are refused, and never read beyond the bytes', () => {
    for (let at = 5; at < github.length + 5; at += 1) {
      const bytes = Buffer.from(record(github))
      bytes[at] = (bytes[at] ?? 0) ^ 0xff
      const found = readFirstBytes(bytes)
      if (found.kind === 'tls') expect(found.host).not.toBe('other.example')
    }
    const endless = Buffer.concat([
      Buffer.of(22, 3, 1),
      u16(16_384),
      Buffer.of(1, 0xff, 0xff, 0xff),
      Buffer.alloc(firstBytesMax),
    ])
    expect(readFirstBytes(endless.subarray(0, firstBytesMax))).toMatchObject({ kind: 'refused' })
  })
})

describe('plain HTTP', () => {
  // Goal: a request names its host once its headers are whole.
  test.each([
    ['GET / HTTP/1.1\r\nHost: GitHub.com\r\n\r\n', 'github.com', null],
    ['GET / HTTP/1.0\nhost:github.com:80\n\n', 'github.com', 80],
    ['\r\nPOST /a?b HTTP/1.1\r\nA: b\r\nHOST : github.com.\r\n\r\nbody', 'github.com', null],
    ['GET http://github.com/ HTTP/1.1\r\nHost: github.com\r\n\r\n', 'github.com', null],
  ])('goal: %j names its host', (text, host, port) => {
    expect(read(text)).toEqual({ kind: 'http', host, port })
    for (let length = 0; length < text.indexOf('\n\n'); length += 1) {
      expect(read(text.slice(0, length)).kind).toBe('partial')
    }
  })

  test('goal: a tab is a blank of the request line, in a first packet as well', () => {
    expect(read('GET\t/').kind).toBe('partial')
    expect(read('GET\t/\tHTTP/1.1\r\nHost:\tgithub.com \t\r\n\r\n')).toMatchObject({ kind: 'http', host: 'github.com' })
  })

  // Goal: no text makes the only thread search for long.
  test.each([
    ['blanks within Host', `GET / HTTP/1.1\r\nHost: a${' '.repeat(8_100)}b\r\n\r\n`],
    ['a Host of blanks', `GET / HTTP/1.1\r\nHost:${' '.repeat(32_700)}x\r\n\r\n`],
    ['a request line of blanks', `GET ${' '.repeat(32_700)}x\r\n\r\n`],
    ['a request line of tabs', `GET ${'\t'.repeat(32_700)}HTTP/1.1x\r\n\r\n`],
  ])('goal: %s are read in linear time', (_, text) => {
    const startMs = performance.now()
    for (let count = 0; count < 50; count += 1) read(text)
    // A pattern that tries each blank again takes 20 s and more.
    expect(performance.now() - startMs).toBeLessThan(5_000)
  })

  // Goal: a request that names no host, several, or another place is refused.
  test.each([
    ['GET / HTTP/1.1\r\n\r\n', 'exactly one host'],
    ['GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n', 'exactly one host'],
    ['GET / HTTP/1.1\r\nHost: a.example\r\nhost: a.example\r\n\r\n', 'exactly one host'],
    ['GET / HTTP/1.1\r\nHost: a.example, b.example\r\n\r\n', 'exactly one host'],
    ['GET / HTTP/1.1\r\nHost: user@a.example\r\n\r\n', 'exactly one host'],
    ['GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n', 'exactly one host'],
    ['GET /a b HTTP/1.1\r\nHost: b.example\r\n\r\n', 'blanks in the target'],
    ['GET / HTTP/1.1\r\nHost: a.example\xa0\r\n\r\n', 'exactly one host'],
    ['CONNECT 21.0.0.1:443 HTTP/1.1\r\nHost: a.example\r\n\r\n', 'CONNECT'],
    ['PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'HTTP/2 without TLS'],
  ])('goal: %j is refused', (text, reason) => {
    const found = read(text)
    expect('reason' in found ? found.reason : found.kind).toContain(reason)
  })

  test('goal: headers without an end are refused at the limit', () => {
    for (const begin of ['GET / HTTP/1.1\r\nA: ', 'GET /']) {
      expect(read(`${begin}${'b'.repeat(8_000)}`).kind).toBe('partial')
      expect(read(`${begin}${'b'.repeat(8_192)}`)).toMatchObject({
        reason: 'its HTTP request names no host in the first 8192 bytes',
      })
    }
  })
})

test('goal: other protocols name no server', () => {
  for (const text of [
    'SSH-2.0-OpenSSH_9.2\r\n',
    'EHLO a.example\r\n',
    '\x80\x2e\x01',
    '*1\r\n$4\r\nPING\r\n',
    '\0\0',
  ]) {
    expect(read(text)).toEqual({ kind: 'other' })
  }
})
