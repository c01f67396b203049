// Reads the events of a stream from its bytes: by the event-stream parser, or, if an event has the form of an earlier
// one, by two comparisons and one pass over its text. Pure; holds one stream's state.
//
// The result equals the parser's: an event is read by its form only between two events, and only if its text needs no
// rewriting. All events of one push are read in the same way.

import type { ChunkTemplate } from './chunk-template.ts'
import { createSseParser, type SseParser } from './sse.ts'

/** Events of one push; the texts come before the data. */
export type StreamEvents = {
  /** Texts of events with the form, as between the quotes; JSON.stringify would write the same. Never empty. */
  readonly texts: readonly string[]
  /** Data of the other events. */
  readonly data: readonly string[]
}

/** How an upstream writes an event around its data. Events in other forms are parsed in full. */
type Framing = { readonly lead: string; readonly end: string }

/** A template as bytes of an event. */
type EventForm = {
  readonly template: ChunkTemplate
  readonly before: Buffer
  readonly after: Buffer
  /** An event with more bytes exceeds the limit, which counts it without its line ends. */
  readonly textBytesMax: number
}

const NONE: readonly string[] = []

export class EventReader {
  readonly #parser: SseParser
  readonly #eventBytesMax: number
  #form: EventForm | null = null
  /** Same as the parser's result. */
  #isBetweenEvents = false
  #framing: Framing = { lead: 'data: ', end: '\n\n' }

  constructor(eventBytesMax: number) {
    this.#parser = createSseParser(eventBytesMax)
    this.#eventBytesMax = eventBytesMax
  }

  /** Returns the events that the bytes from `start` to `end` complete. Throws UpstreamFault malformed or too_large. */
  push(bytes: Uint8Array, start: number, end: number): StreamEvents {
    const form = this.#isBetweenEvents ? this.#form : null
    if (form === null) return { texts: NONE, data: this.#parse(bytes.subarray(start, end)) }
    const buffer = asBuffer(bytes)
    const texts: string[] = []
    let at = start
    while (at < end) {
      const textEnd = formedTextEnd(form, buffer, at, end)
      const text = textEnd < 0 ? null : decodeText(buffer, at + form.before.length, textEnd)
      if (text === null) return { texts, data: this.#parse(buffer.subarray(at, end)) }
      texts.push(text)
      at = textEnd + form.after.length
    }
    return { texts, data: NONE }
  }

  /** Reports whether no event is incomplete, so that the stream may end here. */
  isClean(): boolean {
    return this.#parser.isClean()
  }

  /** Sets the form that events have from the next push on; null for none. */
  expect(template: ChunkTemplate | null): void {
    if (this.#form !== null && this.#form.template === template) return
    this.#form = null
    // Data of several lines would not be the same event in one line.
    if (template === null || LINE_END.test(template.dataBefore) || LINE_END.test(template.dataAfter)) return
    const { lead, end } = this.#framing
    const before = Buffer.from(lead + template.dataBefore)
    const after = Buffer.from(template.dataAfter + end)
    const textBytesMax = this.#eventBytesMax - before.length - after.length + end.length
    this.#form = { template, before, after, textBytesMax }
  }

  #parse(bytes: Uint8Array): string[] {
    if (this.#isBetweenEvents) this.#framing = framingOf(bytes)
    const data = this.#parser.push(bytes)
    this.#isBetweenEvents = this.#parser.isBetweenEvents()
    return data
  }
}

const LINE_END = /[\r\n]/

function asBuffer(bytes: Uint8Array): Buffer {
  return bytes instanceof Buffer ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

/**
 * Returns the end of the text of the event at `at`; -1 if its form differs, or it is too large, empty or incomplete.
 */
function formedTextEnd({ before, after, textBytesMax }: EventForm, bytes: Buffer, at: number, bound: number): number {
  const start = at + before.length
  if (start >= bound || bytes.compare(before, 0, before.length, at, start) !== 0) return -1
  const end = textEnd(bytes, start, Math.min(bound, start + textBytesMax + 1))
  const next = end + after.length
  if (end <= start || next > bound || bytes.compare(after, 0, after.length, end, next) !== 0) return -1
  return end
}

/** JSON's escapes (RFC 8259 section 7) that JSON.stringify writes: `"\\bfnrt`. It rewrites all others. */
const KEPT_ESCAPES = new Set([0x22, 0x5c, 0x62, 0x66, 0x6e, 0x72, 0x74])

/**
 * Returns the index of the closing quote; -1 if there is none before `bound`, or if JSON.stringify would rewrite the
 * text.
 */
function textEnd(bytes: Buffer, start: number, bound: number): number {
  for (let at = start; at < bound; at += 1) {
    const byte = bytes[at] ?? 0
    if (byte === 0x22) return at
    if (byte < 0x20) return -1
    if (byte !== 0x5c) continue
    at += 1
    if (!KEPT_ESCAPES.has(bytes[at] ?? 0)) return -1
  }
  return -1
}

/**
 * Decodes the text; null for bytes that are not UTF-8, or if the text contains the character that replaces such bytes.
 */
function decodeText(bytes: Buffer, start: number, end: number): string | null {
  const text = bytes.toString('utf8', start, end)
  return text.includes('\uFFFD') ? null : text
}

/** Guesses the framing from the bytes that arrived. A wrong guess makes a form that no event has. */
function framingOf(bytes: Uint8Array): Framing {
  return {
    lead: bytes[5] === 0x20 ? 'data: ' : 'data:',
    end: bytes.at(-3) === 0x0a && bytes.at(-2) === 0x0d ? '\r\n\r\n' : '\n\n',
  }
}
