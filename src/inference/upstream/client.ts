// Asks OpenAI-compatible servers behind the gateway, over connections that are kept for the next request. Effects: network.
//
// Nothing of the client's headers goes up, and no word of an upstream's failure comes down.

import type { Deadlines } from '../../base/deadlines.ts'
import { Fault } from '../../base/fault.ts'
import { type Connection, connect, type Dial, type UpstreamAnswer } from './connection.ts'
import { UpstreamFault } from './fault.ts'
import { type Endpoint, endpointOf, type UpstreamTarget } from './target.ts'

export type UpstreamTimeouts = { readonly connectMs: number; readonly firstByteMs: number }

/** One try at one upstream. Ends with the client, by a deadline or by itself. */
export type Attempt = {
  readonly isOver: () => boolean
  readonly abort: () => void
  /** Who is to hear of its end, instead of whoever was before; at once when it is over. */
  readonly onAbort: (listener: () => void) => void
}

export type UpstreamRequest = {
  /** Below the target's base address. */
  readonly path: string
  /** JSON. */
  readonly body: string
  readonly stream: boolean
  readonly attempt: Attempt
}

export type UpstreamClient = {
  /** An answer with status 200 and the right type. UpstreamFault; Fault invalid_request when it refuses the request. */
  readonly send: (target: UpstreamTarget, request: UpstreamRequest) => Promise<UpstreamAnswer>
  /** Whether it can be reached and lists models. */
  readonly probe: (target: UpstreamTarget, signal: AbortSignal) => Promise<boolean>
  /** Closes what is idle. */
  readonly close: () => void
}

const probeTimeoutMs = 5_000
/** Connections that are kept for one target when nobody needs them. */
const idleMax = 256

export function openAttempt(): Attempt {
  let isOver = false
  let listener: (() => void) | null = null
  return {
    isOver: () => isOver,
    abort: () => {
      if (isOver) return
      isOver = true
      listener?.()
    },
    onAbort: next => {
      listener = next
      if (isOver) next()
    },
  }
}

/** What is known of a target besides its configuration. */
type Line = { readonly endpoint: Endpoint; readonly idle: Connection[]; readonly heads: Map<string, string> }

export function createUpstreamClient(deps: { deadlines: Deadlines; timeouts: UpstreamTimeouts }): UpstreamClient {
  const { deadlines, timeouts } = deps
  const lines = new Map<UpstreamTarget, Line>()
  let isClosed = false

  const lineOf = (target: UpstreamTarget): Line => {
    const known = lines.get(target)
    if (known !== undefined) return known
    const line = { endpoint: endpointOf(target), idle: [], heads: new Map() }
    lines.set(target, line)
    return line
  }
  const dial = ({ endpoint, idle }: Line) =>
    connect(endpoint, {
      deadlines,
      connectTimeoutMs: timeouts.connectMs,
      onIdle: connection => {
        if (isClosed || idle.length >= idleMax) connection.close()
        else idle.push(connection)
      },
      onClose: connection => {
        const at = idle.lastIndexOf(connection)
        if (at >= 0) idle.splice(at, 1)
      },
    })

  const ask = async (
    connection: Connection,
    bytes: Buffer,
    { attempt, timeoutMs }: Waiting,
  ): Promise<UpstreamAnswer> => {
    let isLate = false
    attempt.onAbort(connection.close)
    const answered = deadlines.after(timeoutMs, () => {
      isLate = true
      attempt.abort()
    })
    try {
      const answer = await connection.ask(bytes)
      attempt.onAbort(answer.abort)
      return answer
    } catch (error) {
      throw isLate ? new UpstreamFault('first_byte_timeout') : error
    } finally {
      answered()
    }
  }

  /**
   * On a kept connection if there is one. If that turns out to be closed, no byte of an answer having come, on a new one: most likely it was
   * closed before the request came, and a completion that is asked for twice costs no more than its work.
   */
  const askKept = async (line: Line, bytes: Buffer, waiting: Waiting): Promise<UpstreamAnswer> => {
    const kept = line.idle.pop()
    if (kept !== undefined) {
      try {
        return await ask(kept, bytes, waiting)
      } catch (error) {
        const isStale = error instanceof UpstreamFault && error.reason === 'unreachable'
        if (!isStale || waiting.attempt.isOver()) throw error
      }
    }
    return await ask(await opened(dial(line), waiting.attempt), bytes, waiting)
  }

  return {
    send: async (target, { path, body, stream, attempt }) => {
      const line = lineOf(target)
      const accept = stream ? 'text/event-stream' : 'application/json'
      const key = `${accept} ${path}`
      const head = line.heads.get(key) ?? headOf(target, line.endpoint, { path, accept })
      line.heads.set(key, head)
      const bytes = Buffer.from(`${head}${Buffer.byteLength(body)}\r\n\r\n${body}`)
      const answer = await askKept(line, bytes, { attempt, timeoutMs: timeouts.firstByteMs })
      checkHead(answer, accept)
      return answer
    },
    probe: async (target, signal) => {
      const line = lineOf(target)
      const attempt = openAttempt()
      signal.addEventListener('abort', attempt.abort, { once: true })
      try {
        const bytes = Buffer.from(`${lead(target, line.endpoint, 'GET', '/models')}accept: application/json\r\n\r\n`)
        const connection = await opened(dial(line), attempt)
        const answer = await ask(connection, bytes, { attempt, timeoutMs: probeTimeoutMs })
        connection.close()
        return answer.head.status === 200
      } finally {
        signal.removeEventListener('abort', attempt.abort)
      }
    },
    close: () => {
      isClosed = true
      for (const { idle } of lines.values()) for (const connection of [...idle]) connection.close()
    },
  }
}

type Waiting = { readonly attempt: Attempt; readonly timeoutMs: number }

/** A POST's head up to the length of its body. */
function headOf(
  target: UpstreamTarget,
  endpoint: Endpoint,
  { path, accept }: { path: string; accept: string },
): string {
  return `${lead(target, endpoint, 'POST', path)}accept: ${accept}\r\ncontent-type: application/json\r\ncontent-length: `
}

function lead(target: UpstreamTarget, { host, basePath }: Endpoint, method: string, path: string): string {
  const lines = [
    `${method} ${basePath}${path} HTTP/1.1`,
    `host: ${host}`,
    // Compressed answers would have to be expanded, within limits of their own.
    'accept-encoding: identity',
    'user-agent: strongroom',
    ...(target.key === null ? [] : [`authorization: Bearer ${target.key}`]),
  ]
  return `${lines.join('\r\n')}\r\n`
}

function checkHead({ head, abort }: UpstreamAnswer, accept: string): void {
  const give = (error: Error): never => {
    abort()
    throw error
  }
  const { status } = head
  if (status === 400 || status === 413 || status === 422) {
    give(new Fault('invalid_request', 'The model does not take this request: it may be too long for it.'))
  }
  if (status !== 200) give(new UpstreamFault('status'))
  if (head.contentType !== accept) give(new UpstreamFault('content_type'))
  if (head.contentEncoding !== '' && head.contentEncoding !== 'identity') give(new UpstreamFault('content_type'))
}

/** The connection. Who ends the attempt ends the dialling. */
function opened(dial: Dial, attempt: Attempt): Promise<Connection> {
  attempt.onAbort(dial.stop)
  return dial.opened
}
