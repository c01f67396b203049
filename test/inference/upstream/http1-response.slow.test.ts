// The parser of upstreams' responses: the same result for every split of the bytes.

import { describe, expect, test } from 'bun:test'
import { UpstreamFault } from '../../../src/inference/failure.ts'
import { headBytesMax, ResponseParser } from '../../../src/inference/upstream/http1-response.ts'
import { fuzz } from '../../rigs/hostile/fuzz.ts'

type Reading = {
  /** `status type encoding length` of each answer. */
  readonly heads: string[]
  readonly body: string
  /** Whether the connection may go on, for each answer that ended. */
  readonly ends: boolean[]
  readonly fault: string | null
}

/** Reads a response from these pieces; the peer closes after the last. */
function read(pieces: readonly Buffer[]): Reading {
  const [heads, ends]: [string[], boolean[]] = [[], []]
  const bodies: Buffer[] = []
  let fault: string | null = null
  const parser = new ResponseParser({
    onHead: head => {
      heads.push(`${head.status} ${head.contentType} ${head.contentEncoding} ${head.contentLength}`)
    },
    onBody: (bytes, start, end) => {
      expect(end).toBeGreaterThan(start)
      expect(end).toBeLessThanOrEqual(bytes.length)
      bodies.push(Buffer.from(bytes.subarray(start, end)))
    },
    onEnd: isReusable => ends.push(isReusable),
  })
  parser.expect()
  try {
    for (const piece of pieces) parser.push(piece)
    parser.close()
  } catch (error) {
    if (!(error instanceof UpstreamFault)) throw error
    fault = error.reason
  }
  return { heads, body: Buffer.concat(bodies).toString('latin1'), ends, fault }
}

function pieces(bytes: Buffer, cuts: readonly number[]): Buffer[] {
  const at = [0, ...[...cuts].sort((a, b) => a - b), bytes.length]
  return at.slice(1).map((end, index) => bytes.subarray(at[index], end))
}

/** The same for all two-way splits, byte by byte, and at random; long messages are split in two where it matters. */
function readEveryWay(text: string): Reading {
  const bytes = Buffer.from(text, 'latin1')
  const whole = read([bytes])
  const isLong = bytes.length > 4_096
  const places = Array.from({ length: bytes.length + 1 }, (_, at) => at)
  const near = (at: number) => at < 64 || at > bytes.length - 64 || Math.abs(at - headBytesMax) < 64
  for (const at of isLong ? places.filter(near) : places) expect([at, read(pieces(bytes, [at]))]).toEqual([at, whole])
  const step = isLong ? 61 : 1
  expect(
    read(
      pieces(
        bytes,
        places.filter(at => at % step === 0),
      ),
    ),
  ).toEqual(whole)
  if (isLong) {
    const tail = places.filter(at => at > bytes.length - 64)
    expect(read(pieces(bytes, tail))).toEqual(whole)
  }
  for (let round = 0; round < 20; round += 1) {
    const cuts = Array.from({ length: 1 + (round % 6) }, () => Math.floor(Math.random() * (bytes.length + 1)))
    expect([cuts, read(pieces(bytes, cuts))]).toEqual([cuts, whole])
  }
  return whole
}

const ok = (fields: string, body: string) => `HTTP/1.1 200 OK\r\n${fields}\r\n${body}`
const sized = ok('content-length: 5\r\n', 'hello')
const chunked = (body: string, fields = '') => ok(`transfer-encoding: chunked\r\n${fields}`, body)
const padded = (bytes: number) => {
  const start = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx: '
  return `${start}${'y'.repeat(bytes - start.length)}\r\n\r\nhi`
}

