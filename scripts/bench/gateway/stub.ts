// An OpenAI-dialect upstream that costs as little as can be: bare sockets, responses made beforehand. Run by
// gateway.bench.ts; writes its port.

import type { Socket } from 'bun'
import {
  benchModel,
  frameOf,
  MODES,
  type Mode,
  modeMark,
  type StubView,
  talkChunkBytes,
  talkMark,
  wallMs,
} from './wire.ts'

type Connection = { kept: Buffer | null; mode: Mode | null; timer: Timer | null; unsent: Buffer | null }

/** When clients left in the middle of a response, in order. */
const leftAtMs: number[] = []
let running = 0

const plain = jsonResponse({
  id: 'chatcmpl-upstream',
  object: 'chat.completion',
  created: 1_790_000_000,
  model: benchModel,
  choices: [
    {
      index: 0,
      message: { role: 'assistant', content: 'The answer is as long as answers are. '.repeat(16) },
      logprobs: null,
      finish_reason: 'stop',
    },
  ],
  usage: { prompt_tokens: 200, completion_tokens: 128, total_tokens: 328 },
})
const streamHead = [
  'HTTP/1.1 200 OK',
  'Content-Type: text/event-stream',
  'Cache-Control: no-cache',
  // nginx's own name for "pass on at once".
  'X-Accel-Buffering: no',
  'Transfer-Encoding: chunked',
].join('\r\n')
const firstPiece = `${streamHead}\r\n\r\n${piece(event({ role: 'assistant', content: 'token' }, null))}`
const nextPiece = Buffer.from(piece(event({ content: ' token' }, null)))
const lastPiece = Buffer.from(`${piece(`${event({}, 'stop')}${usageEvent()}data: [DONE]\n\n`)}0\r\n\r\n`)
const first = Buffer.from(firstPiece)

const server = Bun.listen<Connection>({
  hostname: '127.0.0.1',
  port: 0,
  socket: {
    open: socket => {
      socket.data = { kept: null, mode: null, timer: null, unsent: null }
    },
    data: (socket, chunk) => {
      const { data } = socket
      data.kept = data.kept === null ? Buffer.from(chunk) : Buffer.concat([data.kept, chunk])
      const frame = frameOf(data.kept)
      if (frame === null || frame.end < 0) return
      const bytes = data.kept
      data.kept = null
      answer(socket, frame.head, bytes)
    },
    drain: socket => {
      const { unsent } = socket.data
      socket.data.unsent = null
      if (unsent !== null) sendChunk(socket, unsent)
    },
    close: socket => {
      const { data } = socket
      for (const group of talking) group.delete(socket)
      if (data.timer !== null) clearInterval(data.timer)
      if (data.mode === null) return
      running -= 1
      leftAtMs.push(wallMs())
    },
    error: () => {},
  },
})
process.stdout.write(`${server.port}\n`)

function answer(socket: Socket<Connection>, head: string, bytes: Buffer): void {
  if (head.startsWith('GET /left '))
    return void socket.write(jsonResponse({ leftAtMs, running, chunks } satisfies StubView))
  if (head.startsWith('GET ')) return void socket.write(jsonResponse({ object: 'list', data: [] }))
  const at = bytes.indexOf(modeMark) + modeMark.length
  const mode = bytes.toString('latin1', at, bytes.indexOf(';', at)) as Mode
  if (mode === 'plain') return void socket.write(plain)
  talk(socket, mode)
}

function talk(socket: Socket<Connection>, mode: Mode): void {
  const { data } = socket
  const { chunkCount, gapMs, ends } = MODES[mode]
  data.mode = mode
  running += 1
  if (chunkCount > 0) socket.write(first)
  if (mode === 'talk') begin(socket)
  if (!ends) return
  let left = chunkCount - 1
  data.timer = setInterval(() => {
    left -= 1
    if (left > 0) return void socket.write(nextPiece)
    if (data.timer !== null) clearInterval(data.timer)
    data.timer = null
    data.mode = null
    running -= 1
    socket.write(lastPiece)
  }, gapMs)
}

/** Streams that talk at the same time: one chunk is made for all of them. */
const talking = Array.from({ length: MODES.talk.gapMs }, () => new Set<Socket<Connection>>())
let begun = 0
let chunks = 0
let tickMs = 0

function begin(socket: Socket<Connection>): void {
  if (begun === 0) {
    tickMs = performance.now()
    setInterval(tick, 1)
  }
  talking[begun % talking.length]?.add(socket)
  begun += 1
}

/** One turn for each millisecond that has passed. */
function tick(): void {
  for (; tickMs <= performance.now(); tickMs += 1) {
    const sockets = talking[Math.floor(tickMs) % talking.length]
    if (sockets === undefined || sockets.size === 0) continue
    const bytes = Buffer.from(piece(talkEvent()))
    for (const socket of sockets) {
      // A connection whose last response is still unsent gets no other.
      if (socket.data.unsent !== null) continue
      chunks += 1
      sendChunk(socket, bytes)
    }
  }
}

function sendChunk(socket: Socket<Connection>, bytes: Buffer): void {
  const sent = Math.max(0, socket.write(bytes))
  if (sent < bytes.length) socket.data.unsent = bytes.subarray(sent)
}

function talkEvent(): string {
  const content = `${talkMark}${wallMs().toFixed(3)}`
  const bare = event({ content }, null)
  return event({ content: content + '.'.repeat(talkChunkBytes - bare.length) }, null)
}

function jsonResponse(value: unknown): Buffer {
  const body = JSON.stringify(value)
  return Buffer.from(
    `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  )
}

function event(delta: unknown, finish: string | null): string {
  const choices = [{ index: 0, delta, logprobs: null, finish_reason: finish }]
  return chunkEvent({ choices })
}

function usageEvent(): string {
  return chunkEvent({ choices: [], usage: { prompt_tokens: 200, completion_tokens: 10, total_tokens: 210 } })
}

function chunkEvent(fields: object): string {
  const head = { id: 'chatcmpl-upstream', object: 'chat.completion.chunk', created: 1_790_000_000, model: benchModel }
  return `data: ${JSON.stringify({ ...head, ...fields })}\n\n`
}

function piece(text: string): string {
  return `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`
}
