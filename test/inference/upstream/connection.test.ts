// Pushed bodies: the sink's calls, their order and number.

import { expect, test } from 'bun:test'
import { jsonResponse, type Peer, readText, startRaw } from '../../../scripts/rigs/gateway/raw-upstream.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { createDeadlines } from '../../../src/base/work/deadlines.ts'
import { UpstreamFault } from '../../../src/inference/failure.ts'
import { openAttempt, UpstreamClient } from '../../../src/inference/upstream/client.ts'
import type { BodyFlow, UpstreamResponse } from '../../../src/inference/upstream/connection.ts'

const HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n'
const PARTS = '1\r\na\r\n1\r\nb\r\n'
const END = '0\r\n\r\n'

type Pushed = { readonly told: string[]; readonly flow: BodyFlow; readonly response: UpstreamResponse }

/** A response whose head has arrived, and its sink's calls; `act` is called with each before the next. */
async function withPushed(
  act: (word: string, pushed: () => Pushed) => void,
  use: (pushed: Pushed, peer: Peer, next: () => Promise<string>) => Promise<void>,
): Promise<void> {
  const deadlines = createDeadlines(systemClock)
  const client = new UpstreamClient({ deadlines, timeouts: { connectMs: 15_000, firstByteMs: 15_000 } })
  await using upstream = await startRaw(
    { kind: 'tcp' },
    {
      onRequest: (peer, { body }) => void peer.write(body.toString() === '1' ? HEAD : jsonResponse('"next"')),
    },
  )
  const send = (body: string) =>
    client.send(upstream.target, { path: '/x', body, stream: false, attempt: openAttempt() })
  const response = await send('1')
  const told: string[] = []
  const note = (word: string) => {
    told.push(word)
    act(word, () => pushed)
  }
  const flow = response.pushTo({
    onBytes: (bytes, start, end) => note(bytes.toString('utf8', start, end)),
    onEnd: () => note('end'),
    onFailure: error => note(error instanceof UpstreamFault ? error.reason : 'another error'),
  })
  const pushed: Pushed = { told, flow, response }
  const [peer] = upstream.peers
  if (peer === undefined) throw new Error('nobody has asked')
  await use(pushed, peer, async () => readText(await send('2')))
  client.close()
}

test('goal: while it is paused nothing comes; then what has come, in one piece, and the end, once', () =>
  withPushed(
    () => {},
    async ({ told, flow }, peer, next) => {
      await peer.write(PARTS + END)
      // The response is complete, so its connection serves another one, which comes after those bytes.
      await until('the next one is served', 15_000, async () => (await next()) === '"next"')
      expect(told).toEqual([])
      flow.resume()
      flow.resume()
      expect(told).toEqual(['ab', 'end'])
    },
  ))

test('goal: a sink that pauses within the bytes gets the rest of them after it resumes', () =>
  withPushed(
    (word, pushed) => (word === 'a' ? pushed().flow.pause() : undefined),
    async ({ told, flow }, peer) => {
      flow.resume()
      await peer.write(PARTS + END)
      await until('the first has come', 15_000, () => told.length > 0)
      expect(told).toEqual(['a'])
      flow.resume()
      expect(told).toEqual(['a', 'b', 'end'])
    },
  ))

test('goal: a sink that aborts within the bytes that end the response is told so once, and the next request is served', () =>
  withPushed(
    (word, pushed) => (word === 'a' ? pushed().response.abort() : undefined),
    async ({ told, flow }, peer, next) => {
      flow.resume()
      await peer.write(PARTS + END)
      await peer.closed
      expect(told).toEqual(['a', 'cut'])
      expect(await next()).toBe('"next"')
    },
  ))

test('goal: a body that is cut fails once, after what had come', () =>
  withPushed(
    () => {},
    async ({ told, flow }, peer) => {
      await peer.write(PARTS)
      peer.end()
      await peer.closed
      expect(told).toEqual([])
      flow.resume()
      await until('the failure', 15_000, () => told.includes('cut'))
      expect(told.join(' ').replace('a b', 'ab')).toBe('ab cut')
    },
  ))
