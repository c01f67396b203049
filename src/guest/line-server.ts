// Answers programs of the VM over a unix socket open to all of them: one line in, one JSON line out. Effects: one
// socket.
//
// The client closes: when the server closed first, Bun's client sometimes reported a reset before it had read (1.4.5,
// on a busy machine).

import { chmodSync, rmSync } from 'node:fs'
import { messageOf } from '../base/fault.ts'
import type { Logger } from '../base/log.ts'

type LineServerOptions = {
  readonly path: string
  /** Names the socket in the log. */
  readonly what: string
  /** A request is all bytes up to an LF, or this many bytes. With 1, any first byte is a request. */
  readonly requestBytesMax: number
  /** A JSON value. If it rejects, the connection ends without an answer. */
  readonly answer: (request: Uint8Array) => Promise<unknown>
  readonly log: Logger
}

const connectionsMax = 16
const lineFeed = 0x0a
/** Idle limit of a connection. */
const idleSeconds = 60

/** `held`: the first `heldBytes` are what has arrived. */
type Asking = { held: Uint8Array; heldBytes: number; asked: boolean; rest: Uint8Array }

/** One answer per connection. Does not throw: without the socket its clients cannot connect. */
export function serveLines({ path, what, requestBytesMax, answer, log }: LineServerOptions): Disposable {
  let connections = 0
  try {
    rmSync(path, { force: true })
    const listener = Bun.listen<Asking>({
      unix: path,
      socket: {
        open: socket => {
          connections += 1
          const isRefused = connections > connectionsMax
          socket.data = { held: new Uint8Array(0), heldBytes: 0, asked: isRefused, rest: new Uint8Array(0) }
          socket.timeout(idleSeconds)
          if (isRefused) socket.end()
        },
        data: (socket, chunk) => {
          const { data } = socket
          if (data.asked) return
          // Whole from the first byte on: a client that sends single bytes causes no copies.
          if (data.heldBytes === 0) data.held = new Uint8Array(requestBytesMax)
          const fits = chunk.subarray(0, requestBytesMax - data.heldBytes)
          const lineEnd = fits.indexOf(lineFeed) + 1
          data.held.set(fits, data.heldBytes)
          const beforeBytes = data.heldBytes
          data.heldBytes += fits.length
          if (lineEnd === 0 && data.heldBytes < requestBytesMax) return
          data.asked = true
          answer(data.held.subarray(0, lineEnd === 0 ? data.heldBytes : beforeBytes + lineEnd))
            .then(said => {
              data.rest = Buffer.from(`${JSON.stringify(said)}\n`)
              drain(socket)
            })
            .catch(error => {
              log.error(`${what}: no answer`, { reason: messageOf(error) })
              socket.end()
            })
        },
        drain,
        timeout: socket => void socket.end(),
        close: () => {
          connections -= 1
        },
        error: () => {},
      },
    })
    chmodSync(path, 0o666)
    return { [Symbol.dispose]: () => listener.stop(true) }
  } catch (error) {
    log.error(`${what} does not open`, { reason: messageOf(error) })
    return { [Symbol.dispose]: () => {} }
  }
}

type Writing = { data: { rest: Uint8Array }; write: (bytes: Uint8Array) => number }

function drain(socket: Writing): void {
  const { rest } = socket.data
  if (rest.length === 0) return
  const written = socket.write(rest)
  if (written > 0) socket.data.rest = rest.subarray(written)
}
