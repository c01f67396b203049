// A build's events to a client that leaves.

import { expect, test } from 'bun:test'
import { eventStream } from '../../../src/builds/http/event-stream.ts'

test('goal: a client that leaves while nothing happens is no failure of ours, and ends the reading once', async () => {
  const next = Promise.withResolvers<[]>()
  const failures: unknown[] = []
  let ends = 0
  const hooks = { onEnd: () => (ends += 1), onFailure: (error: unknown) => void failures.push(error) }
  const stream = eventStream({ next: () => next.promise }, new AbortController().signal, hooks)
  const reader = stream.getReader()
  await reader.read()
  const waiting = reader.read()
  await reader.cancel()
  next.resolve([])
  expect((await waiting).done).toBe(true)
  await Bun.sleep(0)
  expect([failures, ends]).toEqual([[], 1])
})
