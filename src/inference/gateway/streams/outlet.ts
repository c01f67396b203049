// Sends a stream's bytes to the client. Effects: the client's connection, through Bun's streams.
//
// The server gets a direct stream: each write goes to the socket at once, without a promise per piece (measured on
// Bun 1.4.5: a write returns a promise only while the socket is full, and copies its argument). Readers in this
// process, such as encryption, get a pulled stream, because Bun has no backpressure for readers of a direct stream.

import { utf8 } from '../../../base/bytes.ts'

export type Outlet = {
  /**
   * Sends well-formed text as UTF-8. Null if the client accepts more; otherwise a promise that resolves when it does.
   * The last writes of a stream need not await it.
   */
  readonly write: (data: Uint8Array | string) => Promise<unknown> | null
  readonly close: () => void
  /** Breaks the connection, so that the client sees an incomplete stream. */
  readonly fail: (error: Error) => void
}

/** `server`: a response that Bun.serve sends. `reader`: code that calls `getReader`. */
export type ReadBy = 'server' | 'reader'

export type OutletUser = {
  /** Called once, when the stream begins to be read. */
  readonly onOpen: (outlet: Outlet) => void
  /** Called when the reader cancels the stream or the client's connection closes. */
  readonly onLeave: () => void
}

export function openOutlet(readBy: ReadBy, user: OutletUser): ReadableStream<Uint8Array> {
  return readBy === 'server' ? openDirect(user) : openPulled(user)
}

function openDirect({ onOpen, onLeave }: OutletUser): ReadableStream<Uint8Array> {
  // Bun keeps the response open until then.
  const ended = Promise.withResolvers<void>()
  let isOpen = true
  const end = () => {
    isOpen = false
    ended.resolve()
  }
  return new ReadableStream<Uint8Array>({
    type: 'direct',
    pull: controller => {
      onOpen({
        write: data => {
          if (!isOpen) return null
          const written: unknown = controller.write(data)
          return written instanceof Promise ? written : null
        },
        close: () => {
          if (isOpen) controller.end()
          end()
        },
        fail: error => {
          if (isOpen) controller.close(error)
          end()
        },
      })
      return ended.promise
    },
    cancel: () => {
      end()
      onLeave()
    },
  })
}

function openPulled({ onOpen, onLeave }: OutletUser): ReadableStream<Uint8Array> {
  let isBegun = false
  let isOpen = true
  let wanted = Promise.withResolvers<void>()
  return new ReadableStream<Uint8Array>(
    {
      pull: controller => {
        if (isBegun) return wanted.resolve()
        isBegun = true
        onOpen({
          write: data => {
            if (!isOpen) return null
            wanted = Promise.withResolvers()
            controller.enqueue(typeof data === 'string' ? utf8(data) : data)
            return wanted.promise
          },
          close: () => {
            if (isOpen) controller.close()
            isOpen = false
          },
          fail: error => {
            if (isOpen) controller.error(error)
            isOpen = false
          },
        })
      },
      cancel: () => {
        isOpen = false
        onLeave()
      },
    },
    { highWaterMark: 0 },
  )
}
