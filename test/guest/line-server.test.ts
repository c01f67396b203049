// One line in, one line out, from programs of a VM that may be hostile.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { until } from '../../scripts/rigs/until.ts'
import { type Logger, silentLogger } from '../../src/base/log.ts'
import { serveLines } from '../../src/guest/line-server.ts'

const dir = mkdtempSync(join(tmpdir(), 'line-server-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))
let count = 0

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString()

function serve(answer: (request: Uint8Array) => Promise<unknown>, requestBytesMax = 16) {
  count += 1
  const path = join(dir, `${count}.sock`)
  const errors: unknown[] = []
  const log: Logger = { ...silentLogger, error: (message, fields) => void errors.push([message, fields]) }
  const server = serveLines({ path, what: 'a socket', requestBytesMax, answer, log })
  return { path, errors, [Symbol.dispose]: () => server[Symbol.dispose]() }
}

async function opened(path: string): Promise<Socket> {
  const socket = connect(path)
  await new Promise((resolve, reject) => socket.once('connect', resolve).once('error', reject))
  return socket
}

/** All that comes back until an LF, or the end. */
async function said(socket: Socket): Promise<string> {
  let all = ''
  for await (const chunk of socket) {
    all += String(chunk)
    if (all.endsWith('\n')) break
  }
  socket.destroy()
  return all
}

async function ask(path: string, request: string): Promise<string> {
  const socket = await opened(path)
  socket.write(request)
  return await said(socket)
}

test('goal: anybody in the VM asks once by a line or by as many bytes as a request may have', async () => {
  const asked: string[] = []
  using server = serve(async request => {
    asked.push(text(request))
    return { of: request.length }
  })
  expect(statSync(server.path).mode & 0o777).toBe(0o666)
  expect(await ask(server.path, 'one\ntwo\n')).toBe('{"of":4}\n')
  expect(await ask(server.path, 'x'.repeat(100_000))).toBe('{"of":16}\n')
  const slow = await opened(server.path)
  for (const piece of ['a', 'b', '\n', 'c\n']) slow.write(piece)
  expect(await said(slow)).toBe('{"of":3}\n')
  expect(asked).toEqual(['one\n', 'x'.repeat(16), 'ab\n'])
})

test('goal: an answer of any size arrives whole', async () => {
  // 8 MB is more than a socket takes at once.
  using server = serve(async () => 'y'.repeat(8_000_000))
  expect((await ask(server.path, '\n')).length).toBe(8_000_003)
})

test('goal: an answer that fails ends its connection, is told in the log, and is no end of the others', async () => {
  using server = serve(async request => {
    if (text(request) === 'bad\n') throw new Error('no such thing')
    return 'good'
  })
  expect(await ask(server.path, 'bad\n')).toBe('')
  expect(server.errors).toEqual([['a socket: no answer', { reason: 'no such thing' }]])
  expect(await ask(server.path, 'ok\n')).toBe('"good"\n')
})

test('goal: connections beyond the bound are closed unheard, and there is room again once others end', async () => {
  let asked = 0
  const never = new Promise<unknown>(() => {})
  using server = serve(request => {
    asked += 1
    return text(request) === 'held\n' ? never : Promise.resolve('good')
  })
  const held = await Promise.all(Array.from({ length: 16 }, () => opened(server.path)))
  for (const socket of held) socket.write('held\n')
  await until('all have asked', 15_000, () => asked === 16)
  expect(await ask(server.path, 'ok\n').catch(() => '')).toBe('')
  expect(asked).toBe(16)
  for (const socket of held) socket.destroy()
  await until('there is room', 15_000, async () => (await ask(server.path, 'ok\n').catch(() => '')) === '"good"\n')
})

test('goal: a socket that cannot be opened is told, and nothing else ends', () => {
  const errors: unknown[] = []
  const log: Logger = { ...silentLogger, error: message => void errors.push(message) }
  const path = join(dir, 'missing', 'a.sock')
  using _none = serveLines({ path, what: 'a socket', requestBytesMax: 1, answer: async () => null, log })
  expect(errors).toEqual(['a socket does not open'])
})
