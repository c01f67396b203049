// The client of the gateway's benchmark, the same for every target: bare sockets that keep their connection. Run by
// gateway.bench.ts, over IPC.

import { assert } from '../../../src/base/assert.ts'
import {
  frameOf,
  type Mode,
  requestBytes,
  type StubView,
  type Target,
  type Task,
  type TaskOrder,
  type TaskResult,
  talkMark,
  talkTimeChars,
  wallMs,
} from './wire.ts'

type Reply = { readonly firstDataMs: number; readonly endMs: number }

type Client = {
  /** One request to the end of its response. Rejects unless that has status 200 and is whole. */
  readonly ask: (request: Buffer) => Promise<Reply>
  /** Resolves at the first event of the response. */
  readonly begin: (request: Buffer) => Promise<void>
  readonly leave: () => void
}

class ConnectionClosed extends Error {
  constructor() {
    super('the connection was closed')
  }
}

const leaveWaitMs = 3_000
/** In one round of requests. */
const closedMax = 64
const openAtOnce = 50

const held: Pick<Client, 'leave'>[] = []
/** One of so many streams that talk is looked at. */
const sampledOf = 16
let lags: number[] = []

process.on('message', (message: TaskOrder) => {
  run(message.target, message.task).then(
    values => report({ id: message.id, values }),
    error => report({ id: message.id, error: `${message.task.kind} at ${message.target.name}: ${error}` }),
  )
})

function report(result: TaskResult): void {
  process.send?.(result)
}

async function run(target: Target, task: Task): Promise<number[]> {
  switch (task.kind) {
    case 'rate':
      return await measureRate(target, task)
    case 'firstChunk':
      return await measureFirstChunks(target, task)
    case 'hold':
      return await hold(target, task.count)
    case 'talk':
      return await talk(target, task.count)
    case 'lags': {
      const taken = lags
      lags = []
      return taken
    }
    case 'release':
      for (const client of held.splice(0)) client.leave()
      return []
    case 'leave':
      return await measureLeaving(target, task)
  }
}

/** Sends so many requests in all: a slow machine takes longer and measures as much. */
async function measureRate(target: Target, { connections, requests }: { connections: number; requests: number }) {
  const request = requestBytes(target, 'plain')
  const clients = await connectAll(target, connections)
  const times: number[] = []
  let closedCount = 0
  let left = requests
  const startedMs = performance.now()
  await Promise.all(
    clients.map(async first => {
      let client = first
      while (left > 0) {
        left -= 1
        try {
          const sentMs = performance.now()
          const reply = await client.ask(request)
          times.push(reply.endMs - sentMs)
        } catch (error) {
          // A server may close a connection that is kept; one that does so with many of its requests is not measured.
          closedCount += 1
          if (!(error instanceof ConnectionClosed) || closedCount > closedMax) throw error
          client = await connect(target)
        }
      }
      client.leave()
    }),
  )
  const tookMs = performance.now() - startedMs
  times.sort((a, b) => a - b)
  const at = (share: number) => times[Math.floor(share * (times.length - 1))] ?? Number.NaN
  return [times.length, tookMs, at(0.5), at(0.99), closedCount]
}

async function measureFirstChunks(target: Target, task: { mode: Mode; connections: number; repeats: number }) {
  const request = requestBytes(target, task.mode)
  const clients = await connectAll(target, task.connections)
  const times: number[] = []
  await Promise.all(
    clients.map(async (client, index) => {
      // Streams begin all over the time that one takes, not at once.
      await Bun.sleep((200 * index) / task.connections)
      for (let i = 0; i < task.repeats; i += 1) {
        const sentMs = performance.now()
        const { firstDataMs } = await client.ask(request)
        times.push(firstDataMs - sentMs)
      }
    }),
  )
  for (const client of clients) client.leave()
  return times
}

async function hold(target: Target, count: number): Promise<number[]> {
  const request = requestBytes(target, 'idle')
  while (held.length < count) {
    const clients = await connectAll(target, Math.min(openAtOnce, count - held.length))
    await Promise.all(clients.map(client => client.begin(request)))
    held.push(...clients)
  }
  return []
}

async function talk(target: Target, count: number): Promise<number[]> {
  const request = requestBytes(target, 'talk')
  while (held.length < count) {
    const begins = Array.from({ length: Math.min(openAtOnce, count - held.length) }, (_, at) =>
      listen(target, request, (held.length + at) % sampledOf === 0),
    )
    held.push(...(await Promise.all(begins)))
  }
  return []
}

/** A stream that sends. Reads only the times of chunks, and those only where it is sampled, so that it costs little. */
async function listen(target: Target, request: Buffer, isSampled: boolean): Promise<Pick<Client, 'leave'>> {
  const begun = Promise.withResolvers<void>()
  let isBegun = false
  const socket = await open(target, {
    onData: bytes => {
      if (!isBegun) {
        isBegun = true
        const status = bytes.toString('latin1', 0, 'HTTP/1.1 200'.length)
        if (status !== 'HTTP/1.1 200') begun.reject(new Error(`not answered: ${bytes.toString()}`))
        else begun.resolve()
      } else if (isSampled) noteLags(bytes)
    },
    onError: error => begun.reject(error),
  })
  assert(socket.write(request) === request.length, 'a request fits into the socket')
  await begun.promise
  return { leave: socket.leave }
}

