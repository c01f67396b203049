// Goal: the daemon's client says which socket does not answer and why, passes errors of the daemon on with their codes,
// and uses the read-only socket only for what that one shows.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Type } from '@sinclair/typebox'
import { failure } from '../../scripts/rigs/until.ts'
import { createClient } from '../../src/cli/daemon-client.ts'
import { remedyOf } from '../../src/terminal/exit.ts'

const directory = mkdtempSync(join(tmpdir(), 'strongroom-client-'))
afterAll(() => rmSync(directory, { recursive: true }))
let sockets = 0
const newSocket = () => join(directory, `${++sockets}.sock`)

type Seen = { readonly method: string; readonly target: string; readonly body: string }

/** A daemon that answers each request with this, and notes each request. */
function daemon(answer: (request: Request) => Response | Promise<Response>) {
  const path = newSocket()
  const seen: Seen[] = []
  const server = Bun.serve({
    unix: path,
    fetch: async request => {
      const url = new URL(request.url)
      seen.push({ method: request.method, target: url.pathname + url.search, body: await request.text() })
      return await answer(request)
    },
  })
  return { path, seen, [Symbol.asyncDispose]: () => server.stop(true) }
}

const Answer = Type.Object({ n: Type.Number() })
const ask = (path: string, more: object = {}) =>
  createClient(path).request({ path: '/status', response: Answer, ...more })

test('goal: without a socket, and with one that has no daemon behind it, the message says which it is', async () => {
  const none = newSocket()
  expect(await failure(ask(none))).toMatchObject({
    code: 'admin.unreachable',
    message: `no daemon answers at ${none}: there is no such socket`,
  })
  const left = newSocket()
  // A daemon that was killed leaves its socket file behind.
  const killed = Bun.spawn([
    process.execPath,
    '-e',
    `Bun.serve({ unix: ${JSON.stringify(left)}, fetch: () => new Response() }); process.kill(process.pid, 'SIGKILL')`,
  ])
  await killed.exited
  expect(await failure(ask(left))).toMatchObject({
    code: 'admin.unreachable',
    message: `no daemon answers at ${left}: nothing listens on it`,
  })
})

test('goal: a daemon that does not answer in time, or cuts the connection, is said to', async () => {
  await using slow = daemon(async ({ signal }) => {
    await new Promise(resolve => signal.addEventListener('abort', resolve))
    return new Response()
  })
  expect(await failure(ask(slow.path, { timeoutMs: 20 }))).toMatchObject({
    code: 'admin.unreachable',
    message: `no daemon answers at ${slow.path}: no response in time`,
  })
  const path = newSocket()
  using cutting = Bun.listen({ unix: path, socket: { open: socket => void socket.terminate(), data: () => {} } })
  expect(cutting.unix).toBe(path)
  expect(await failure(ask(path))).toMatchObject({
    code: 'admin.unreachable',
    message: `no daemon answers at ${path}: the connection was cut`,
  })
})

test('goal: method, path, query and body are sent as the caller gives them; what is undefined is left out', async () => {
  await using rig = daemon(() => Response.json({ n: 7 }))
  expect(await ask(rig.path)).toEqual({ n: 7 })
  await ask(rig.path, { method: 'POST', path: '/a', query: { limit: 2, q: 'x y&z', not: undefined }, body: { a: 1 } })
  expect(rig.seen).toEqual([
    { method: 'GET', target: '/status', body: '' },
    { method: 'POST', target: '/a?limit=2&q=x+y%26z', body: '{"a":1}' },
  ])
})

test('goal: an error of the daemon keeps its code, message and field; one that is not known is internal', async () => {
  const answers = [
    Response.json({ error: { code: 'conflict', message: 'No.', param: 'slug' } }, { status: 409 }),
    Response.json({ error: { code: 'of_tomorrow', message: 'No.' } }, { status: 418 }),
    new Response('<html>', { status: 502 }),
    Response.json({ m: 7 }),
    new Response('{'),
  ]
  await using rig = daemon(() => answers.shift() ?? new Response())
  expect(await failure(ask(rig.path))).toMatchObject({ code: 'conflict', message: 'No.', param: 'slug' })
  expect(await failure(ask(rig.path))).toMatchObject({ code: 'internal', message: 'No.' })
  expect(await failure(ask(rig.path))).toMatchObject({
    code: 'internal',
    message: 'the daemon responded with status 502 and no known error',
  })
  for (let count = 0; count < 2; count += 1) {
    expect(await failure(ask(rig.path))).toMatchObject({
      code: 'internal',
      message: expect.stringContaining("the daemon's response is not as expected"),
    })
  }
})

test('goal: the read-only socket gets requests for states alone; what it does not answer goes to the other one', async () => {
  await using look = daemon(() => Response.json({ n: 1 }))
  await using all = daemon(() => Response.json({ n: 2 }))
  const from = async (path: string, more: object = {}, lookPath = look.path) =>
    (await createClient(all.path, lookPath).request({ path, response: Answer, ...more })).n
  expect(await from('/status')).toBe(1)
  expect(await from('/events')).toBe(2)
  expect(await from('/organizations', { method: 'POST' })).toBe(2)
  expect(await from('/status', {}, newSocket())).toBe(2)
  // An error of the daemon is an answer: the request does not go to the other socket.
  await using refusing = daemon(() => Response.json({ error: { code: 'forbidden', message: 'No.' } }, { status: 403 }))
  expect(await failure(from('/status', {}, refusing.path))).toMatchObject({ code: 'forbidden' })
})

test('goal: a stream has the bytes as they come, and one that is cut in the middle fails', async () => {
  await using rig = daemon(() => new Response('one two'))
  const read = async (path: string) => {
    const parts: Uint8Array[] = []
    for await (const part of createClient(path).stream({ path: '/instance/console' })) parts.push(part)
    return Buffer.concat(parts).toString()
  }
  expect(await read(rig.path)).toBe('one two')
  const path = newSocket()
  using cutting = Bun.listen({
    unix: path,
    socket: {
      data: socket => {
        socket.write('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf')
        socket.end()
      },
    },
  })
  expect(cutting.unix).toBe(path)
  const fault = await failure(read(path))
  expect(fault).toMatchObject({
    code: 'admin.unreachable',
    message: expect.stringContaining(`no daemon answers at ${path}`),
  })
  expect(remedyOf(fault)).not.toBe('')
})