/** Read: `heads`, body, whether the connection may go on. */
const GOOD: Record<string, [text: string, head: string, body: string, isReusable: boolean]> = {
  'a length': [sized, '200   5', 'hello', true],
  'a length of nothing': [ok('content-length: 0\r\n', ''), '200   0', '', true],
  'no reason phrase': ['HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n', '200   0', '', true],
  'an empty reason phrase': ['HTTP/1.1 503 \r\ncontent-length: 0\r\n\r\n', '503   0', '', true],
  'names and values in any case, with blanks': [
    ok('CONTENT-Type:\t Text/Event-Stream; charset=UTF-8 \t\r\nCoNtEnT-LeNgTh:5\t\r\n', 'hello'),
    '200 text/event-stream  5',
    'hello',
    true,
  ],
  encodings: [
    ok('content-encoding: GZIP\r\ncontent-encoding: br\r\ncontent-length: 0\r\n', ''),
    '200  gzip,br 0',
    '',
    true,
  ],
  'the same length twice': [ok('content-length: 5\r\ncontent-length: 5\r\n', 'hello'), '200   5', 'hello', true],
  'values that look like a head': [
    ok('x: HTTP/1.1 200 OK: content-length: 9\r\ncontent-length: 5\r\n', 'hello'),
    '200   5',
    'hello',
    true,
  ],
  'a body that looks like a head': [
    ok('content-length: 19\r\n', 'HTTP/1.1 200 OK\r\n\r\n'),
    '200   19',
    'HTTP/1.1 200 OK\r\n\r\n',
    true,
  ],
  'an empty field': [ok('x:\r\ncontent-length: 0\r\n', ''), '200   0', '', true],
  chunks: [chunked('5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n'), '200   null', 'hello!', true],
  'chunks in any case, with zeros': [
    ok('Transfer-Encoding: CHUNKED\r\n', '0000000A\r\n0123456789\r\n000\r\n\r\n'),
    '200   null',
    '0123456789',
    true,
  ],
  'line ends within a chunk': [chunked('8\r\n\r\n0\r\n\r\n\n\r\n0\r\n\r\n'), '200   null', '\r\n0\r\n\r\n\n', true],
  extensions: [chunked('5;a=b;c="d;e"\r\nhello\r\n0 \t;x\r\n\r\n'), '200   null', 'hello', true],
  'an extension line of the longest': [
    chunked(`5;${'x'.repeat(1_022)}\r\nhello\r\n0\r\n\r\n`),
    '200   null',
    'hello',
    true,
  ],
  trailers: [chunked('5\r\nhello\r\n0\r\nx-sum: 1\r\ncontent-length: 99\r\n\r\n'), '200   null', 'hello', true],
  'no chunk at all': [chunked('0\r\n\r\n'), '200   null', '', true],
  'the end of the connection': [ok('', 'hello'), '200   null', 'hello', false],
  'the end of the connection, at once': [ok('', ''), '200   null', '', false],
  'the end, though it would be kept': [ok('connection: keep-alive\r\n', 'hello'), '200   null', 'hello', false],
  '204': ['HTTP/1.1 204 No Content\r\n\r\n', '204   null', '', true],
  '304 with the length of what it stands for': [
    'HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n',
    '304   9',
    '',
    true,
  ],
  'interim answers before': [
    `HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n${sized}`,
    '200   5',
    'hello',
    true,
  ],
  'HTTP/1.0': [
    'HTTP/1.0 200 OK\r\ncontent-length: 5\r\nconnection: keep-alive\r\n\r\nhello',
    '200   5',
    'hello',
    false,
  ],
  'HTTP/1.0 to its end': ['HTTP/1.0 200 OK\r\n\r\nhello', '200   null', 'hello', false],
  close: [ok('connection: close\r\ncontent-length: 5\r\n', 'hello'), '200   5', 'hello', false],
  'Close in a list': [
    ok('Connection: Keep-Alive ,\tCLOSE\r\ncontent-length: 5\r\n', 'hello'),
    '200   5',
    'hello',
    false,
  ],
  'close in a second field': [
    ok('connection: upgrade\r\nconnection: close\r\ncontent-length: 5\r\n', 'hello'),
    '200   5',
    'hello',
    false,
  ],
  'keep-alive': [
    ok('connection: keep-alive, x-closed\r\nkeep-alive: timeout=5\r\ncontent-length: 5\r\n', 'hello'),
    '200   5',
    'hello',
    true,
  ],
  'a chunked answer that closes': [chunked('0\r\n\r\n', 'connection: close\r\n'), '200   null', '', false],
  'the longest head': [padded(headBytesMax), '200   2', 'hi', true],
}

