// A build's events to a client: where they start, and a client that leaves.

import { expect, test } from 'bun:test'
import { eventStream, startOf } from '../../../src/builds/http/event-stream.ts'

test('goal: a client that leaves while nothing happens is no failure of ours, and ends the reading once', async () => {
  const next = Promise.withResolvers<[]>()
  const failures: unknown[] = []
  let ends = 0
  const hooks = { onEnd: () => (ends += 1), onFailure: (error: unknown) => void failures.push(error) }
  const leaving = new AbortController()
  const stream = eventStream({ next: () => next.promise }, leaving.signal, hooks)
  const reader = stream.getReader()
  await reader.read()
  const waiting = reader.read()
  leaving.abort()
  await reader.cancel()
  next.resolve([])
  expect((await waiting).done).toBe(true)
  // A reading that fails after that is of no interest either.
  const late = eventStream({ next: () => Promise.reject(new Error('the file is gone')) }, leaving.signal, hooks)
  const lateReader = late.getReader()
  await lateReader.read()
  void lateReader.read().catch(() => {})
  await Bun.sleep(0)
  // Each of the two, once.
  expect([failures, ends]).toEqual([[], 2])
})

test('goal: a stream starts after `from`, else after Last-Event-ID, also for a URL without an origin (HTTP/1.0)', () => {
  const headers = new Headers({ 'Last-Event-ID': '7' })
  expect(startOf({ url: 'https://a.example/build/x/events?from=3', headers })).toBe(3)
  expect(startOf({ url: '/build/x/events?from=3', headers })).toBe(3)
  expect(startOf({ url: '/build/x/events', headers })).toBe(7)
  expect(startOf({ url: '/build/x/events', headers: new Headers() })).toBe(0)
  expect(() => startOf({ url: '/build/x/events?from=x', headers })).toThrow('from must be the id of an event')
})
