// Messages between the processes of the gateway's benchmark, and the HTTP/1.1 that client and stub speak. Pure.

/** How the stub answers, by a word in the request's `user` field. */
export const MODES = {
  /** At once, as JSON. */
  plain: { stream: false, chunkCount: 0, gapMs: 0, ends: true },
  /** A few chunks soon after each other. */
  short: { stream: true, chunkCount: 3, gapMs: 4, ends: true },
  /** As a model talks. */
  paced: { stream: true, chunkCount: 10, gapMs: 20, ends: true },
  /** One chunk and then nothing. */
  idle: { stream: true, chunkCount: 1, gapMs: 0, ends: false },
  /** A chunk of 276 bytes every 20 ms, until the client leaves. */
  talk: { stream: true, chunkCount: 1, gapMs: 20, ends: false },
  /** Nothing at all. */
  silentStream: { stream: true, chunkCount: 0, gapMs: 0, ends: false },
  silentPlain: { stream: false, chunkCount: 0, gapMs: 0, ends: false },
} as const satisfies Record<string, ModeRow>

type ModeRow = {
  readonly stream: boolean
  readonly chunkCount: number
  readonly gapMs: number
  readonly ends: boolean
}
export type Mode = keyof typeof MODES

/** Stands before the mode. */
export const modeMark = 'stub-answers:'
export const benchModel = 'bench'

/** Before the time at which a chunk of `talk` was sent, which has this many digits and a point. */
export const talkMark = 't='
export const talkTimeChars = 17
export const talkChunkBytes = 276

/** A stub's own counts. */
export type StubView = { readonly leftAtMs: readonly number[]; readonly running: number; readonly chunks: number }

export type Target = {
  readonly name: string
  readonly port: number
  readonly headers: Readonly<Record<string, string>>
  /** Its certificate is not looked at. */
  readonly isTls: boolean
}

/** Files of a certificate for 127.0.0.1 and its key. */
export type PairFiles = { readonly certFile: string; readonly keyFile: string }

/** Settings of a gateway under measurement. */
export type OursSettings = {
  readonly stateDir: string
  readonly stubPort: number
  /** Null for one process with plain HTTP and a bare listener instead of the gateway's own. */
  readonly listener: OwnListener | null
  /** postgres://… of the fleet that it is in; null means alone. */
  readonly fleetDatabase: string | null
}

export type OwnListener = {
  readonly processes: number
  /** Null for plain HTTP. */
  readonly pair: PairFiles | null
}

export type Task =
  | { readonly kind: 'rate'; readonly connections: number; readonly requests: number }
  | { readonly kind: 'firstChunk'; readonly mode: Mode; readonly connections: number; readonly repeats: number }
  /** Opens streams that stay until `release`. */
  | { readonly kind: 'hold'; readonly count: number }
  /** As `hold`, with streams that talk. */
  | { readonly kind: 'talk'; readonly count: number }
  /** How late chunks were since the last call. */
  | { readonly kind: 'lags' }
  | { readonly kind: 'release' }
  /** Leaves one request after the other, and asks the stub when it saw that. */
  | { readonly kind: 'leave'; readonly mode: Mode; readonly count: number; readonly stubPort: number }

export type TaskOrder = { readonly id: number; readonly target: Target; readonly task: Task }
/**
 * `values`: for a rate the answered requests, the milliseconds that all of them took, those of the 50th and the 99th
 * percentile, and connections that were closed and made again; else milliseconds, one for each request.
 */
export type TaskResult =
  | { readonly id: number; readonly values: number[] }
  | { readonly id: number; readonly error: string }

/** One chat request of about a kilobyte. */
export function requestBytes(target: Target, mode: Mode): Buffer {
  const sentence = 'The quick brown fox jumps over the lazy dog while the model reads what it was told before. '
  const body = JSON.stringify({
    model: benchModel,
    messages: [
      { role: 'system', content: 'You are a helpful assistant.' },
      { role: 'user', content: sentence.repeat(9) },
    ],
    temperature: 0.7,
    max_tokens: 256,
    user: `${modeMark}${mode};`,
    stream: MODES[mode].stream,
  })
  const head = [
    'POST /v1/chat/completions HTTP/1.1',
    `Host: 127.0.0.1:${target.port}`,
    'Content-Type: application/json',
    `Content-Length: ${body.length}`,
    ...Object.entries(target.headers).map(([name, value]) => `${name}: ${value}`),
  ]
  return Buffer.from(`${head.join('\r\n')}\r\n\r\n${body}`)
}

export type Frame = { readonly head: string; readonly bodyStart: number; readonly end: number }

/** The first message in these bytes; null until it is whole. `end` is -1 while a body is under way. */
export function frameOf(bytes: Buffer): Frame | null {
  const headEnd = bytes.indexOf('\r\n\r\n')
  if (headEnd < 0) return null
  const head = bytes.toString('latin1', 0, headEnd)
  const bodyStart = headEnd + 4
  const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1]
  if (length !== undefined) {
    const end = bodyStart + Number(length)
    return { head, bodyStart, end: bytes.length >= end ? end : -1 }
  }
  if (!/\r\ntransfer-encoding: *chunked/i.test(head)) return { head, bodyStart, end: bodyStart }
  return { head, bodyStart, end: bytes.toString('latin1', bytes.length - 5) === '0\r\n\r\n' ? bytes.length : -1 }
}

/** Comparable between processes of one machine. */
export function wallMs(): number {
  return performance.timeOrigin + performance.now()
}