/** A time that is cut by the end of the bytes is passed over. */
function noteLags(bytes: Buffer): void {
  const nowMs = wallMs()
  for (let at = bytes.indexOf(talkMark); at >= 0; at = bytes.indexOf(talkMark, at + 1)) {
    const start = at + talkMark.length
    if (start + talkTimeChars > bytes.length) return
    lags.push(nowMs - Number(bytes.toString('latin1', start, start + talkTimeChars)))
  }
}

type Leaving = { readonly mode: Mode; readonly count: number; readonly stubPort: number }

async function measureLeaving(target: Target, { mode, count, stubPort }: Leaving): Promise<number[]> {
  const times: number[] = []
  for (let i = 0; i < count; i += 1) {
    const before = (await stubView(stubPort)).leftAtMs.length
    const [client] = await connectAll(target, 1)
    assert(client !== undefined, 'a connection was made')
    void client.begin(requestBytes(target, mode)).catch(() => {})
    await untilStub(stubPort, view => view.running === 1)
    await Bun.sleep(10)
    const goneMs = wallMs()
    client.leave()
    const { leftAtMs } = await untilStub(stubPort, view => view.leftAtMs.length > before)
    times.push((leftAtMs.at(-1) ?? Number.NaN) - goneMs)
  }
  return times
}

async function stubView(port: number): Promise<StubView> {
  return (await (await fetch(`http://127.0.0.1:${port}/left`)).json()) as StubView
}

async function untilStub(port: number, isSo: (view: StubView) => boolean): Promise<StubView> {
  const endMs = performance.now() + leaveWaitMs
  while (performance.now() < endMs) {
    const view = await stubView(port)
    if (isSo(view)) return view
    await Bun.sleep(2)
  }
  throw new Error('the stub did not see in time what it should')
}

function connectAll(target: Target, count: number): Promise<Client[]> {
  return Promise.all(Array.from({ length: count }, () => connect(target)))
}

type Waiting = {
  readonly onData: () => void
  readonly onEnd: (reply: Reply) => void
  readonly onError: (error: Error) => void
}

type Handlers = { readonly onData: (bytes: Buffer) => void; readonly onError: (error: Error) => void }

type Connection = { readonly write: (bytes: Buffer) => number; readonly leave: () => void }

/** Resolves once requests can be written: with TLS after the handshake, before which Bun takes nothing. */
async function open({ port, isTls }: Target, { onData, onError }: Handlers): Promise<Connection> {
  const secured = isTls ? Promise.withResolvers<void>() : null
  const fail = (error: Error) => {
    secured?.reject(error)
    onError(error)
  }
  const socket = await Bun.connect({
    hostname: '127.0.0.1',
    port,
    ...(isTls ? { tls: { rejectUnauthorized: false } } : {}),
    socket: {
      handshake: () => secured?.resolve(),
      data: (_socket, bytes) => onData(bytes),
      close: () => fail(new ConnectionClosed()),
      error: (_socket, error) => fail(error),
    },
  })
  await secured?.promise
  return {
    write: bytes => socket.write(bytes),
    // With TLS `end` says only that no more requests come: the response would go on.
    leave: () => void (isTls ? socket.terminate() : socket.end()),
  }
}

async function connect(target: Target): Promise<Client> {
  let kept: Buffer | null = null
  let firstDataMs = 0
  let waiting: Waiting | null = null
  let isClosed = false
  const take = (chunk: Buffer) => {
    const bytes = kept === null ? chunk : Buffer.concat([kept, chunk])
    const frame = frameOf(bytes)
    kept = bytes
    if (frame === null || waiting === null) return
    if (!frame.head.startsWith('HTTP/1.1 200')) return waiting.onError(new Error(`not answered: ${bytes.toString()}`))
    if (firstDataMs === 0 && bytes.length > frame.bodyStart) {
      firstDataMs = performance.now()
      waiting.onData()
    }
    if (frame.end < 0) return
    kept = null
    const reply = { firstDataMs, endMs: performance.now() }
    firstDataMs = 0
    waiting.onEnd(reply)
  }
  const socket = await open(target, {
    // Copied: Bun reuses the buffer, and a response in several parts has to be kept.
    onData: chunk => take(Buffer.from(chunk)),
    onError: error => {
      isClosed ||= error instanceof ConnectionClosed
      waiting?.onError(error)
    },
  })
  return {
    ask: request =>
      new Promise((onEnd, onError) => {
        if (isClosed) return onError(new ConnectionClosed())
        waiting = { onData: () => {}, onEnd, onError }
        assert(socket.write(request) === request.length, 'a request fits into the socket')
      }),
    begin: request =>
      new Promise((onData, onError) => {
        waiting = { onData, onEnd: () => {}, onError }
        assert(socket.write(request) === request.length, 'a request fits into the socket')
      }),
    leave: () => {
      waiting = null
      socket.leave()
    },
  }
}
