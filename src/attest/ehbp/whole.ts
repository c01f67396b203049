// Checks whether a decrypted response is complete. EHBP has no end marker, so its content must show it. Pure; holds the
// state of one response.
//
// A stream ends with the event `[DONE]` or `message_stop`, or with an event that holds `error`, with which the gateway
// ends a broken stream. Events may have names. Any other response is one JSON object, and no prefix of an object is an
// object. Frames open only in order, so a response that is complete here was complete when it was sealed.

import { concat, fromUtf8 } from '../../base/bytes.ts'

export type WholeCheck = {
  readonly push: (plaintext: Uint8Array) => void
  readonly isWhole: () => boolean
}

export function createWholeCheck(contentType: string | null): WholeCheck {
  return isEventStream(contentType) ? new StreamCheck() : new ObjectCheck()
}

export function isEventStream(contentType: string | null): boolean {
  return /^text\/event-stream[ \t]*(?:;|$)/i.test(contentType ?? '')
}

const BYTES = { newline: 0x0a, quote: 0x22, backslash: 0x5c, open: 0x7b, close: 0x7d } as const
/** Tab, line feed, vertical tab, form feed, carriage return, space. */
const isBlank = (byte: number) => byte === 0x20 || (byte >= 0x09 && byte <= 0x0d)

/** Counts braces outside of strings. The reader parses the JSON anyway, and validates it then. */
class ObjectCheck implements WholeCheck {
  #depth = 0
  #state: 'before' | 'in' | 'string' | 'escape' | 'after' | 'wrong' = 'before'

  push(plaintext: Uint8Array): void {
    for (const byte of plaintext) this.#step(byte)
  }

  isWhole(): boolean {
    return this.#state === 'after'
  }

  #step(byte: number): void {
    switch (this.#state) {
      case 'before':
      case 'after':
        if (isBlank(byte)) return
        this.#state = this.#state === 'before' && byte === BYTES.open ? 'in' : 'wrong'
        this.#depth = 1
        return
      case 'in':
        if (byte === BYTES.quote) this.#state = 'string'
        else if (byte === BYTES.open) this.#depth += 1
        else if (byte === BYTES.close) {
          this.#depth -= 1
          if (this.#depth === 0) this.#state = 'after'
        }
        return
      case 'string':
        if (byte === BYTES.quote) this.#state = 'in'
        else if (byte === BYTES.backslash) this.#state = 'escape'
        return
      case 'escape':
        this.#state = 'string'
        return
      case 'wrong':
        return
    }
  }
}

/** Larger than any event that ends a stream. */
const lastEventBytesMax = 65_536

/** Keeps the last event; discards an event that is too long. */
class StreamCheck implements WholeCheck {
  #pieces: Uint8Array[] = []
  #bytes = 0
  #lastWasNewline = false
  #isWhole = false

  push(plaintext: Uint8Array): void {
    let from = 0
    for (let at = plaintext.indexOf(BYTES.newline); at !== -1; at = plaintext.indexOf(BYTES.newline, at + 1)) {
      // An event ends with an empty line.
      const ends = at > from ? plaintext[at - 1] === BYTES.newline : this.#lastWasNewline
      if (!ends) continue
      this.#take(plaintext.subarray(from, at + 1))
      this.#isWhole = this.#bytes <= lastEventBytesMax && isEnd(fromBytes(this.#pieces))
      this.#pieces = []
      this.#bytes = 0
      this.#lastWasNewline = false
      from = at + 1
    }
    if (from === plaintext.length) return
    this.#take(plaintext.subarray(from))
    this.#lastWasNewline = plaintext.at(-1) === BYTES.newline
    this.#isWhole = false
  }

  isWhole(): boolean {
    return this.#isWhole
  }

  #take(piece: Uint8Array): void {
    this.#bytes += piece.length
    if (this.#bytes <= lastEventBytesMax) this.#pieces.push(piece.slice())
    else this.#pieces = []
  }
}

function fromBytes(pieces: readonly Uint8Array[]): string {
  try {
    return fromUtf8(concat(...pieces))
  } catch {
    return ''
  }
}

function isEnd(event: string): boolean {
  const data = /^(?:event: [a-z_.]+\n)?data: ([^\n]*)\n\n$/.exec(event)?.[1]
  if (data === undefined) return false
  if (data === '[DONE]') return true
  try {
    const value: unknown = JSON.parse(data)
    if (typeof value !== 'object' || value === null) return false
    return 'error' in value || ('type' in value && value.type === 'message_stop')
  } catch {
    return false
  }
}
