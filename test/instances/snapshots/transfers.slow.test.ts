// Goal: a transfer is for the one connection of its VM that names its token; every other one ends without a byte, and a
// broken one is a failure, never a short success.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { connect, createServer, type Socket } from 'node:net'
import { lastingPort } from '../../../scripts/rigs/free-port.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { Transfers } from '../../../src/instances/snapshots/transfers.ts'

const address = '127.0.0.1'
const token = 'c3'.repeat(32)
let transfers: Transfers
let port = 0
beforeEach(() => {
  port = lastingPort()
  transfers = new Transfers({ hostname: address, port, log: silentLogger })
})
afterEach(() => transfers.stop())

const never = new AbortController().signal
const expected = (change: object = {}) => ({ token, address, signal: never, ...change })

async function dial(): Promise<Socket> {
  for (;;) {
    const socket = connect({ port, host: address, allowHalfOpen: true })
    const isOpen = await new Promise<boolean>(resolve => {
      socket.once('connect', () => resolve(true))
      socket.once('error', () => resolve(false))
    })
    if (isOpen) return socket
    await Bun.sleep(10)
  }
}
/** All bytes until the other side closes. */
function readAll(socket: Socket): Promise<Buffer> {
  return new Promise(resolve => {
    const chunks: Buffer[] = []
    socket.on('data', chunk => chunks.push(chunk))
    socket.on('error', () => {})
    socket.on('close', () => resolve(Buffer.concat(chunks)))
    socket.on('end', () => socket.end())
  })
}
const collect = () => {
  const chunks: Uint8Array[] = []
  return { chunks, write: async (chunk: Uint8Array) => void chunks.push(Uint8Array.from(chunk)) }
}
const fails = (work: Promise<unknown>) =>
  work.then(
    () => 'succeeded',
    error => String(error.message),
  )

test('goal: bytes arrive in order and whole, however they are cut, also with a slow disk', async () => {
  const bytes = Buffer.from(Array.from({ length: 3_000_000 }, (_, at) => (at * 7) % 251))
  const { chunks, write } = collect()
  let isWriting = false
  const received = transfers.receive(expected(), async chunk => {
    expect(isWriting).toBeFalse()
    isWriting = true
    await write(chunk)
    if (chunks.length % 5 === 0) await Bun.sleep(1)
    isWriting = false
  })
  const socket = await dial()
  for (const piece of [token.slice(0, 10), token.slice(10), '\n']) {
    socket.write(piece)
    await Bun.sleep(5)
  }
  socket.end(bytes)
  await received
  expect(Buffer.concat(chunks).equals(bytes)).toBeTrue()
  expect(transfers.listening).toBeNull()
})

test('goal: a source is sent whole, and its failure breaks the connection', async () => {
  const source = async function* () {
    yield Buffer.alloc(1_000_000, 1)
    yield Buffer.alloc(10, 2)
  }
  const sent = transfers.send(expected(), source)
  const socket = await dial()
  const all = readAll(socket)
  socket.end(`${token}\n`)
  expect((await all).length).toBe(1_000_010)
  await sent
  const broken = async function* () {
    yield Buffer.alloc(10)
    throw new Error('the disk fails')
  }
  const failed = fails(transfers.send(expected(), broken))
  const second = await dial()
  const rest = readAll(second)
  second.end(`${token}\n`)
  expect(await failed).toBe('the disk fails')
  await rest
})

test('goal: another token, a cut one, another address and a second connection get nothing', async () => {
  const { chunks, write } = collect()
  const received = transfers.receive(expected(), write)
  for (const text of [
    `${'d4'.repeat(32)}\n`,
    `${token} `,
    `${token}x\n`,
    'GET / HTTP/1.1\r\nHost: a\r\n\r\n'.padEnd(80, ' '),
  ]) {
    const socket = await dial()
    const all = readAll(socket)
    socket.write(`${text}garbage`)
    expect((await all).length).toBe(0)
  }
  const first = await dial()
  first.write(`${token}\n`)
  first.write('mine')
  await until('the first is taken', 10_000, () => chunks.length > 0)
  const second = await dial()
  const all = readAll(second)
  second.write(`${token}\nyours`)
  expect((await all).length).toBe(0)
  first.end()
  await received
  expect(Buffer.concat(chunks).toString()).toBe('mine')
  const foreign = fails(transfers.receive(expected({ address: '192.0.2.7', signal: AbortSignal.timeout(500) }), write))
  const stranger = await dial()
  const nothing = readAll(stranger)
  stranger.end(`${token}\nforeign`)
  expect((await nothing).length).toBe(0)
  expect(await foreign).toContain('timed out')
})

