// Server-sent events (WHATWG HTML 9.2.6) for any split of the bytes. Pure. Reads `data` only; drops comments, other
// fields and pings.

import { UpstreamFault } from '../failure.ts'
import { PING_EVENTS } from './engines/deviations.ts'

export type SseParser = {
  /**
   * Returns the data of every event that these bytes complete, in order. Throws UpstreamFault malformed or too_large.
   */
  readonly push: (bytes: Uint8Array) => string[]
  /** Reports whether no event is incomplete, so that the stream may end here. */
  readonly isClean: () => boolean
  /** Reports whether an event has ended and no byte of the next has arrived. */
  readonly isBetweenEvents: () => boolean
}

export function createSseParser(eventBytesMax: number): SseParser {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  /** Pieces of a line that has not ended yet, so that a long line is joined once. */
  let pieces: string[] = []
  let data: string[] = []
  let isPing = false
  let pendingBytes = 0
  let isFirst = true
  let skipLineFeed = false
  /** Whether the decoder may hold the beginning of a character. */
  let isWithinCharacter = false

  const endLine = (last: string, events: string[]) => {
    let line = last
    if (pieces.length > 0) {
      pieces.push(last)
      line = pieces.join('')
      pieces = []
    }
    if (line === '') {
      if (data.length > 0 && !isPing) events.push(data.length === 1 ? (data[0] ?? '') : data.join('\n'))
      data = []
      isPing = false
      pendingBytes = 0
    } else if (line.startsWith('data:')) {
      data.push(line.slice(line[5] === ' ' ? 6 : 5))
    } else if (line === 'data') {
      data.push('')
    } else if (line.startsWith('event:')) {
      isPing = PING_EVENTS.has(line.slice(6).trim())
    }
  }

  return {
    push: bytes => {
      let text = decode(decoder, bytes)
      const last = bytes.at(-1)
      if (last !== undefined) isWithinCharacter = last >= 0x80
      if (isFirst && text.length > 0) {
        isFirst = false
        if (text.startsWith('\uFEFF')) text = text.slice(1)
      }
      const events: string[] = []
      const hasReturns = text.includes('\r')
      let at = 0
      if (skipLineFeed && text.length > 0) {
        skipLineFeed = false
        if (text[0] === '\n') at = 1
      }
      while (at < text.length) {
        const end = hasReturns ? lineEnd(text, at) : text.indexOf('\n', at)
        const piece = end < 0 ? text.slice(at) : text.slice(at, end)
        pendingBytes += Buffer.byteLength(piece)
        if (pendingBytes > eventBytesMax) throw new UpstreamFault('too_large')
        if (end < 0) {
          pieces.push(piece)
          break
        }
        endLine(piece, events)
        at = end + 1
        if (text[end] !== '\r') continue
        if (at === text.length) skipLineFeed = true
        else if (text[at] === '\n') at += 1
      }
      return events
    },
    isClean: () => pieces.length === 0 && data.length === 0,
    isBetweenEvents: () =>
      !isFirst && !isWithinCharacter && !skipLineFeed && pendingBytes === 0 && pieces.length === 0 && data.length === 0,
  }
}

/** Keep-alive comment for APIs without a ping event; clients ignore it. */
export const COMMENT_PING = ': ping\n\n'

/** Writes one event that carries a text without line breaks. */
export function sseEvent(data: string): string {
  return `data: ${data}\n\n`
}

function decode(decoder: TextDecoder, bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes, { stream: true })
  } catch {
    throw new UpstreamFault('malformed')
  }
}

function lineEnd(text: string, from: number): number {
  for (let at = from; at < text.length; at += 1) {
    const code = text.charCodeAt(at)
    if (code === 10 || code === 13) return at
  }
  return -1
}
