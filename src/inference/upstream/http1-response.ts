// HTTP/1.1 answers (RFC 9112) as upstreams send them, read strictly for any split of the bytes. Pure; one parser serves one connection.
//
// Of two readings of a message none is chosen: where sizes could be taken for one thing or another it is malformed, so that an answer can
// never run over into the next request's.

import { UpstreamFault } from './fault.ts'

export type ResponseHead = {
  readonly status: number
  /** Without parameters, in lower case; "" for none. */
  readonly contentType: string
  /** In lower case; "" for none. */
  readonly contentEncoding: string
  /** Bytes; null when it is not declared. */
  readonly contentLength: number | null
}

export type ResponseSink = {
  readonly onHead: (head: ResponseHead) => void
  /** A piece of the body. The bytes are the caller's own, not copied. */
  readonly onBody: (bytes: Uint8Array) => void
  /** The message is complete. Whether another request may follow on this connection. */
  readonly onEnd: (isReusable: boolean) => void
}

export type ResponseParser = {
  /** UpstreamFault malformed, also for bytes that nobody asked for. */
  readonly push: (bytes: Buffer) => void
  /** The peer has closed: the end of a body without a length. UpstreamFault cut for any other message under way. */
  readonly close: () => void
  /** A request has gone out: the next bytes are its answer's. */
  readonly expect: () => void
}

export const headBytesMax = 32_768
const sizeLineBytesMax = 1_024

/** What the next bytes are. `nothing`: no request is under way. */
type State = 'nothing' | 'head' | 'length' | 'close' | 'size' | 'chunk' | 'chunk_end' | 'trailers'

export function createResponseParser(sink: ResponseSink): ResponseParser {
  let state: State = 'nothing'
  /** A head or line whose end has not arrived. */
  let kept: Buffer | null = null
  /** Bytes of the body or chunk that are still to come. */
  let left = 0
  let isReusable = false
  let trailerBytes = 0

  const end = () => {
    state = 'nothing'
    sink.onEnd(isReusable)
  }

  const takeHead = (text: string) => {
    const head = parseHead(text)
    // Interim answers (RFC 9110 15.2) come before the real one; switching protocols was never asked for.
    if (head.status < 200) {
      if (head.status === 101) throw malformed()
      return
    }
    isReusable = head.isReusable
    sink.onHead(head)
    if (head.status === 204 || head.status === 304) return end()
    if (head.isChunked) {
      state = 'size'
      trailerBytes = 0
    } else if (head.contentLength !== null) {
      left = head.contentLength
      state = 'length'
      if (left === 0) end()
    } else {
      state = 'close'
      isReusable = false
    }
  }

  /** The text up to `mark`, or null when it has not all arrived, and what has is kept. */
  const upTo = (bytes: Buffer, at: number, mark: string, bytesMax: number): string | null => {
    const found = bytes.indexOf(mark, at, 'latin1')
    // All of the mark but its last byte may be there already.
    if ((found < 0 ? bytes.length - mark.length + 1 : found) - at > bytesMax) throw malformed()
    if (found >= 0) return bytes.toString('latin1', at, found)
    kept = at === 0 ? bytes : bytes.subarray(at)
    return null
  }

  const takeBody = (bytes: Buffer, at: number): number => {
    const length = Math.min(left, bytes.length - at)
    left -= length
    sink.onBody(at === 0 && length === bytes.length ? bytes : bytes.subarray(at, at + length))
    return at + length
  }

  /** One step; returns where the next begins, or -1 when more bytes are needed for it. */
  const step = (bytes: Buffer, at: number): number => {
    switch (state) {
      case 'head': {
        const text = upTo(bytes, at, '\r\n\r\n', headBytesMax)
        if (text === null) return -1
        takeHead(text)
        return at + text.length + 4
      }
      case 'length': {
        const next = takeBody(bytes, at)
        if (left === 0) end()
        return next
      }
      case 'close':
        left = Number.MAX_SAFE_INTEGER
        return takeBody(bytes, at)
      case 'size': {
        const line = upTo(bytes, at, '\r\n', sizeLineBytesMax)
        if (line === null) return -1
        left = parseSize(line)
        state = left === 0 ? 'trailers' : 'chunk'
        return at + line.length + 2
      }
      case 'chunk': {
        const next = takeBody(bytes, at)
        if (left === 0) state = 'chunk_end'
        return next
      }
      case 'chunk_end': {
        if (upTo(bytes, at, '\r\n', 0) === null) return -1
        state = 'size'
        return at + 2
      }
      case 'trailers': {
        const line = upTo(bytes, at, '\r\n', headBytesMax)
        if (line === null) return -1
        trailerBytes += line.length
        if (trailerBytes > headBytesMax) throw malformed()
        if (line === '') end()
        else if (!TRAILER.test(line)) throw malformed()
        return at + line.length + 2
      }
      case 'nothing':
        throw malformed()
    }
  }

  return {
    push: arrived => {
      const bytes = kept === null ? arrived : Buffer.concat([kept, arrived])
      kept = null
      for (let at = 0; at >= 0 && at < bytes.length; ) at = step(bytes, at)
    },
    close: () => {
      if (state === 'nothing') return
      if (state !== 'close') throw new UpstreamFault('cut')
      end()
    },
    expect: () => {
      state = 'head'
    },
  }
}