test('goal: a reset connection, a full disk and an aborted signal are failures', async () => {
  const { chunks, write } = collect()
  const reset = fails(transfers.receive(expected(), write))
  const socket = await dial()
  socket.write(`${token}\nsome`)
  await until('bytes arrive', 10_000, () => chunks.length === 1)
  socket.resetAndDestroy()
  expect(await reset).not.toBe('succeeded')
  const full = fails(transfers.receive(expected(), () => Promise.reject(new Error('no room'))))
  const second = await dial()
  const closed = readAll(second)
  second.write(`${token}\nsome`)
  expect(await full).toBe('no room')
  await closed
  const stopping = new AbortController()
  const stopped = fails(transfers.receive(expected({ signal: stopping.signal }), write))
  const third = await dial()
  const ended = readAll(third)
  third.write(`${token}\nsome`)
  await until('bytes arrive', 10_000, () => chunks.length === 2)
  stopping.abort(new Error('the service stops'))
  expect(await stopped).toBe('the service stops')
  await ended
})

test('goal: one VM holds few connections that have not named a transfer', async () => {
  const received = fails(transfers.receive(expected({ signal: AbortSignal.timeout(1_500) }), async () => {}))
  const sockets = await Promise.all(Array.from({ length: 12 }, dial))
  let closed = 0
  for (const socket of sockets) {
    socket.on('error', () => {})
    socket.on('close', () => {
      closed += 1
    })
    socket.on('data', () => {})
    socket.on('end', () => socket.end())
  }
  await until('eight are closed', 10_000, () => closed === 8)
  await received
  for (const socket of sockets) socket.destroy()
})

test('goal: the end of one transfer leaves another alone, and the port closes behind the last that is expected', async () => {
  const { chunks, write } = collect()
  const other = 'e5'.repeat(32)
  const long = transfers.receive(expected({ token: other }), write)
  const slow = await dial()
  slow.write(`${other}\nfirst `)
  await until('the long one is taken', 10_000, () => chunks.length > 0)
  const short = transfers.receive(expected(), async () => {})
  const quick = await dial()
  quick.end(`${token}\nx`)
  await short
  expect(transfers.listening).toBeNull()
  slow.end('second')
  await long
  expect(Buffer.concat(chunks).toString()).toBe('first second')
})

test('goal: a VM that does not connect in time is a failure, and one that has connected is not cut off by it', async () => {
  const hasty = new Transfers({ hostname: address, port, log: silentLogger, connectTimeoutMs: 300 })
  try {
    expect(await fails(hasty.receive(expected(), async () => {}))).toContain('did not connect')
    const { chunks, write } = collect()
    const received = hasty.receive(expected(), write)
    const socket = await dial()
    socket.write(`${token}\nfirst `)
    await until('it is taken', 10_000, () => chunks.length > 0)
    await Bun.sleep(600)
    socket.end('second')
    await received
    expect(Buffer.concat(chunks).toString()).toBe('first second')
  } finally {
    hasty.stop()
  }
})

test('goal: a port in use is known until the port is free', async () => {
  const holder = createServer()
  await new Promise<void>(resolve => holder.listen(port, address, resolve))
  const received = transfers.receive(expected(), async () => {})
  await until('the port is known to be in use', 10_000, () => transfers.problem !== null)
  expect(transfers.problem).toContain('EADDRINUSE')
  await new Promise(resolve => holder.close(resolve))
  const socket = await dial()
  socket.end(`${token}\nx`)
  await received
  expect(transfers.problem).toBeNull()
})

test('goal: a VM that does not connect in time ends its transfer alone; one that has connected may take longer', async () => {
  const short = new Transfers({ hostname: address, port, log: silentLogger, connectTimeoutMs: 2_000 })
  const { chunks, write } = collect()
  const received = short.receive(expected(), write)
  const sent = fails(short.send(expected({ token: 'e5'.repeat(32) }), async function* () {}))
  const socket = await dial()
  socket.write(`${token}\nfirst `)
  expect(await sent).toContain('did not connect in time')
  socket.end('second')
  await received
  expect(Buffer.concat(chunks).toString()).toBe('first second')
  short.stop()
})
