// Bytes over a connected stream socket (unix(7)). Effects: reads and writes it.

import { adoptSocket } from '../../linux/libc/sockets.ts'

export type BytePipe = {
  /** Sends as fast as the other end reads. No effect on a closed pipe. */
  readonly write: (bytes: Uint8Array) => void
  /** Reads the next bytes; one call at a time. Null if the other end has closed the pipe. */
  readonly read: () => Promise<Uint8Array | null>
  readonly end: () => void
}

/** Unread bytes beyond which the socket is paused; one piece may exceed it. */
const unreadBytesMax = 65_536

/** Opens a pipe and takes ownership of the descriptor. */
export async function openPipe(fd: number): Promise<BytePipe> {
  const unread: Uint8Array[] = []
  let unreadBytes = 0
  let unsent: Uint8Array[] = []
  let isClosed = false
  let wake = () => {}
  const send = (socket: Bun.Socket) => {
    for (let first = unsent[0]; first !== undefined && !isClosed; first = unsent[0]) {
      const count = Math.max(0, socket.write(first))
      if (count < first.length) {
        unsent[0] = first.subarray(count)
        return
      }
      unsent.shift()
    }
  }
  const close = () => {
    isClosed = true
    unsent = []
    wake()
  }
  const data = (socket: Bun.Socket, bytes: Uint8Array) => {
    // Copied, because the runtime reuses its buffer.
    unread.push(bytes.slice())
    unreadBytes += bytes.length
    if (unreadBytes > unreadBytesMax) socket.pause()
    wake()
  }
  const socket = await adoptSocket({ fd, socket: { data, drain: send, end: close, close, error: close } })
  return {
    write: bytes => {
      unsent.push(bytes)
      if (unsent.length === 1) send(socket)
    },
    read: async () => {
      while (unread.length === 0 && !isClosed) {
        const { promise, resolve } = Promise.withResolvers<void>()
        wake = resolve
        await promise
      }
      const piece = unread.shift() ?? null
      unreadBytes -= piece?.length ?? 0
      if (unreadBytes <= unreadBytesMax) socket.resume()
      return piece
    },
    end: () => {
      close()
      socket.end()
    },
  }
}
