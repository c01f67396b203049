// HTTP/1.1 responses (RFC 9112) of upstreams, parsed strictly for any split of the bytes. Pure; one parser per
// connection.
//
// A message whose size is ambiguous is malformed, so that a response never runs into the next request's.

import { UpstreamFault } from '../failure.ts'

export type ResponseHead = {
  readonly status: number
  /** Without parameters, in lower case; empty if absent. */
  readonly contentType: string
  /** In lower case; empty if absent. */
  readonly contentEncoding: string
  /** Bytes; null if it is not declared. */
  readonly contentLength: number | null
  /** Retry-After if it is a number of seconds (RFC 9110 10.2.3); otherwise null. */
  readonly retryAfterSeconds: number | null
  /** Tokens of the request, as text-embeddings-inference reports them; undefined if it reports none. */
  readonly computeTokens?: number
}

export type ResponseSink = {
  readonly onHead: (head: ResponseHead) => void
  /**
   * Receives a piece of the body: the pushed bytes from `start` to `end`. Calling `subarray` would take longer than
   * everything else here.
   */
  readonly onBody: (bytes: Buffer, start: number, end: number) => void
  /** Called when the message is complete. `isReusable`: whether another request may follow on this connection. */
  readonly onEnd: (isReusable: boolean) => void
}

export const headBytesMax = 32_768
const sizeLineBytesMax = 1_024

/** Kind of the next bytes. `idle`: no request is running. */
type State = 'idle' | 'head' | 'length' | 'until_close' | 'chunk_size' | 'chunk' | 'chunk_end' | 'trailers'

export class ResponseParser {
  readonly #sink: ResponseSink
  #state: State = 'idle'
  /** A head or line whose end has not arrived. */
  #incomplete: Buffer | null = null
  /** Bytes of the body or chunk that have not arrived. */
  #bytesLeft = 0
  #isReusable = false
  #trailerBytes = 0

  constructor(sink: ResponseSink) {
    this.#sink = sink
  }

  /** Call when a request was sent: the next bytes are its response. */
  expect(): void {
    this.#state = 'head'
  }

  /** Parses bytes. Throws UpstreamFault malformed, also for bytes without a request. */
  push(arrived: Buffer): void {
    const bytes = this.#incomplete === null ? arrived : Buffer.concat([this.#incomplete, arrived])
    this.#incomplete = null
    for (let at = 0; at >= 0 && at < bytes.length; ) at = this.#step(bytes, at)
  }

