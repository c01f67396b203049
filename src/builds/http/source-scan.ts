// Extracts the source from a build request's JSON while it arrives: decodes `source_data` in pieces, and keeps the rest
// as a small document with a placeholder, which the strict JSON reader parses. No I/O; state of one body.

import { Fault } from '../../base/fault.ts'
import { resultOr } from '../../base/result-or.ts'

const quote = 0x22
const backslash = 0x5c
const slash = 0x2f
const letterU = 0x75
const fieldName = 'source_data'
/** Longest name in the small document that can still be `source_data`, including escapes. */
const nameBytesMax = 128
/** Characters decoded at a time; a multiple of four. */
const groupChars = 196_608
/** Bytes examined one by one after an escaped character. */
const escapedRunBytes = 256

export type ScanLimits = {
  /** Limit on everything except the source. */
  readonly documentBytesMax: number
  /** Limit on the decoded source. */
  readonly sourceBytesMax: number
}

export class SourceScan {
  readonly #limits: ScanLimits
  #document = Buffer.alloc(4096)
  #documentBytes = 0
  #depth = 0
  #mode: 'between' | 'string' | 'source' = 'between'
  #isEscaped = false
  /** Start of the current top-level name in the document; null outside of a name. */
  #nameStart: number | null = null
  #name: string | null = null
  #place: 'name' | 'value' | 'other' = 'other'
  /** Characters of the source that have not been decoded yet. */
  readonly #held = Buffer.alloc(groupChars)
  #heldChars = 0
  /** Position in an escape of the source: 0 outside, 1 after the backslash, from 2 at the digits after the u. */
  #escape = 0
  /** Value of the digits so far. */
  #escaped = 0
  #hasSource = false
  #isPadded = false
  #sourceBytes = 0

  constructor(limits: ScanLimits) {
    this.#limits = limits
  }

