// Connections under load: large bodies both ways, slow readers and servers, many requests that are aborted.

import { describe, expect, test } from 'bun:test'
import {
  countedDeadlines,
  jsonResponse,
  type Peer,
  readText,
  reasonOf,
  startRaw,
} from '../../../scripts/rigs/gateway/raw-upstream.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { createDeadlines } from '../../../src/base/work/deadlines.ts'
import { openAttempt, UpstreamClient } from '../../../src/inference/upstream/client.ts'
import { openClient, PLACES, standsStill } from '../../rigs/upstream/places.ts'

const MIB = 1024 * 1024

/** Text that shows where a piece is missing or doubled. */
function numbered(bytes: number): string {
  let text = ''
  for (let at = 0; text.length < bytes; at += 1) text += `${at.toString(36)}.`
  return text.slice(0, bytes)
}

function digest(text: string | Uint8Array): string {
  return new Bun.CryptoHasher('sha256').update(text).digest('hex')
}

describe.each(['tcp', 'tls', 'unix'] as const)('large bodies: %s', kind => {
  const place = PLACES[kind]

  // Goal: a request of 8 MB reaches a server that pauses repeatedly, whole, and so does each next on that connection,
  // whatever its characters are.
  test('up', async () => {
    using client = openClient()
    let pauses = 0
    await using upstream = await startRaw(place, {
      onBytes: peer => {
        pauses += 1
        if (pauses % 8 !== 1) return
        peer.pause()
        setTimeout(peer.resume, 2)
      },
      onRequest: (peer, { body }) => void peer.write(jsonResponse(`"${digest(body)}"`)),
    })
    // A Unix socket takes 214 KiB of them at once: more than they have characters, less than they have bytes.
    const others = ['é', '€'].map(letter => numbered(60_000).replaceAll('.', letter.repeat(6)))
    for (const body of [numbered(8 * MIB), ...others, numbered(100_000), numbered(8 * MIB + 1)]) {
      const request = { path: '/x', body, stream: false, attempt: openAttempt() }
      expect(await readText(await client.send(upstream.target, request))).toBe(`"${digest(body)}"`)
    }
    expect([upstream.peers.length, pauses > 8]).toEqual([1, true])
  }, 180_000)

  // Goal: a reader that pauses stops the server, with little buffered in between; afterwards it gets every byte, in any
  // framing.
  test('down', async () => {
    using client = openClient()
    const body = numbered(64 * MIB)
    const head = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n'
    const chunks = () => {
      const size = 1_000_003
      const count = Math.ceil(body.length / size)
      const piece = (at: number) => body.slice(at * size, (at + 1) * size)
      const parts = Array.from({ length: count }, (_, at) => `${piece(at).length.toString(16)}\r\n${piece(at)}\r\n`)
      return `${head}transfer-encoding: chunked\r\n\r\n${parts.join('')}0\r\n\r\n`
    }
    const answers = [jsonResponse(body), chunks(), `${head}\r\n${body}`]
    let at = 0
    await using upstream = await startRaw(place, {
      onRequest: peer => {
        void peer.write(answers[at] ?? '')
        if (at === 2) peer.end()
      },
    })
    for (; at < answers.length; at += 1) {
      const request = { path: '/x', body: '1', stream: false, attempt: openAttempt() }
      const answer = await client.send(upstream.target, request)
      const [peer] = upstream.peers
      await standsStill('the server stands still', () => peer?.unsent() ?? 0)
      // Buffers of the kernel for both ends (tcp_rmem and tcp_wmem allow 38 MB here) and of the client.
      expect(peer?.unsent()).toBeGreaterThan(body.length - (kind === 'unix' ? 2 : 44) * MIB)
      const first = (await answer.read()) ?? new Uint8Array()
      expect(first.length).toBeLessThan(MIB)
      expect(digest(Buffer.from(first).toString() + (await readText(answer)))).toBe(digest(body))
    }
    expect(upstream.peers.length).toBe(1)
  }, 180_000)
})

describe.each(['tcp', 'tls', 'unix'] as const)('requests that are given up: %s', kind => {
  const place = PLACES[kind]

  // Goal: after 1,000 aborts at any moment of a request no connection or deadline is left, and the next request is
  // served.
  test('1,000', async () => {
    const deadlines = countedDeadlines()
    using client = openClient(deadlines)
    const head = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{'
    await using upstream = await startRaw(place, {
      onRequest: (peer, { body }) => {
        const say = { serve: jsonResponse('1'), begin: head, silent: '' }[JSON.parse(body.toString()) as 'serve']
        void peer.write(say)
      },
    })
    const runRequest = async (at: number) => {
      const attempt = openAttempt()
      const moment = at % 5
      const body = JSON.stringify(['serve', 'silent', 'silent', 'begin', 'begin'][moment])
      if (moment === 0) attempt.abort()
      const asked = client.send(upstream.target, { path: '/x', body, stream: false, attempt })
      if (moment === 1) attempt.abort()
      if (moment === 2) setTimeout(attempt.abort, at % 7)
      if (moment < 3) return await reasonOf(asked)
      const answer = await asked
      await answer.read()
      const rest = reasonOf(answer.read())
      if (moment === 3) attempt.abort()
      else answer.abort()
      return await rest
    }
    for (let round = 0; round < 20; round += 1) {
      const ends = await Promise.all(Array.from({ length: 50 }, (_, at) => runRequest(round * 50 + at)))
      for (const end of ends) expect(['cut', 'unreachable']).toContain(end)
    }
    await until('all are closed', 60_000, () => upstream.open() === 0)
    await Promise.all(upstream.peers.map(peer => peer.closed))
    await until('no deadline is left', 60_000, () => deadlines.pending() === 0)
    const last = { path: '/x', body: '"serve"', stream: false, attempt: openAttempt() }
    expect(await readText(await client.send(upstream.target, last))).toBe('1')
    expect([upstream.open(), deadlines.pending()]).toEqual([1, 0])
  }, 60_000)
})

// Goal: an idle connection is closed after its timeout; a request that takes as long is not.
test('idle connections', async () => {
  const echo = (peer: Peer, { body }: { body: Buffer }) => void peer.write(jsonResponse(body.toString()))
  await using upstream = await startRaw({ kind: 'tcp' }, { onRequest: echo })
  await using slow = await startRaw({ kind: 'tcp' }, {})
  const patient = new UpstreamClient({
    deadlines: createDeadlines(systemClock),
    timeouts: { connectMs: 1_000, firstByteMs: 30_000 },
  })
  const later = (body: string) => patient.send(slow.target, { path: '/x', body, stream: false, attempt: openAttempt() })
  const ask = async () =>
    readText(await patient.send(upstream.target, { path: '/x', body: '1', stream: false, attempt: openAttempt() }))
  const first = later('1')
  await until('it is asked', 60_000, () => slow.peers[0]?.asked.length === 1)
  await slow.peers[0]?.write(jsonResponse('1'))
  expect(await readText(await first)).toBe('1')
  const pending = later('2')
  expect(await ask()).toBe('1')
  await upstream.peers[0]?.closed
  // Timers of sockets tick every four seconds: another round, by a connection that began now.
  expect(await ask()).toBe('1')
  await upstream.peers[1]?.closed
  await slow.peers[0]?.write(jsonResponse('2'))
  expect(await readText(await pending)).toBe('2')
  expect(slow.peers.length).toBe(1)
  patient.close()
}, 60_000)