/** Refused: how far it comes, and as what. */
const BAD: Record<string, [text: string, fault: 'malformed' | 'cut', heads?: number]> = {
  nothing: ['', 'cut'],
  'half a status line': ['HTTP/1.1 2', 'cut'],
  'half a head': ['HTTP/1.1 200 OK\r\ncontent-length: 5\r\n', 'cut'],
  'an interim answer only': ['HTTP/1.1 100 Continue\r\n\r\n', 'cut'],
  'a body too short': [ok('content-length: 5\r\n', 'hell'), 'cut', 1],
  'a body of a huge length': [ok('content-length: 999999999999999\r\n', 'x'), 'cut', 1],
  'no last chunk': [chunked('5\r\nhello\r\n'), 'cut', 1],
  'half a chunk': [chunked('5\r\nhel'), 'cut', 1],
  'a chunk of a huge size': [chunked('ffffffff\r\nhel'), 'cut', 1],
  'no end after the last chunk': [chunked('0\r\n'), 'cut', 1],
  'no end after trailers': [chunked('0\r\nx: y\r\n'), 'cut', 1],
  'another protocol': ['SSH-2.0-OpenSSH_9.9\r\n\r\n\r\n', 'malformed'],
  'HTTP/2.0': ['HTTP/2.0 200 OK\r\n\r\n', 'malformed'],
  'HTTP/1.2': ['HTTP/1.2 200 OK\r\n\r\n', 'malformed'],
  'a protocol in small letters': ['http/1.1 200 OK\r\n\r\n', 'malformed'],
  'a blank before it': [' HTTP/1.1 200 OK\r\n\r\n', 'malformed'],
  'a line before it': [`\r\n${sized}`, 'malformed'],
  'two blanks': ['HTTP/1.1  200 OK\r\n\r\n', 'malformed'],
  'a status of two digits': ['HTTP/1.1 20 OK\r\n\r\n', 'malformed'],
  'a status of four digits': ['HTTP/1.1 2000 OK\r\n\r\n', 'malformed'],
  'a status below 100': ['HTTP/1.1 099 OK\r\n\r\n', 'malformed'],
  'a negative status': ['HTTP/1.1 -20 OK\r\n\r\n', 'malformed'],
  'a status that is no number': ['HTTP/1.1 2OO OK\r\n\r\n', 'malformed'],
  'no blank after the status': ['HTTP/1.1 200OK\r\n\r\n', 'malformed'],
  'NUL in the reason phrase': ['HTTP/1.1 200 O\0K\r\ncontent-length: 0\r\n\r\n', 'malformed'],
  'LF in the reason phrase': ['HTTP/1.1 200 OK\ncontent-length: 3\r\n\r\n', 'malformed'],
  'protocols switched': ['HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n', 'malformed'],
  'a request': ['POST /v1 HTTP/1.1\r\ncontent-length: 0\r\n\r\n', 'malformed'],
  'different lengths': [ok('content-length: 5\r\ncontent-length: 6\r\n', 'hello'), 'malformed'],
  'the same length, written differently': [ok('content-length: 5\r\ncontent-length: 05\r\n', 'hello'), 'malformed'],
  'a list of lengths': [ok('content-length: 5, 5\r\n', 'hello'), 'malformed'],
  'a negative length': [ok('content-length: -1\r\n', ''), 'malformed'],
  'a signed length': [ok('content-length: +5\r\n', 'hello'), 'malformed'],
  'a length with a fraction': [ok('content-length: 5.0\r\n', 'hello'), 'malformed'],
  'a hexadecimal length': [ok('content-length: 0x5\r\n', 'hello'), 'malformed'],
  'a length with an exponent': [ok('content-length: 5e0\r\n', 'hello'), 'malformed'],
  'an empty length': [ok('content-length:\r\n', ''), 'malformed'],
  'two numbers for a length': [ok('content-length: 5 5\r\n', 'hello'), 'malformed'],
  'a length beyond counting': [ok('content-length: 9007199254740993\r\n', 'x'), 'malformed'],
  'a length and chunks': [ok('content-length: 5\r\ntransfer-encoding: chunked\r\n', '0\r\n\r\n'), 'malformed'],
  'chunks and a length': [ok('transfer-encoding: chunked\r\ncontent-length: 5\r\n', '0\r\n\r\n'), 'malformed'],
  'chunks and a length of nothing': [
    ok('transfer-encoding: chunked\r\ncontent-length: 0\r\n', '0\r\n\r\n'),
    'malformed',
  ],
  'chunks twice': [ok('transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n', '0\r\n\r\n'), 'malformed'],
  'chunks twice in a list': [ok('transfer-encoding: chunked, chunked\r\n', '0\r\n\r\n'), 'malformed'],
  'chunks within another coding': [ok('transfer-encoding: gzip, chunked\r\n', '0\r\n\r\n'), 'malformed'],
  'chunks that are not last': [ok('transfer-encoding: chunked, identity\r\n', '0\r\n\r\n'), 'malformed'],
  'another transfer coding': [ok('transfer-encoding: identity\r\n', 'hello'), 'malformed'],
  'an obscured coding': [ok('transfer-encoding: xchunked\r\n', '0\r\n\r\n'), 'malformed'],
  'a coding behind a vertical tab': [ok('transfer-encoding: \vchunked\r\n', '0\r\n\r\n'), 'malformed'],
  'an empty coding': [ok('transfer-encoding:\r\n', 'hello'), 'malformed'],
  'chunks in HTTP/1.0': ['HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n', 'malformed'],
  'a blank before the colon': [ok('content-length : 5\r\n', 'hello'), 'malformed'],
  'a tab before the colon': [ok('transfer-encoding\t: chunked\r\n', '0\r\n\r\n'), 'malformed'],
  'a folded line': [ok('x: a\r\n content-length: 5\r\n', 'hello'), 'malformed'],
  'a folded line with a tab': [ok('content-length:\r\n\t5\r\n', 'hello'), 'malformed'],
  'a fold before any field': ['HTTP/1.1 200 OK\r\n x: y\r\ncontent-length: 0\r\n\r\n', 'malformed'],
  'no colon': [ok('content-length 5\r\n', 'hello'), 'malformed'],
  'no name': [ok(': 5\r\n', 'hello'), 'malformed'],
  'a name with a blank': [ok('content length: 5\r\n', 'hello'), 'malformed'],
  'a name beyond ASCII': [ok('cont\xe9nt: 5\r\n', 'hello'), 'malformed'],
  'NUL in a name': [ok('content-\0length: 5\r\n', 'hello'), 'malformed'],
  'NUL in a value': [ok('x: a\0b\r\ncontent-length: 5\r\n', 'hello'), 'malformed'],
  'LF in a value': [ok('x: a\ncontent-length: 9\r\ncontent-length: 5\r\n', 'hello'), 'malformed'],
  'CR in a value': [ok('x: a\rcontent-length: 9\r\ncontent-length: 5\r\n', 'hello'), 'malformed'],
  'CR CR LF': [ok('content-length: 5\r\r\n', 'hello'), 'malformed'],
  'LF alone': ['HTTP/1.1 200 OK\ncontent-length: 5\n\nhello', 'cut'],
  'CR alone': ['HTTP/1.1 200 OK\rcontent-length: 5\r\rhello', 'cut'],
  'two content types': [ok('content-type: a/b\r\ncontent-type: a/b\r\ncontent-length: 0\r\n', ''), 'malformed'],
  'a bad interim answer': [`HTTP/1.1 100 Continue\r\nx : y\r\n\r\n${sized}`, 'malformed'],
  'a head one byte too long': [padded(headBytesMax + 1), 'malformed'],
  'a head without an end': [`HTTP/1.1 200 OK\r\nx: ${'y'.repeat(headBytesMax + 8)}`, 'malformed'],
  'no size': [chunked('\r\nhello\r\n0\r\n\r\n'), 'malformed', 1],
  'a size that is no number': [chunked('g\r\nhello\r\n0\r\n\r\n'), 'malformed', 1],
  'a negative size': [chunked('-5\r\nhello\r\n0\r\n\r\n'), 'malformed', 1],
  'a signed size': [chunked('+5\r\nhello\r\n0\r\n\r\n'), 'malformed', 1],
  'a size with 0x': [chunked('0x5\r\nhello\r\n0\r\n\r\n'), 'malformed', 1],
  'a blank before the size': [chunked(' 5\r\nhello\r\n0\r\n\r\n'), 'malformed', 1],
  'a blank after the size': [chunked('5 \r\nhello\r\n0\r\n\r\n'), 'malformed', 1],
  'two sizes': [chunked('5 5\r\nhello\r\n0\r\n\r\n'), 'malformed', 1],
  'a size beyond 32 bits': [chunked('100000000\r\nhello'), 'malformed', 1],
  'LF after the size': [chunked('5\nhello\r\n0\r\n\r\n'), 'malformed', 1],
  'LF in an extension': [chunked('5;a\nb\r\nhello\r\n0\r\n\r\n'), 'malformed', 1],
  'CR in an extension': [chunked('5;a\rb\r\nhello\r\n0\r\n\r\n'), 'malformed', 1],
  'NUL in an extension': [chunked('5;a\0b\r\nhello\r\n0\r\n\r\n'), 'malformed', 1],
  'a chunk longer than its size': [chunked('4\r\nhello\r\n0\r\n\r\n'), 'malformed', 1],
  'a chunk shorter than its size': [chunked('6\r\nhello\r\n0\r\n\r\n'), 'malformed', 1],
  'LF after a chunk': [chunked('5\r\nhello\n0\r\n\r\n'), 'malformed', 1],
  'CR after a chunk': [chunked('5\r\nhello\r\r\n0\r\n\r\n'), 'malformed', 1],
  'an extension line too long': [chunked(`5;${'x'.repeat(1_023)}\r\nhello\r\n0\r\n\r\n`), 'malformed', 1],
  'a size line without an end': [chunked(`5;${'x'.repeat(1_100)}`), 'malformed', 1],
  'one trailer too long': [chunked(`0\r\nx: ${'y'.repeat(headBytesMax)}\r\n\r\n`), 'malformed', 1],
  'many trailers, too long': [chunked(`0\r\n${`x: ${'y'.repeat(997)}\r\n`.repeat(33)}\r\n`), 'malformed', 1],
  'a trailer that is no field': [chunked('0\r\nHTTP/1.1 200 OK\r\n\r\n'), 'malformed', 1],
  'LF in a trailer': [chunked('0\r\nx: y\n\nHTTP/1.1 200 OK\r\n\r\n'), 'malformed', 1],
  'NUL in a trailer': [chunked('0\r\nx: \0\r\n\r\n'), 'malformed', 1],
  'a folded trailer': [chunked('0\r\nx: y\r\n z\r\n\r\n'), 'malformed', 1],
}