type ParsedHead = ResponseHead & { readonly isChunked: boolean; readonly isReusable: boolean }

/**
 * A status line and fields (RFC 9112 4, 5). Nothing but its name stands before a field's colon, so that no line is the continuation of another;
 * lines end with both bytes, and there is no NUL.
 */
const HEAD = /^HTTP\/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n\0]*)?(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*)*$/
/** The fields that matter here; all others are passed over. */
const FIELDS = /\r\n(content-type|content-encoding|content-length|connection|transfer-encoding):([^\r\n]*)/gi
const LENGTH = /^[0-9]{1,15}$/

function parseHead(text: string): ParsedHead {
  const status = HEAD.exec(text)
  if (status === null) throw malformed()
  const isOld = status[1] === '0'
  let type: string | null = null
  let encoding = ''
  let length: string | null = null
  let connection = ''
  let isChunked = false
  FIELDS.lastIndex = 0
  for (let field = FIELDS.exec(text); field !== null; field = FIELDS.exec(text)) {
    const name = (field[1] ?? '').toLowerCase()
    const value = withoutBlanks(field[2] ?? '').toLowerCase()
    if (name === 'content-type') {
      if (type !== null) throw malformed()
      type = value
    } else if (name === 'content-encoding') encoding = joined(encoding, value)
    else if (name === 'connection') connection = joined(connection, value)
    else if (name === 'content-length') {
      if (!LENGTH.test(value) || (length !== null && length !== value)) throw malformed()
      length = value
    } else {
      if (isChunked || isOld || value !== 'chunked') throw malformed()
      isChunked = true
    }
  }
  if (isChunked && length !== null) throw malformed()
  return {
    status: Number(status[2]),
    contentType: (type?.split(';')[0] ?? '').trim(),
    contentEncoding: encoding,
    contentLength: length === null ? null : Number(length),
    isChunked,
    isReusable: !isOld && !connection.split(',').some(option => option.trim() === 'close'),
  }
}

/** As strict as the fields of a head. */
const TRAILER = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*$/

/** Without spaces and tabs around it. */
function withoutBlanks(text: string): string {
  let [start, end] = [0, text.length]
  while (start < end && isBlank(text.charCodeAt(start))) start += 1
  while (end > start && isBlank(text.charCodeAt(end - 1))) end -= 1
  return text.slice(start, end)
}

function isBlank(code: number): boolean {
  return code === 0x20 || code === 0x09
}

function joined(before: string, more: string): string {
  return before === '' ? more : `${before},${more}`
}

/** The size of a chunk, in hexadecimal; extensions (RFC 9112 7.1.1) are passed over. */
function parseSize(line: string): number {
  const digits = /^([0-9A-Fa-f]{1,8})(?:[ \t]*;[^\r\n\0]*)?$/.exec(line)?.[1]
  if (digits === undefined) throw malformed()
  return Number.parseInt(digits, 16)
}

function malformed(): UpstreamFault {
  return new UpstreamFault('malformed')
}
