// One end of the socket between owner and relay. Effects: writes to and reads from it.
//
// All messages of one turn of the event loop are sent in one write (measured on Bun 1.4.5: a separate round trip
// costs 8 µs of processor time, mostly system calls).

import type { Socket } from 'bun'
import { adoptSocket } from '../../linux/libc/sockets.ts'
import { encodeFrame, FrameReader } from './frames.codec.ts'

export type ChannelUser<Heard> = {
  /** Handles a message. May throw, which closes the channel. */
  readonly onMessage: (message: Heard) => void
  /** Called once, when the other end is gone or has broken the protocol. */
  readonly onClose: (reason: string) => void
}

/** Maximum bytes waiting to be sent. A peer that leaves more unread counts as dead. */
const waitingBytesMax = 256 * 1_048_576
/** Messages of one turn that are longer together are sent as several frames. */
const frameCharsMax = 8 * 1_048_576

export class Channel<Said, Heard> {
  readonly #user: ChannelUser<Heard>
  readonly #reader = new FrameReader()
  #socket: Socket | null = null
  #messages: string[] = []
  #chars = 0
  #isDue = false
  #waiting: Buffer[] = []
  #waitingBytes = 0
  #isClosed = false

  private constructor(user: ChannelUser<Heard>) {
    this.#user = user
  }

  /** Opens a channel and takes ownership of the descriptor. */
  static async open<Said, Heard>(fd: number, user: ChannelUser<Heard>): Promise<Channel<Said, Heard>> {
    const channel = new Channel<Said, Heard>(user)
    const end = () => channel.#end('the other end has closed the channel')
    const socket: Bun.SocketHandler = {
      data: (_socket, bytes) => channel.#take(bytes),
      drain: () => channel.#write(),
      end,
      close: end,
      error: (_socket, error) => channel.#end(error.message),
    }
    channel.#socket = await adoptSocket({ fd, socket })
    return channel
  }

  /** Sends a message. No effect on a closed channel. */
  send(message: Said): void {
    if (this.#isClosed) return
    const text = JSON.stringify(message)
    this.#messages.push(text)
    this.#chars += text.length
    if (this.#chars > frameCharsMax) this.#flush()
    if (this.#isDue) return
    this.#isDue = true
    setImmediate(() => {
      this.#isDue = false
      this.#flush()
    })
  }

  /** Sends the pending messages as far as the peer accepts them, and closes. */
  close(): void {
    if (this.#isClosed) return
    this.#flush()
    this.#isClosed = true
    this.#socket?.end()
  }

  #flush(): void {
    if (this.#messages.length === 0 || this.#isClosed) return
    const frame = encodeFrame(this.#messages)
    this.#messages = []
    this.#chars = 0
    this.#waiting.push(frame)
    this.#waitingBytes += frame.length
    if (this.#waitingBytes > waitingBytesMax) this.#end('the other end does not read')
    else if (this.#waiting.length === 1) this.#write()
  }

  #write(): void {
    for (let first = this.#waiting[0]; first !== undefined && !this.#isClosed; first = this.#waiting[0]) {
      const count = Math.max(0, this.#socket?.write(first) ?? 0)
      this.#waitingBytes -= count
      if (count < first.length) {
        this.#waiting[0] = first.subarray(count)
        return
      }
      this.#waiting.shift()
    }
  }

  #take(bytes: Uint8Array): void {
    try {
      for (const message of this.#reader.push(bytes)) if (!this.#isClosed) this.#user.onMessage(message as Heard)
    } catch (error) {
      this.#end(error instanceof Error ? error.message : 'an invalid message')
    }
  }

  #end(reason: string): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#waiting = []
    this.#socket?.end()
    this.#user.onClose(reason)
  }
}
