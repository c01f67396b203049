// The upstream client over real sockets: kept and closed connections, retried requests, invalid responses.

import { afterAll, describe, expect, test } from 'bun:test'
import {
  jsonResponse,
  type Peer,
  type RawUpstream,
  readText,
  reasonOf,
  selfSigned,
  startRaw,
} from '../../../scripts/rigs/gateway/raw-upstream.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { createDeadlines } from '../../../src/base/work/deadlines.ts'
import { openAttempt, UpstreamClient } from '../../../src/inference/upstream/client.ts'
import type { UpstreamResponse } from '../../../src/inference/upstream/connection.ts'
import type { UpstreamTarget } from '../../../src/inference/upstream/target.ts'

const client = new UpstreamClient({
  deadlines: createDeadlines(systemClock),
  timeouts: { connectMs: 20_000, firstByteMs: 20_000 },
})
afterAll(() => client.close())
const own = await selfSigned('127.0.0.1')

function send(target: UpstreamTarget, body = '{}', attempt = openAttempt()): Promise<UpstreamResponse> {
  return client.send(target, { path: '/chat/completions', body, stream: false, attempt })
}

async function ask(upstream: RawUpstream, body?: string): Promise<string> {
  return readText(await send(upstream.target, body))
}

/** Answers with the request's own body. */
const echo = (peer: Peer, { body }: { body: Buffer }) => void peer.write(jsonResponse(body.toString()))

describe.each(['tcp', 'tls', 'unix'] as const)('connections that are kept: %s', kind => {
  const place = kind === 'tls' ? { kind, own } : { kind }

  // Goal: one connection carries one request after the other, each whole and with the right head.
  test('one after the other', async () => {
    await using upstream = await startRaw(place, { onRequest: echo })
    for (let at = 0; at < 50; at += 1) expect(await ask(upstream, `{"n":${at}}`)).toBe(`{"n":${at}}`)
    expect([upstream.peers.length, upstream.peers[0]?.asked.length]).toEqual([1, 50])
    const host = new URL(upstream.target.url).host
    expect(upstream.peers[0]?.asked[9]?.head.split('\r\n')).toEqual([
      'POST /v1/chat/completions HTTP/1.1',
      `host: ${host}`,
      'accept-encoding: identity',
      'user-agent: strongroom',
      'authorization: Bearer upstream-key-canary',
      'accept: application/json',
      'content-type: application/json',
      'content-length: 7',
    ])
  })

  // Goal: there are as many connections as concurrent requests, and no more after many rounds.
  test('at once', async () => {
    await using upstream = await startRaw(place, { onRequest: echo })
    for (let round = 0; round < 10; round += 1) {
      const bodies = Array.from({ length: 16 }, (_, at) => `{"n":${round * 100 + at}}`)
      expect(await Promise.all(bodies.map(body => ask(upstream, body)))).toEqual(bodies)
    }
    expect(upstream.peers.length).toBeLessThanOrEqual(16)
  })

  // Goal: a request succeeds although the server has closed the idle connection: another is used, or a new one opened.
  test('closed in between', async () => {
    await using upstream = await startRaw(place, { onRequest: echo })
    for (const close of ['end', 'reset'] as const) {
      expect(await ask(upstream, '{"n":1}')).toBe('{"n":1}')
      const peer = upstream.peers.at(-1)
      peer?.[close]()
      // At once: nobody but this machine's kernel has heard of it.
      expect(await ask(upstream, '{"n":2}')).toBe('{"n":2}')
      peer?.end()
    }
  })

  // Goal: a written request is never written again, even on a reused connection: the upstream may already work on it.
  test('closed on arrival', async () => {
    const seen: string[] = []
    await using upstream = await startRaw(place, {
      onRequest: (peer, asked) => {
        seen.push(asked.body.toString())
        if (peer.asked.length === 1 && upstream.peers.length < 3) echo(peer, asked)
        else if (upstream.peers.length === 1) peer.end()
        else setTimeout(peer.reset, 400)
      },
    })
    expect(await ask(upstream, '{"n":1}')).toBe('{"n":1}')
    expect(await reasonOf(ask(upstream, '{"n":2}'))).toBe('unreachable')
    expect(await ask(upstream, '{"n":3}')).toBe('{"n":3}')
    expect(await reasonOf(ask(upstream, '{"n":4}'))).toBe('unreachable')
    // Nor on a new one.
    expect(await reasonOf(ask(upstream, '{"n":5}'))).toBe('unreachable')
    expect(seen).toEqual(['{"n":1}', '{"n":2}', '{"n":3}', '{"n":4}', '{"n":5}'])
    expect(upstream.peers.length).toBe(3)
  })

  // Goal: a request is never sent again once a byte of its response has arrived.
  test('closed after a byte', async () => {
    await using upstream = await startRaw(place, {
      onRequest: (peer, asked) => {
        if (peer.asked.length === 1) return echo(peer, asked)
        void peer.write('H').then(peer.end)
      },
    })
    await ask(upstream)
    expect(await reasonOf(ask(upstream))).toBe('cut')
    expect(upstream.peers.map(peer => peer.asked.length)).toEqual([2])
  })

  // Goal: a connection is not used again after `connection: close`, HTTP/1.0, or a body that ends with the connection.
  test('not kept', async () => {
    const answers = [
      jsonResponse('"a"', 'connection: close\r\n'),
      'HTTP/1.0 200 OK\r\ncontent-type: application/json\r\ncontent-length: 3\r\n\r\n"b"',
      'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"c"',
    ]
    await using upstream = await startRaw(place, {
      onRequest: peer => {
        const at = upstream.peers.indexOf(peer)
        void peer.write(answers[at] ?? '').then(() => {
          if (at === 2) peer.end()
        })
      },
    })
    for (const text of ['"a"', '"b"', '"c"']) expect(await ask(upstream)).toBe(text)
    await Promise.all(upstream.peers.map(peer => peer.closed))
    expect(upstream.peers.map(peer => peer.asked.length)).toEqual([1, 1, 1])
  })

  // Goal: bytes after a response, together with it or later, close the connection and harm no other response.
  test('bytes that nobody asked for', async () => {
    const poison = jsonResponse('"poison"')
    await using upstream = await startRaw(place, {
      onRequest: (peer, { body }) =>
        void peer.write(jsonResponse(body.toString()) + (body.toString() === '1' ? poison : '')),
    })
    expect(await ask(upstream, '1')).toBe('1')
    await upstream.peers[0]?.closed
    expect(await ask(upstream, '2')).toBe('2')
    await upstream.peers[1]?.write(poison)
    await upstream.peers[1]?.closed
    expect(await ask(upstream, '3')).toBe('3')
    expect(upstream.peers.length).toBe(3)
  })
})