  /**
   * Call when the peer has closed, which is the end of a body without a length. Throws UpstreamFault cut for any other
   * incomplete message.
   */
  close(): void {
    if (this.#state === 'idle') return
    if (this.#state !== 'until_close') throw new UpstreamFault('cut')
    this.#end()
  }

  /** Performs one step; returns the position of the next, or -1 if it needs more bytes. */
  #step(bytes: Buffer, at: number): number {
    switch (this.#state) {
      case 'head': {
        const text = this.#textUpTo(bytes, at, '\r\n\r\n', headBytesMax)
        if (text === null) return -1
        this.#takeHead(text)
        return at + text.length + 4
      }
      case 'length': {
        const next = this.#takeBody(bytes, at)
        if (this.#bytesLeft === 0) this.#end()
        return next
      }
      case 'until_close':
        this.#bytesLeft = Number.MAX_SAFE_INTEGER
        return this.#takeBody(bytes, at)
      case 'chunk_size': {
        const plain = plainSizeEnd(bytes, at)
        if (plain > 0) {
          const start = plain + 2
          const size = plainSize(bytes, at, plain)
          const end = start + size
          if (size === 0 || !isLineEnd(bytes, end)) {
            this.#beginChunk(size)
            return start
          }
          // The chunk is complete, as it nearly always is.
          this.#sink.onBody(bytes, start, end)
          return end + 2
        }
        const line = this.#textUpTo(bytes, at, '\r\n', sizeLineBytesMax)
        if (line === null) return -1
        this.#beginChunk(parseSize(line))
        return at + line.length + 2
      }
      case 'chunk': {
        const next = this.#takeBody(bytes, at)
        if (this.#bytesLeft === 0) this.#state = 'chunk_end'
        return next
      }
      case 'chunk_end': {
        if (!isLineEnd(bytes, at) && this.#textUpTo(bytes, at, '\r\n', 0) === null) return -1
        this.#state = 'chunk_size'
        return at + 2
      }
      case 'trailers': {
        const line = this.#textUpTo(bytes, at, '\r\n', headBytesMax)
        if (line === null) return -1
        this.#trailerBytes += line.length
        if (this.#trailerBytes > headBytesMax) throw malformed()
        if (line === '') this.#end()
        else if (!TRAILER.test(line)) throw malformed()
        return at + line.length + 2
      }
      case 'idle':
        throw malformed()
    }
  }

  #takeHead(text: string): void {
    const head = parseHead(text)
    // Interim responses (RFC 9110 15.2) precede the final one; switching protocols was never requested.
    if (head.status < 200) {
      if (head.status === 101) throw malformed()
      return
    }
    this.#isReusable = head.isReusable
    this.#sink.onHead(head)
    if (head.status === 204 || head.status === 304) {
      this.#end()
    } else if (head.isChunked) {
      this.#state = 'chunk_size'
      this.#trailerBytes = 0
    } else if (head.contentLength !== null) {
      this.#bytesLeft = head.contentLength
      this.#state = 'length'
      if (this.#bytesLeft === 0) this.#end()
    } else {
      this.#state = 'until_close'
      this.#isReusable = false
    }
  }

  #beginChunk(sizeBytes: number): void {
    this.#bytesLeft = sizeBytes
    this.#state = sizeBytes === 0 ? 'trailers' : 'chunk'
  }

  #takeBody(bytes: Buffer, at: number): number {
    const length = Math.min(this.#bytesLeft, bytes.length - at)
    this.#bytesLeft -= length
    this.#sink.onBody(bytes, at, at + length)
    return at + length
  }

  /** Returns the text before `mark`. Null if the mark has not arrived; then the bytes are kept for the next push. */
  #textUpTo(bytes: Buffer, at: number, mark: string, bytesMax: number): string | null {
    const found = bytes.indexOf(mark, at, 'latin1')
    // All of the mark except its last byte may have arrived.
    if ((found < 0 ? bytes.length - mark.length + 1 : found) - at > bytesMax) throw malformed()
    if (found >= 0) return bytes.toString('latin1', at, found)
    this.#incomplete = at === 0 ? bytes : bytes.subarray(at)
    return null
  }

  #end(): void {
    this.#state = 'idle'
    this.#sink.onEnd(this.#isReusable)
  }
}

type ParsedHead = ResponseHead & { readonly isChunked: boolean; readonly isReusable: boolean }

/** A status line and fields (RFC 9112 4, 5): a name begins each line, lines end in CRLF, and there is no NUL. */
const HEAD = /^HTTP\/1\.[01] [1-9][0-9]{2}(?: [^\r\n\0]*)?(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*)*$/
const versionAt = 'HTTP/1.'.length
const statusAt = 'HTTP/1.1 '.length
/** The fields that are used; all others are skipped. */
const FIELDS = [
  ...['content-type', 'content-encoding', 'content-length', 'connection', 'transfer-encoding', 'retry-after'],
  'x-compute-tokens',
]
const LENGTH = /^[0-9]{1,15}$/

function parseHead(text: string): ParsedHead {
  if (!HEAD.test(text)) throw malformed()
  // The form above fixes these positions.
  const isOld = text[versionAt] === '0'
  // Lower-cased as a whole, because neither names nor values depend on case.
  const lower = text.toLowerCase()
  let type: string | null = null
  let encoding = ''
  let length: string | null = null
  let connection = ''
  let retryAfterSeconds: number | null = null
  let computeTokens = 0
  let isChunked = false
  for (let end = text.indexOf('\r\n'); end >= 0; ) {
    const start = end + 2
    end = text.indexOf('\r\n', start)
    const colon = text.indexOf(':', start)
    const name = fieldAt(lower, start, colon)
    if (name === null) continue
    const value = trimBlanks(lower, colon + 1, end < 0 ? text.length : end)
    if (name === 'content-type') {
      if (type !== null) throw malformed()
      type = value
    } else if (name === 'content-encoding') encoding = joinList(encoding, value)
    else if (name === 'connection') connection = joinList(connection, value)
    else if (name === 'retry-after') retryAfterSeconds = /^[0-9]{1,6}$/.test(value) ? Number(value) : null
    else if (name === 'x-compute-tokens') computeTokens = LENGTH.test(value) ? Number(value) : 0
    else if (name === 'content-length') {
      if (!LENGTH.test(value) || (length !== null && length !== value)) throw malformed()
      length = value
    } else if (name === 'transfer-encoding') {
      if (isChunked || isOld || value !== 'chunked') throw malformed()
      isChunked = true
    }
  }
  if (isChunked && length !== null) throw malformed()
  return {
    status: Number(text.slice(statusAt, statusAt + 3)),
    contentType: withoutParameters(type ?? ''),
    contentEncoding: encoding,
    contentLength: length === null ? null : Number(length),
    retryAfterSeconds,
    ...(computeTokens === 0 ? {} : { computeTokens }),
    isChunked,
    isReusable: !isOld && !(connection.includes('close') && closes(connection)),
  }
}

/** Returns the field's name; null for any other field. */
function fieldAt(lower: string, start: number, colon: number): string | null {
  for (const name of FIELDS) if (name.length === colon - start && lower.startsWith(name, start)) return name
  return null
}

/** Validates as strictly as for the fields of a head. */
const TRAILER = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*$/

/** Trims only spaces and tabs; `trim` removes more. */
function trimBlanks(text: string, from: number, to: number): string {
  let start = from
  let end = to
  while (start < end && isBlank(text.charCodeAt(start))) start += 1
  while (end > start && isBlank(text.charCodeAt(end - 1))) end -= 1
  return text.slice(start, end)
}

function isBlank(code: number): boolean {
  return code === 0x20 || code === 0x09
}

function withoutParameters(type: string): string {
  const end = type.indexOf(';')
  return (end < 0 ? type : type.slice(0, end)).trim()
}

function closes(connection: string): boolean {
  return connection.split(',').some(option => option.trim() === 'close')
}

function joinList(list: string, more: string): string {
  return list === '' ? more : `${list},${more}`
}

const sizeDigitsMax = 8

/**
 * Returns the end of a complete size line that has only digits, the common case, without making text. 0 for any other.
 */
function plainSizeEnd(bytes: Buffer, at: number): number {
  let end = at
  while (end - at < sizeDigitsMax && hexDigit(bytes[end] ?? 0) >= 0) end += 1
  return end > at && isLineEnd(bytes, end) ? end : 0
}

function plainSize(bytes: Buffer, at: number, end: number): number {
  let size = 0
  for (let i = at; i < end; i += 1) size = size * 16 + hexDigit(bytes[i] ?? 0)
  return size
}

/** Returns the digit's value; -1 for any other byte. */
function hexDigit(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30
  const letter = byte | 0x20
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : -1
}

function isLineEnd(bytes: Buffer, at: number): boolean {
  return bytes[at] === 0x0d && bytes[at + 1] === 0x0a
}

/** Parses the size of a chunk, in hexadecimal; extensions (RFC 9112 7.1.1) are ignored. */
function parseSize(line: string): number {
  const digits = /^([0-9A-Fa-f]{1,8})(?:[ \t]*;[^\r\n\0]*)?$/.exec(line)?.[1]
  if (digits === undefined) throw malformed()
  return Number.parseInt(digits, 16)
}

function malformed(): UpstreamFault {
  return new UpstreamFault('malformed')
}
