// Goal: one session holds its share of open requests and no more, a followed text ends with its session, and a body
// that never arrives is given up.

import { expect, test } from 'bun:test'
import { connect } from 'node:tls'
import { until } from '../../../scripts/rigs/until.ts'
import { peerOf } from '../../../src/appliance/console/console.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { endedBy } from '../../../src/console/http/body-end.ts'
import { answerOperator } from '../../../src/console/http/session-answers.ts'
import type { Person } from '../../../src/console/person.ts'
import { Sessions } from '../../../src/console/sessions/sessions.ts'
import { logIn, pageHeaders, startConsole } from '../../rigs/console/console.ts'

test('goal: a session has so many requests open, and room again when they end; others have theirs', async () => {
  await using rig = await startConsole({ administrators: [{ uid: 1001, user: 'alice', role: 'operator' }] })
  const [cookie, other] = [await logIn(rig), await logIn(rig, { as: 'alice' })]
  const open = async (holder: string) => {
    const stop = new AbortController()
    const { signal } = stop
    const response = await rig.send('/api/operator/slow', { headers: { cookie: holder }, signal })
    // The response stays: once it is collected, its connection is closed and the place free.
    return { status: response.status, stop, response }
  }
  rig.answerWith(() => new Response(new ReadableStream({ start: controller => controller.enqueue(new Uint8Array(1)) })))
  const held = []
  for (let count = 0; count < 32; count += 1) held.push(await open(cookie))
  expect(new Set(held.map(({ status }) => status))).toEqual(new Set([200]))
  const refused = await rig.send('/api/session', { headers: { cookie } })
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '1'])
  expect((await rig.send('/api/session', { headers: { cookie: other } })).status).toBe(200)
  held[0]?.stop.abort()
  await until(
    'its place is free',
    10_000,
    async () => (await rig.send('/api/session', { headers: { cookie } })).status === 200,
  )
  const close = await rig.asRoot('POST', '/console/close', { all: true })
  expect(await close.json()).toEqual({ sessions: 2 })
})

test('goal: a console of an instance that is followed is cut off with the session', async () => {
  await using rig = await startConsole()
  const cookie = await logIn(rig)
  let isAskedToEnd = false
  rig.answerWith(request => {
    const body = new ReadableStream<Uint8Array>({
      start: controller => {
        controller.enqueue(new TextEncoder().encode('first'))
        request.signal.addEventListener('abort', () => {
          isAskedToEnd = true
        })
      },
    })
    return new Response(body)
  })
  const response = await rig.send('/api/operator/instance/console?follow=true', { headers: { cookie } })
  const reader = response.body?.getReader()
  expect(new TextDecoder().decode((await reader?.read())?.value)).toBe('first')
  await rig.send('/api/session', { method: 'DELETE', headers: pageHeaders(rig.origin, cookie) })
  expect((await reader?.read())?.done).toBe(true)
  expect(isAskedToEnd).toBe(true)
})

test('goal: a console that is quiet for hours is still followed, and its connection is for nothing else then', async () => {
  const asked = async (search: string) => {
    const seconds: number[] = []
    const request = new Request(`https://localhost/api/operator/instance/console${search}`)
    const socket = { requestIP: () => null, timeout: (_: Request, count: number) => void seconds.push(count) }
    const context = {
      ...{ request, search, path: '/api/operator/instance/console', peer: peerOf(request, socket), actor: null },
      ...{ hostName: 'localhost', origin: 'https://localhost' },
    }
    const person: Person = { uid: 0, actor: 'root', role: 'admin' }
    const sessions = new Sessions({ ...{ clock: systemClock, random: systemRandom }, idleMs: 1, lifeMs: 1 })
    const { session } = sessions.begin({ person, by: 'link', passkeyId: null })
    const response = await answerOperator(() => async () => new Response('text'), { context, session, rest: '/x' })
    return [response.headers.get('connection'), ...seconds]
  }
  expect(await asked('?ref=a&follow=true')).toEqual(['close', 0])
  expect(await asked('?ref=a')).toEqual([null, 255])
})

test('goal: a body says once that it ended: read, cut off, left or failed', async () => {
  const ends: string[] = []
  const body = (...texts: string[]) => new Response(new Blob(texts).stream())
  const read = endedBy(body('a', 'b'), new AbortController().signal, () => ends.push('read'))
  expect(await read.text()).toBe('ab')
  const left = endedBy(body('a'), new AbortController().signal, () => ends.push('left'))
  await left.body?.cancel()
  const over = new AbortController()
  over.abort()
  expect(await endedBy(body('a'), over.signal, () => ends.push('over')).text()).toBe('')
  const failing = new Response(new ReadableStream({ pull: () => Promise.reject(new Error('broken')) }))
  const failed = endedBy(failing, new AbortController().signal, () => ends.push('failed'))
  await expect(failed.text()).rejects.toThrow('broken')
  endedBy(new Response(null), new AbortController().signal, () => ends.push('empty'))
  expect(ends).toEqual(['read', 'left', 'over', 'failed', 'empty'])
})

test('goal: a body that does not arrive is given up in time, and its connection with it', async () => {
  let wake = () => {}
  let passedMs = 0
  const startMs = Date.now()
  const clock = {
    nowMs: () => startMs + passedMs,
    monotonicMs: () => passedMs,
    sleep: (ms: number) =>
      new Promise<void>(resolve => {
        if (ms === 10_000) wake = resolve
      }),
  }
  await using rig = await startConsole({ clock })
  const head = Object.entries({ host: `localhost:${rig.port}`, ...pageHeaders(rig.origin), 'content-length': '100' })
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join('')
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  const socket = connect({ host: '127.0.0.1', port: rig.port, ca: rig.ca, servername: 'localhost' }, () => {
    socket.write(`POST /api/session HTTP/1.1\r\n${head}\r\n{"token":`)
  })
  socket.on('data', (data: Buffer) => resolve(data.toString()))
  socket.on('error', reject)
  const armed = wake
  await until('the console waits for the body', 10_000, () => wake !== armed)
  passedMs += 10_001
  wake()
  expect(await promise).toMatch(/^HTTP\/1\.1 408 [\s\S]*connection: close/i)
  socket.destroy()
})
