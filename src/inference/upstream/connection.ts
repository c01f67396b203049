// One open connection to an upstream, for sequential requests. Effects: a socket.
//
// Why not fetch: it takes twice the time and memory per request, resolves only on its own thread, cannot limit only the
// time of connecting, and names addresses in its failures.

import type { Socket } from 'bun'
import { assert, present } from '../../base/assert.ts'
import { UpstreamFault } from '../failure.ts'
import { type ResponseHead, ResponseParser, type ResponseSink } from './http1-response.ts'

export type UpstreamResponse = {
  readonly head: ResponseHead
  /** Resolves to the next bytes; null at the end. Throws UpstreamFault cut or malformed. One call at a time. */
  readonly read: () => Promise<Uint8Array | null>
  /** Use instead of reads: returns the whole body if it has arrived in one piece; null otherwise, and after a read. */
  readonly takeWhole: () => Piece | null
  /** Use instead of further reads: passes what arrives to the sink once the flow is resumed. Call it once. */
  readonly pushTo: (sink: BodySink) => BodyFlow
  /** Abandons the unread rest. No effect once the response is complete. */
  readonly abort: () => void
}

/** The bytes from `start` to `end`, because calling `subarray` on socket buffers would dominate the cost. */
export type Piece = { readonly bytes: Buffer; readonly start: number; readonly end: number }

/** Receives the rest of a body while its flow runs; `onEnd` or `onFailure` is the last call. No callback throws. */
export type BodySink = {
  /** The bytes from `start` to `end`. */
  readonly onBytes: (bytes: Buffer, start: number, end: number) => void
  readonly onEnd: () => void
  /** Receives an UpstreamFault cut or malformed. */
  readonly onFailure: (error: unknown) => void
}

/** Paused at first. Bytes that arrive while it is paused wait, within bounds. */
export type BodyFlow = { readonly pause: () => void; readonly resume: () => void }

export type ConnectionDeps = {
  /** Called once per request, when the response is complete and another request may be sent. */
  readonly onIdle: (connection: Connection) => void
  readonly onClose: (connection: Connection) => void
}

/** Bytes of a response that wait for their reader; beyond this the socket is paused. */
const bufferedBytesMax = 65_536
/**
 * Bun counts in steps of four. Servers keep idle connections longer (llama.cpp, vLLM: 5 s), so they rarely close first.
 */
const idleSeconds = 4
/** Maximum number of bytes written in one turn of the event loop: copying 32 MiB into the kernel takes up to 20 ms. */
const writtenPerTurn = 1_048_576

export class Connection implements ResponseSink {
  readonly #socket: Socket<undefined>
  /** Negative if Bun provides none. */
  readonly fd: number
  readonly #deps: ConnectionDeps
  readonly #parser: ResponseParser
  /** The response to the request that was sent last, until it is complete. */
  #pending: PendingResponse | null = null
  #unsent: Buffer | null = null
  #isOpen = true

  constructor(socket: Socket<undefined>, deps: ConnectionDeps) {
    this.#socket = socket
    // Missing in Bun's types.
    const fd: unknown = Reflect.get(socket, 'fd')
    this.fd = typeof fd === 'number' ? fd : -1
    this.#deps = deps
    this.#parser = new ResponseParser(this)
  }

