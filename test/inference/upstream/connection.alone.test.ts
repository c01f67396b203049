// Requests that are aborted: their connections are closed within a bound.

import { describe, expect, test } from 'bun:test'
import { countedDeadlines, readText, reasonOf, startRaw } from '../../../scripts/rigs/gateway/raw-upstream.ts'
import { target } from '../../../scripts/rigs/gateway/server.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { watchWithheld } from '../../../scripts/rigs/withheld.ts'
import { openAttempt, UpstreamClient } from '../../../src/inference/upstream/client.ts'
import { openClient, own, PLACES, standsStill } from '../../rigs/upstream/places.ts'

const MIB = 1024 * 1024

describe.each(['tcp', 'tls', 'unix'] as const)('requests that are given up: %s', kind => {
  const place = PLACES[kind]

  // Goal: an abort reaches the server within 100 ms: before the head, in the body, and while the body waits for a
  // reader.
  test('one', async () => {
    using client = openClient()
    const head = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n'
    const waits = {
      'before the head': '',
      'in the head': 'HTTP/1.1 200',
      body: `${head}{`,
      full: head + 'x'.repeat(16 * MIB),
    }
    for (const [name, text] of Object.entries(waits)) {
      await using upstream = await startRaw(place, { onRequest: peer => void peer.write(text) })
      const attempt = openAttempt()
      const asked = client.send(upstream.target, { path: '/x', body: '1', stream: false, attempt })
      const hasHead = text.startsWith(head)
      const failed = hasHead ? null : reasonOf(asked)
      if (hasHead) await (await asked).read()
      await until('it is asked', 60_000, () => upstream.peers[0]?.asked.length === 1)
      if (name === 'full') await standsStill('the server stands still', () => upstream.peers[0]?.unsent() ?? 0)
      using withheld = watchWithheld()
      const leftMs = performance.now()
      attempt.abort()
      const closedMs = (await upstream.peers[0]?.closed) ?? Number.POSITIVE_INFINITY
      expect([name, closedMs - leftMs - withheld.ms() < 100]).toEqual([name, true])
      const rest = hasHead ? await reasonOf((async () => readText(await asked))()) : await failed
      expect([name, rest]).toEqual([name, 'cut'])
      expect(upstream.peers.length).toBe(1)
    }
  }, 60_000)
})

// Goal: a client that leaves while its request waits for a connection frees the upstream within 100 ms.
test('given up while connecting', async () => {
  const greeted = Promise.withResolvers<void>()
  await using upstream = await startRaw({ kind: 'tcp' }, { onBytes: () => greeted.resolve() })
  const patient = new UpstreamClient({
    deadlines: countedDeadlines(),
    timeouts: { connectMs: 60_000, firstByteMs: 60_000 },
  })
  const attempt = openAttempt()
  const to = target(`https://127.0.0.1:${upstream.port}/v1`, { ca: own.cert })
  const asked = reasonOf(patient.send(to, { path: '/x', body: '1', stream: false, attempt }))
  await greeted.promise
  using withheld = watchWithheld()
  const leftMs = performance.now()
  attempt.abort()
  expect(await asked).toBe('unreachable')
  const closedMs = (await upstream.peers[0]?.closed) ?? Number.POSITIVE_INFINITY
  expect(closedMs - leftMs - withheld.ms()).toBeLessThan(100)
})