  /**
   * Processes a piece of the body; `emit` receives the decoded source in it. Faults: invalid_request, body_too_large.
   */
  push(piece: Uint8Array, emit: (bytes: Uint8Array) => void): void {
    for (let at = 0; at < piece.length; ) {
      if (this.#mode === 'source') at = this.#takeSource(piece, at, emit)
      else {
        this.#take(piece[at] ?? 0)
        at += 1
      }
    }
  }

  /** Returns the document without the source. Fault invalid_request if the body ended too early. */
  end(): Uint8Array {
    if (this.#mode === 'source') throw new Fault('invalid_request', 'The body is not valid JSON.')
    if (this.#documentBytes === 0) throw new Fault('invalid_request', 'The body is empty; a JSON object is expected.')
    return this.#document.subarray(0, this.#documentBytes)
  }

  #keep(byte: number): void {
    if (this.#documentBytes >= this.#limits.documentBytesMax) {
      const message = `The fields other than source_data take up more than ${this.#limits.documentBytesMax} bytes.`
      throw new Fault('body_too_large', message)
    }
    if (this.#documentBytes === this.#document.length) {
      this.#document = Buffer.concat([this.#document], this.#document.length * 2)
    }
    this.#document[this.#documentBytes] = byte
    this.#documentBytes += 1
  }

  #take(byte: number): void {
    if (this.#mode === 'string') {
      this.#takeOfString(byte)
      return
    }
    switch (byte) {
      case quote:
        if (this.#depth === 1 && this.#place === 'value' && this.#name === fieldName) {
          this.#beginSource()
          return
        }
        this.#mode = 'string'
        this.#nameStart = this.#depth === 1 && this.#place === 'name' ? this.#documentBytes : null
        break
      case 0x7b: // {
      case 0x5b: // [
        this.#depth += 1
        if (this.#depth === 1) this.#place = byte === 0x7b ? 'name' : 'other'
        break
      case 0x7d: // }
      case 0x5d: // ]
        this.#depth -= 1
        break
      case 0x2c: // ,
        if (this.#depth === 1) this.#place = 'name'
        break
      case 0x3a: // :
        if (this.#depth === 1) this.#place = 'value'
        break
    }
    this.#keep(byte)
  }

  #takeOfString(byte: number): void {
    this.#keep(byte)
    if (this.#isEscaped) this.#isEscaped = false
    else if (byte === backslash) this.#isEscaped = true
    else if (byte === quote) {
      this.#mode = 'between'
      if (this.#nameStart !== null) this.#name = nameOf(this.#document.subarray(this.#nameStart, this.#documentBytes))
      this.#nameStart = null
    }
  }

  #beginSource(): void {
    if (this.#hasSource) throw new Fault('invalid_request', 'The body has source_data twice.', { param: fieldName })
    this.#hasSource = true
    this.#mode = 'source'
    this.#keep(quote)
  }

  /** Processes the source up to its end or the end of the piece. */
  #takeSource(piece: Uint8Array, from: number, emit: (bytes: Uint8Array) => void): number {
    // Searches once per piece, so that many escapes do not cause many searches.
    const end = piece.indexOf(quote, from)
    const stop = end === -1 ? piece.length : end
    for (let at = from; at < stop; ) {
      if (this.#escape !== 0 || piece[at] === backslash) {
        at = this.#takeEscapes(piece, at, Math.min(stop, at + escapedRunBytes), emit)
        continue
      }
      const found = piece.indexOf(backslash, at)
      const runEnd = found === -1 || found > stop ? stop : found
      this.#hold(piece.subarray(at, runEnd), emit)
      at = runEnd
    }
    if (end === -1) return piece.length
    // An escaped quotation mark is not base64.
    if (this.#escape !== 0) throw notBase64()
    this.#decode(emit)
    // A non-empty source stays non-empty in the document.
    if (this.#sourceBytes > 0) for (const byte of Buffer.from('AAAA')) this.#keep(byte)
    this.#keep(quote)
    this.#mode = 'between'
    this.#place = 'other'
    return end + 1
  }

  /**
   * Decodes escapes: some encoders write / as \/ and + as \u002b, some escape everything. No other escape is base64.
   * Examines single bytes for a while, because escapes come in groups. Returns where to continue.
   */
  #takeEscapes(piece: Uint8Array, from: number, to: number, emit: (bytes: Uint8Array) => void): number {
    let state = this.#escape
    let value = this.#escaped
    for (let at = from; at < to; at += 1) {
      const byte = piece[at] ?? 0
      if (state === 0 && byte === backslash) {
        state = 1
        continue
      }
      if (state === 1) {
        if (byte !== slash && byte !== letterU) throw notBase64()
        state = byte === slash ? 0 : 2
        value = 0
        if (byte !== slash) continue
      } else if (state > 1) {
        const digit = hexDigit(byte)
        if (digit === -1) throw notBase64()
        value = value * 16 + digit
        state = state === 5 ? 0 : state + 1
        if (state !== 0) continue
        if (value > 0x7f) throw notBase64()
        this.#holdOne(value, emit)
        continue
      }
      this.#holdOne(byte, emit)
    }
    this.#escape = state
    this.#escaped = value
    return to
  }

  #holdOne(char: number, emit: (bytes: Uint8Array) => void): void {
    this.#held[this.#heldChars] = char
    this.#heldChars += 1
    if (this.#heldChars === groupChars) this.#decode(emit)
  }

  #hold(chars: Uint8Array, emit: (bytes: Uint8Array) => void): void {
    for (let at = 0; at < chars.length; ) {
      const count = Math.min(groupChars - this.#heldChars, chars.length - at)
      this.#held.set(chars.subarray(at, at + count), this.#heldChars)
      this.#heldChars += count
      at += count
      if (this.#heldChars === groupChars) this.#decode(emit)
    }
  }

  /** Decodes strictly: standard alphabet, no white space, padding only at the end and without leftover bits. */
  #decode(emit: (bytes: Uint8Array) => void): void {
    if (this.#heldChars === 0) return
    // An earlier full group had padding, so it must have been the last.
    if (this.#isPadded || this.#heldChars % 4 !== 0) throw notBase64()
    const text = this.#held.toString('latin1', 0, this.#heldChars)
    this.#heldChars = 0
    const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0
    this.#isPadded = padding > 0
    const bytes = decoded(text)
    if (bytes === null || bytes.length !== (text.length / 4) * 3 - padding) throw notBase64()
    this.#sourceBytes += bytes.length
    if (this.#sourceBytes > this.#limits.sourceBytesMax) {
      const message = `source_data holds more than ${this.#limits.sourceBytesMax} bytes.`
      throw new Fault('body_too_large', message, { param: fieldName })
    }
    emit(bytes)
  }
}

/** Returns the value of a hexadecimal ASCII digit; -1 for other bytes. */
function hexDigit(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30
  const lower = byte | 0x20
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1
}

/** Decodes base64; null if the text is invalid. */
function decoded(text: string): Uint8Array | null {
  return resultOr(() => Uint8Array.fromBase64(text, { alphabet: 'base64', lastChunkHandling: 'strict' }), null)
}

/**
 * Decodes a name. Null if it is too long for `source_data`, or not a JSON string; the strict reader reports that later.
 */
function nameOf(text: Uint8Array): string | null {
  if (text.length > nameBytesMax) return null
  const name: unknown = resultOr(() => JSON.parse(Buffer.from(text).toString('utf8')), null)
  return typeof name === 'string' ? name : null
}

function notBase64(): Fault {
  const message =
    'source_data must be standard base64 (RFC 4648 section 4) with its padding and without line breaks, as `base64 --wrap=0` prints it.'
  return new Fault('invalid_request', message, { param: fieldName })
}
