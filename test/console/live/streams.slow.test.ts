// Goal: a page learns what changed within a second or two, once, by topics alone; streams are bounded, end with their
// session, and a client that does not read costs nothing.

import { expect, test } from 'bun:test'
import type { Clock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { Changes, type Marks, TOPICS, type Topic } from '../../../src/console/live/changes.ts'
import { Streams } from '../../../src/console/live/streams.ts'
import { insertOrganization } from '../../../src/store/directory/organization.query.ts'
import { logIn, pageHeaders, startConsole } from '../../rigs/console/console.ts'

/** A clock that stands still until `tick`. */
function handClock() {
  let nowMs = 0
  let sleepers: { readonly dueMs: number; readonly wake: () => void }[] = []
  const clock: Clock = {
    nowMs: () => nowMs,
    monotonicMs: () => nowMs,
    sleep: (ms, signal) =>
      new Promise((resolve, reject) => {
        signal?.addEventListener('abort', () => reject(signal.reason), { once: true })
        sleepers.push({ dueMs: nowMs + ms, wake: resolve })
      }),
  }
  const tick = async (ms: number) => {
    nowMs += ms
    const due = sleepers.filter(({ dueMs }) => dueMs <= nowMs)
    sleepers = sleepers.filter(({ dueMs }) => dueMs > nowMs)
    for (const { wake } of due) wake()
    for (let turns = 0; turns < 10; turns += 1) await Promise.resolve()
  }
  return { clock, tick, sleeping: () => sleepers.length }
}

function setUp() {
  const hand = handClock()
  const marks = Object.fromEntries(TOPICS.map(topic => [topic, '0'])) as Record<Topic, string>
  let looks = 0
  const changes = new Changes((): Marks => {
    looks += 1
    return { ...marks }
  })
  const streams = new Streams({ clock: hand.clock, log: silentLogger, changes, sweep: () => {} })
  return { ...hand, marks, streams, changes, looks: () => looks }
}

const session = (id = 's') => ({ id, ended: new AbortController().signal })

/** Messages that wait to be read. */
async function readAll(reader: ReadableStreamDefaultReader<Uint8Array>, count: number): Promise<string[]> {
  const found: string[] = []
  while (found.length < count) found.push(new TextDecoder().decode((await reader.read()).value))
  return found
}

function readerOf(response: Response) {
  const reader = response.body?.getReader()
  if (reader === undefined) throw new Error('a response without a body')
  return reader as ReadableStreamDefaultReader<Uint8Array>
}

const message = (...topics: Topic[]) => `event: changed\ndata: {"topics":${JSON.stringify(topics)}}\n\n`

test('goal: the first message names everything, the next what changed, and none comes without a change', async () => {
  const { marks, streams, tick } = setUp()
  const reader = readerOf(streams.open(session(), null))
  expect(await readAll(reader, 1)).toEqual([
    message('instances', 'organizations', 'keys', 'builds', 'gateway', 'events', 'status'),
  ])
  await tick(1_000)
  marks.instances = '1'
  marks.events = '1'
  await tick(1_000)
  await tick(1_000)
  marks.builds = '1'
  await tick(1_000)
  expect(await readAll(reader, 2)).toEqual([message('instances', 'events'), message('builds')])
  await tick(15_000)
  expect(await readAll(reader, 1)).toEqual([': here\n\n'])
})

test('goal: a page that has asked for its documents since a cursor is told what changed after it alone', async () => {
  const { marks, streams, changes, tick } = setUp()
  const cursor = changes.cursor()
  // States that come back may have been others in between.
  const always: Topic[] = ['gateway', 'status']
  expect(await readAll(readerOf(streams.open(session(), cursor)), 1)).toEqual([message(...always)])
  marks.builds = '1'
  const second = readerOf(streams.open(session('t'), cursor))
  expect(await readAll(second, 1)).toEqual([message('builds', ...always)])
  await tick(1_000)
  // The look of the first stream was before this change: it comes again rather than not at all.
  expect(await readAll(second, 1)).toEqual([message('builds')])
  for (const wrong of ['', 'x', cursor.slice(1), `.${cursor}`]) {
    const [text = ''] = await readAll(readerOf(streams.open(session(wrong), wrong)), 1)
    expect([wrong, text.includes('instances')]).toEqual([wrong, true])
  }
})

test('goal: a client that does not read gets every topic once when it does, and is let go after a minute', async () => {
  const { marks, streams, tick } = setUp()
  const stalled = readerOf(streams.open(session(), null))
  for (let count = 0; count < 20; count += 1) {
    marks.instances = String(count)
    marks.keys = String(count)
    await tick(1_000)
  }
  const waiting = await readAll(stalled, 4)
  expect(new Set(waiting.slice(1))).toEqual(new Set([message('instances', 'keys')]))
  await tick(1_000)
  expect(await readAll(stalled, 1)).toEqual([message('instances', 'keys')])
  streams.open(session('t'), null)
  for (let count = 0; count < 70; count += 1) {
    marks.builds = String(count)
    await tick(1_000)
  }
  expect(streams.count).toBe(0)
})

test('goal: nobody looks while nobody listens', async () => {
  const { streams, tick, looks } = setUp()
  const reader = readerOf(streams.open(session(), null))
  await tick(1_000)
  const seen = looks()
  await reader.cancel()
  await tick(1_000)
  await tick(1_000)
  expect([looks(), streams.count]).toEqual([seen, 0])
})

test('goal: one session has so many streams and no more, and they end with it', async () => {
  const { streams } = setUp()
  const ending = new AbortController()
  const own = { id: 'own', ended: ending.signal }
  for (let count = 0; count < 8; count += 1) streams.open(own, null)
  expect(() => streams.open(own, null)).toThrow('Too many pages')
  streams.open(session('other'), null)
  ending.abort()
  expect(streams.count).toBe(1)
  streams.open({ id: 'own', ended: new AbortController().signal }, null)
  expect(streams.count).toBe(2)
})

test('goal: over the wire a change of an operator and a row of somebody else are seen, and a log-out ends the stream', async () => {
  await using rig = await startConsole()
  const cookie = await logIn(rig)
  const { cursor } = (await (await rig.send('/api/session', { headers: { cookie } })).json()) as { cursor: string }
  const fresh = await rig.send(`/api/live?since=${cursor}`, { headers: { cookie } })
  expect(await readAll(readerOf(fresh), 1)).toEqual([message('gateway', 'status')])
  const response = await rig.send('/api/live', { headers: { cookie } })
  expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8')
  const reader = readerOf(response)
  const seen = async (topic: Topic) => {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) throw new Error('the stream ended')
      if (new TextDecoder().decode(value).includes(`"${topic}"`)) return true
    }
  }
  expect(await seen('status')).toBe(true)
  await rig.asRoot('POST', '/organizations/acme/suspend')
  expect(await seen('events')).toBe(true)
  insertOrganization(rig.store.directory.db, { id: 'o9', slug: 'other', nowMs: 1 })
  expect(await seen('organizations')).toBe(true)
  await rig.send('/api/session', { method: 'DELETE', headers: pageHeaders(rig.origin, cookie) })
  expect((await reader.read()).done).toBe(true)
  expect((await rig.send('/api/live', { headers: { cookie } })).status).toBe(401)
})