  /**
   * Sends a request and resolves with the response's head. Throws UpstreamFault unreachable if no byte arrived; cut or
   * malformed. Null if the connection is closed before any byte of the request was sent.
   */
  send(request: Buffer | string): Promise<UpstreamResponse> | null {
    assert(this.#pending === null, 'a connection carries one request at a time')
    if (!this.#isOpen) return null
    const pending: PendingResponse = new PendingResponse(this.#socket, () => {
      if (this.#pending === pending) this.close()
    })
    this.#pending = pending
    this.#socket.timeout(0)
    this.#parser.expect()
    if (typeof request === 'string' ? this.#writeText(request) : this.#write(request)) return pending.response
    // The caller gets null instead of this promise.
    pending.response.catch(() => {})
    return null
  }

  /** Closes the connection and cuts off an incomplete response. */
  close(): void {
    this.#fail(new UpstreamFault('cut'))
  }

  // Called by the socket.

  onData(bytes: Buffer): void {
    if (!this.#isOpen) return
    this.#pending?.noteBytes()
    try {
      this.#parser.push(bytes)
    } catch (error) {
      this.#fail(error)
    }
  }

  onDrain(): void {
    if (this.#isOpen && this.#unsent !== null) this.#write(this.#unsent)
  }

  onIdleTimeout(): void {
    if (this.#pending === null) this.close()
  }

  /**
   * Handles the end of the socket. `isReset`: whether the peer closed the connection abnormally, so that this is not
   * the end of a body.
   */
  onClose({ isReset }: { readonly isReset: boolean }): void {
    // Also called by `terminate`, when the connection is already closed.
    if (!this.#isOpen) return
    const hadBytes = this.#pending?.hadBytes() ?? false
    try {
      if (isReset) throw new UpstreamFault('cut')
      this.#parser.close()
      this.close()
    } catch (error) {
      this.#fail(hadBytes ? error : new UpstreamFault('unreachable'))
    }
  }

  // Called by the parser.

  onHead(head: ResponseHead): void {
    this.#pending?.begin(head)
  }

  onBody(bytes: Buffer, start: number, end: number): void {
    this.#pending?.push(bytes, start, end)
  }

  onEnd(isReusable: boolean): void {
    // The receiver of these bytes has closed the connection.
    if (!this.#isOpen) return
    const ended = this.#pending
    this.#pending = null
    // If the response arrived before the whole request was sent, the rest would be read as the next request.
    if (!isReusable || this.#unsent !== null) {
      this.close()
    } else {
      this.#socket.timeout(idleSeconds)
      this.#deps.onIdle(this)
    }
    ended?.end()
  }

  /** Same as `#write`. Most texts fit into the socket and then need no buffer. */
  #writeText(text: string): boolean {
    const lengthBytes = Buffer.byteLength(text)
    if (lengthBytes > writtenPerTurn) return this.#write(Buffer.from(text))
    const sent = this.#socket.write(text)
    if (sent < 0) this.#fail(new UpstreamFault('unreachable'))
    else if (sent < lengthBytes) this.#unsent = Buffer.from(text).subarray(sent)
    return sent >= 0
  }

  /** Returns false if the socket is closed before its callback ran. */
  #write(bytes: Buffer): boolean {
    const part = bytes.length > writtenPerTurn ? bytes.subarray(0, writtenPerTurn) : bytes
    const sent = this.#socket.write(part)
    if (sent < 0) this.#fail(new UpstreamFault('unreachable'))
    else this.#unsent = sent < bytes.length ? bytes.subarray(sent) : null
    // A socket that has accepted a whole part makes no callback.
    if (sent === part.length && this.#unsent !== null) setImmediate(() => this.onDrain())
    return sent >= 0
  }

  #fail(error: unknown): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    this.#socket.terminate()
    this.#deps.onClose(this)
    const failed = this.#pending
    this.#pending = null
    failed?.fail(error)
  }
}

/** One request's response, between the socket that receives it and its reader. */
class PendingResponse implements UpstreamResponse {
  readonly #socket: Socket<undefined>
  readonly abort: () => void
  readonly #response = Promise.withResolvers<UpstreamResponse>()
  #head: ResponseHead | null = null
  #hadBytes = false
  #buffered: Piece[] = []
  #bufferedBytes = 0
  #isPaused = false
  #isRead = false
  #isEnded = false
  #failure: unknown = null
  #reader: PromiseWithResolvers<Uint8Array | null> | null = null
  #sink: BodySink | null = null
  /** Whether the sink receives what arrives, so that nothing is buffered. */
  #isFlowing = false

  constructor(socket: Socket<undefined>, abort: () => void) {
    this.#socket = socket
    this.abort = abort
  }

  get head(): ResponseHead {
    return present(this.#head, 'a response is handed over with its head')
  }

  get response(): Promise<UpstreamResponse> {
    return this.#response.promise
  }

  noteBytes(): void {
    this.#hadBytes = true
  }

  hadBytes(): boolean {
    return this.#hadBytes
  }

  begin(head: ResponseHead): void {
    this.#head = head
    this.#response.resolve(this)
  }

  push(bytes: Buffer, start: number, end: number): void {
    if (this.#isFlowing) {
      this.#sink?.onBytes(bytes, start, end)
      return
    }
    const reader = this.#takeReader()
    if (reader !== null) {
      this.#isRead = true
      reader.resolve(bytes.subarray(start, end))
      return
    }
    this.#buffered.push({ bytes, start, end })
    this.#bufferedBytes += end - start
    if (this.#bufferedBytes <= bufferedBytesMax || this.#isPaused) return
    this.#isPaused = true
    this.#socket.pause()
  }

  end(): void {
    this.#isEnded = true
    this.#resume()
    this.#takeReader()?.resolve(null)
    this.#endFlow()
  }

  fail(error: unknown): void {
    this.#failure = error
    this.#response.reject(error)
    this.#takeReader()?.reject(error)
    this.#endFlow()
  }

  pushTo(sink: BodySink): BodyFlow {
    assert(this.#reader === null && this.#sink === null, 'a response has one reader')
    this.#sink = sink
    return {
      pause: () => {
        this.#isFlowing = false
      },
      resume: () => this.#resumeFlow(),
    }
  }

  #resumeFlow(): void {
    if (this.#isFlowing) return
    this.#isFlowing = true
    if (this.#buffered.length > 0) {
      const buffered = this.#takeBuffered()
      this.#sink?.onBytes(buffered, 0, buffered.length)
    }
    this.#endFlow()
  }

  /** Notifies the sink, once, that nothing more will arrive. */
  #endFlow(): void {
    const sink = this.#sink
    if (!this.#isFlowing || sink === null || (this.#failure === null && !this.#isEnded)) return
    this.#sink = null
    if (this.#failure === null) sink.onEnd()
    else sink.onFailure(this.#failure)
  }

  read(): Promise<Uint8Array | null> {
    assert(this.#reader === null, 'a response has one reader')
    if (this.#buffered.length > 0) return Promise.resolve(this.#takeBuffered())
    if (this.#failure !== null) return Promise.reject(this.#failure)
    if (this.#isEnded) return Promise.resolve(null)
    this.#reader = Promise.withResolvers()
    return this.#reader.promise
  }

  takeWhole(): Piece | null {
    const [only] = this.#buffered
    if (!this.#isEnded || this.#isRead || only === undefined || this.#buffered.length > 1) return null
    this.#forgetBuffered()
    return only
  }

  #takeBuffered(): Buffer {
    const pieces = this.#buffered.map(({ bytes, start, end }) => bytes.subarray(start, end))
    const [first] = pieces
    this.#forgetBuffered()
    return first !== undefined && pieces.length === 1 ? first : Buffer.concat(pieces)
  }

  #forgetBuffered(): void {
    this.#isRead = true
    this.#buffered = []
    this.#bufferedBytes = 0
    this.#resume()
  }

  #takeReader(): PromiseWithResolvers<Uint8Array | null> | null {
    const reader = this.#reader
    this.#reader = null
    return reader
  }

  #resume(): void {
    if (!this.#isPaused) return
    this.#isPaused = false
    this.#socket.resume()
  }
}
