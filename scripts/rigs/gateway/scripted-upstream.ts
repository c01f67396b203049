// An upstream on bare sockets that answers each request by a script: pieces of bytes with gaps, then the connection is
// kept, held or cut. Effects: a port.

import type { Socket } from 'bun'
import { EMBEDDING_MODEL } from './embeddings-upstream.ts'

export type ReceivedRequest = { readonly path: string; readonly body: Record<string, unknown> }

export type Script = {
  readonly pieces: readonly (string | Uint8Array)[]
  readonly gapMs: number
  /** `keep`: the answer is whole, and another request may come. `hold`: nothing more until the gateway leaves. */
  readonly ending: 'keep' | 'hold' | 'cut'
  /** The gateway has closed the connection before all was sent, or while it was held. */
  readonly onGone?: () => void
}

export type ScriptedUpstream = AsyncDisposable & {
  readonly port: number
  /** Connections that are open. */
  readonly open: () => number
  /** Number of connections with an unfinished request. */
  readonly busy: () => number
}

type Connection = { kept: Buffer | null; script: Script | null; timer: Timer | null }

export function startScriptedUpstream(answer: (asked: ReceivedRequest) => Script): ScriptedUpstream {
  const sockets = new Set<Socket<Connection>>()
  const run = (socket: Socket<Connection>, script: Script) => {
    const { data } = socket
    data.script = script
    let at = 0
    const step = () => {
      data.timer = null
      const piece = script.pieces[at]
      if (piece !== undefined) socket.write(piece)
      at += 1
      if (at < script.pieces.length) data.timer = setTimeout(step, script.gapMs)
      else if (script.ending === 'keep') data.script = null
      else if (script.ending === 'cut') {
        data.script = null
        socket.terminate()
      }
    }
    step()
  }
  const server = Bun.listen<Connection>({
    hostname: '127.0.0.1',
    port: 0,
    socket: {
      open: socket => {
        socket.data = { kept: null, script: null, timer: null }
        sockets.add(socket)
      },
      data: (socket, bytes) => {
        const { data } = socket
        data.kept = data.kept === null ? Buffer.from(bytes) : Buffer.concat([data.kept, bytes])
        const asked = requestIn(data.kept)
        if (asked === null) return
        data.kept = null
        if (asked.path.endsWith('/models')) socket.write(jsonAnswer(200, { object: 'list', data: [] }))
        else run(socket, answer(asked))
      },
      close: socket => {
        sockets.delete(socket)
        const { data } = socket
        if (data.timer !== null) clearTimeout(data.timer)
        const { script } = data
        data.script = null
        script?.onGone?.()
      },
      error: () => {},
    },
  })
  return {
    port: server.port,
    open: () => sockets.size,
    busy: () => [...sockets].filter(({ data }) => data.script !== null).length,
    [Symbol.asyncDispose]: async () => server.stop(true),
  }
}

/** Null until it is whole. The gateway sends the lengths of its bodies. */
function requestIn(bytes: Buffer): ReceivedRequest | null {
  const headEnd = bytes.indexOf('\r\n\r\n')
  if (headEnd < 0) return null
  const head = bytes.toString('latin1', 0, headEnd)
  const length = Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0)
  if (bytes.length < headEnd + 4 + length) return null
  const text = bytes.toString('utf8', headEnd + 4)
  return { path: head.split(' ')[1] ?? '', body: length === 0 ? {} : JSON.parse(text) }
}

export type Counts = { readonly prompt: number; readonly completion: number }

function usageOf({ prompt, completion }: Counts) {
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion }
}

export function jsonAnswer(status: number, value: unknown, more = ''): string {
  const body = JSON.stringify(value)
  const length = Buffer.byteLength(body)
  return `HTTP/1.1 ${status} X\r\ncontent-type: application/json\r\ncontent-length: ${length}\r\n${more}\r\n${body}`
}

/** Null for no counts. */
export function completionAnswer(content: string, counts: Counts | null): string {
  const choice = { index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }
  const usage = counts === null ? {} : { usage: usageOf(counts) }
  return jsonAnswer(200, { id: 'x', object: 'chat.completion', choices: [choice], ...usage })
}

export function embeddingsAnswer(count: number, prompt: number): string {
  const embedding = Buffer.from(new Float32Array([0.5, -1, 2, 4]).buffer).toString('base64')
  const data = Array.from({ length: count }, (_, index) => ({ object: 'embedding', index, embedding }))
  const usage = { prompt_tokens: prompt, total_tokens: prompt }
  return jsonAnswer(200, { object: 'list', model: EMBEDDING_MODEL, data, usage })
}

export const streamHead = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n'

export function chunked(text: string): string {
  return `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`
}

export function contentEvent(content: string): string {
  return chunkEvent([{ index: 0, delta: { content }, finish_reason: null }])
}

/** The last choice's end, and the count. */
export function endEvents(counts: Counts | null): string {
  const end = chunkEvent([{ index: 0, delta: {}, finish_reason: 'stop' }])
  return counts === null ? end : end + chunkEvent([], { usage: usageOf(counts) })
}

export const streamEnd = `${chunked('data: [DONE]\n\n')}0\r\n\r\n`

function chunkEvent(choices: readonly unknown[], more: object = {}): string {
  const event = { id: 'x', object: 'chat.completion.chunk', created: 5, model: 'x', choices, ...more }
  return `data: ${JSON.stringify(event)}\n\n`
}