describe('good answers', () => {
  for (const [name, [text, head, body, isReusable]] of Object.entries(GOOD)) {
    test(`goal: ${name} is read to the same for every split`, () => {
      expect(readEveryWay(text)).toEqual({ heads: [head], body, ends: [isReusable], fault: null })
    })
  }
})

describe('bad answers', () => {
  for (const [name, [text, fault, heads = 0]] of Object.entries(BAD)) {
    test(`goal: ${name} is refused for every split, and nothing ends well`, () => {
      const reading = readEveryWay(text)
      expect([reading.fault, reading.heads.length, reading.ends]).toEqual([fault, heads, []])
    })
  }
})

// Goal: bytes after a complete response are malformed, for every split, after the response was reported correctly.
test('bytes that nobody asked for', () => {
  for (const first of Object.values(GOOD).filter(([, , , isReusable]) => isReusable)) {
    for (const more of ['\r\n', 'x', sized, '\0']) {
      const { ends, body, fault } = readEveryWay(first[0].length > 4_096 ? sized + more : first[0] + more)
      expect([ends, fault]).toEqual([[true], 'malformed'])
      if (first[0].length <= 4_096) expect(body).toBe(first[2])
    }
  }
})

// Goal: responses on one connection are read one after the other, and none before its request was sent.
test('one after the other', () => {
  const ends: string[] = []
  let body = ''
  const parser = new ResponseParser({
    onHead: head => void ends.push(String(head.status)),
    onBody: (bytes, start, end) => {
      body += bytes.toString('utf8', start, end)
    },
    onEnd: () => {
      ends.push(body)
      body = ''
    },
  })
  expect(() => parser.push(Buffer.from('HTTP'))).toThrow(UpstreamFault)
  const texts = [
    'HTTP/1.1 204 None\r\n\r\n',
    chunked('2\r\nab\r\n0\r\nx: y\r\n\r\n'),
    sized,
    chunked('0\r\n\r\n'),
    sized,
  ]
  for (const text of texts) {
    parser.expect()
    for (const byte of Buffer.from(text)) parser.push(Buffer.from([byte]))
  }
  parser.close()
  expect(ends).toEqual(['204', '', '200', 'ab', '200', 'hello', '200', '', '200', 'hello'])
})

// Goal: random bytes give a response or an UpstreamFault, the same for every split.
test('hostile bytes', async () => {
  const texts = [...Object.values(GOOD), ...Object.values(BAD)].map(([text]) => text)
  const samples = texts.filter(text => text.length < 2_048).map(text => Buffer.from(text, 'latin1'))
  await fuzz({ samples, count: 6_000, sizeBytesMax: 512 }, mutated => {
    const bytes = Buffer.from(mutated)
    const whole = read([bytes])
    expect(read(pieces(bytes, Array.from(bytes.keys())))).toEqual(whole)
    const half = bytes.length >> 1
    expect(read(pieces(bytes, [half >> 1, half]))).toEqual(whole)
    // One request has one answer at most.
    expect([whole.heads.length <= 1, whole.ends.length <= whole.heads.length]).toEqual([true, true])
  })
}, 30_000)