// Goal: a reset is not the end of a body: one without a length is cut, not complete.
test('reset within an answer', async () => {
  await using upstream = await startRaw(
    { kind: 'tcp' },
    {
      onRequest: peer => void peer.write('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{}'),
    },
  )
  const answer = await send(upstream.target)
  expect(Buffer.from((await answer.read()) ?? []).toString()).toBe('{}')
  upstream.peers[0]?.reset()
  expect(await reasonOf(answer.read())).toBe('cut')
})

describe('answers that are refused', () => {
  const head = 'content-type: application/json\r\n'
  const ROWS: [text: string, reason: string, isKept: boolean][] = [
    ['HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 1\r\n\r\nx', 'content_type', true],
    ['HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 9\r\n\r\nx', 'content_type', false],
    [`HTTP/1.1 200 OK\r\n${head}content-encoding: gzip\r\ncontent-length: 9\r\n\r\nx`, 'content_type', false],
    ['HTTP/1.1 204 None\r\n\r\n', 'status', true],
    [`HTTP/1.1 500 X\r\n${head}content-length: 9\r\n\r\nx`, 'status', false],
    [`HTTP/1.1 302 X\r\nlocation: /\r\n${head}content-length: 9\r\n\r\nx`, 'status', false],
    [`HTTP/1.1 413 X\r\n${head}content-length: 9\r\n\r\nx`, 'invalid_request', false],
    ['SSH-2.0-x\r\n\r\n\r\n', 'malformed', false],
  ]
  for (const [text, reason, isKept] of ROWS) {
    test(`goal: ${JSON.stringify(text.slice(0, 60))} is ${reason}, and is kept only when it is complete: ${isKept}`, async () => {
      await using upstream = await startRaw({ kind: 'tcp' }, { onRequest: peer => void peer.write(text) })
      expect(await reasonOf(send(upstream.target))).toBe(reason)
      if (!isKept) await upstream.peers[0]?.closed
      expect(await reasonOf(send(upstream.target))).toBe(reason)
      expect(upstream.peers.length).toBe(isKept ? 1 : 2)
    })
  }

  // Goal: a response before the whole request was sent is read, and its connection is not used again.
  test('an answer before the whole request', async () => {
    const text = 'HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n'
    await using upstream = await startRaw(
      { kind: 'tcp' },
      {
        onBytes: peer => {
          if (upstream.peers.length > 1) return
          peer.pause()
          void peer.write(text)
        },
        onRequest: echo,
      },
    )
    expect(await reasonOf(send(upstream.target, `"${'x'.repeat(32_000_000)}"`))).toBe('invalid_request')
    expect(await ask(upstream, '2')).toBe('2')
    upstream.peers[0]?.resume()
    await upstream.peers[0]?.closed
    expect(upstream.peers.map(peer => peer.asked.length)).toEqual([0, 1])
  })
})

// Goal: at most 256 idle connections are kept; those that the server closes no longer count.
test('so many are kept', async () => {
  const all = Promise.withResolvers<void>()
  let asked = 0
  await using upstream = await startRaw(
    { kind: 'tcp' },
    {
      onRequest: async (peer, request) => {
        asked += 1
        if (asked === 300) all.resolve()
        await all.promise
        echo(peer, request)
      },
    },
  )
  await Promise.all(Array.from({ length: 300 }, () => ask(upstream, '1')))
  await until('the others are closed', 60_000, () => upstream.open() === 256)
  for (const peer of upstream.peers) peer.end()
  await until('all are closed', 60_000, () => upstream.open() === 0)
  for (let count = 0; count < 5; count += 1) await ask(upstream, '1')
  expect([upstream.peers.length, upstream.open()]).toEqual([301, 1])
})

// Goal: closing the client closes idle connections, and those in use once they become idle.
test('close', async () => {
  await using upstream = await startRaw(
    { kind: 'tcp' },
    {
      onRequest: (peer, asked) => {
        if (asked.body.toString() === '1') echo(peer, asked)
      },
    },
  )
  const client = new UpstreamClient({
    deadlines: createDeadlines(systemClock),
    timeouts: { connectMs: 20_000, firstByteMs: 20_000 },
  })
  const request = { path: '/x', stream: false, attempt: openAttempt() }
  const pending = client.send(upstream.target, { ...request, body: '2' })
  await until('it is asked', 60_000, () => upstream.peers[0]?.asked.length === 1)
  expect(await readText(await client.send(upstream.target, { ...request, body: '1', attempt: openAttempt() }))).toBe(
    '1',
  )
  client.close()
  await upstream.peers[1]?.closed
  await upstream.peers[0]?.write(jsonResponse('2'))
  expect(await readText(await pending)).toBe('2')
  await upstream.peers[0]?.closed
})
