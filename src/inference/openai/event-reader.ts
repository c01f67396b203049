// The events of a stream out of its bytes: in full by the event-stream parser, and in two comparisons and one pass over the text where an event has
// the form of one before it. Pure; holds one stream's state.
//
// What comes out is what the parser would have given: an event is taken by its form only where the parser stands between two events, and only when
// its text needs no rewriting. The events of one push are all or none, in either way.

import type { ChunkTemplate, TemplatedEvent } from './chunk-template.ts'
import { createSseParser, type SseParser } from './sse.ts'

/** The data of an event, or what it is in terms of a template. */
export type StreamEvent = string | TemplatedEvent

/** How an upstream writes an event around its data. Others than these are parsed in full. */
type Framing = { readonly lead: string; readonly end: string }

/** A template as bytes of an event. */
type EventForm = {
  readonly template: ChunkTemplate
  readonly before: Buffer
  readonly after: Buffer
  /** With more the event is over the limit, which counts it without its line ends. */
  readonly textBytesMax: number
}

export class EventReader {
  readonly #parser: SseParser
  readonly #eventBytesMax: number
  #form: EventForm | null = null
  #framing: Framing = { lead: 'data: ', end: '\n\n' }

  constructor(eventBytesMax: number) {
    this.#parser = createSseParser(eventBytesMax)
    this.#eventBytesMax = eventBytesMax
  }

  /** The events that the bytes from `start` to `end` complete, in order. UpstreamFault malformed or too_large. */
  push(bytes: Uint8Array, start: number, end: number): StreamEvent[] {
    if (!this.#parser.isBetweenEvents()) return this.#parser.push(bytes.subarray(start, end))
    const buffer = asBuffer(bytes)
    const events: StreamEvent[] = []
    let at = start
    if (this.#form !== null) {
      while (at < end) {
        const textStart = at + this.#form.before.length
        const textEnd = formedTextEnd(this.#form, buffer, at, end)
        const text = textEnd < 0 ? null : textOf(buffer, textStart, textEnd)
        if (text === null) break
        events.push({ template: this.#form.template, text })
        at = textEnd + this.#form.after.length
      }
      if (at === end) return events
    }
    const rest = buffer.subarray(at, end)
    this.#framing = framingOf(rest)
    const parsed = this.#parser.push(rest)
    return events.length === 0 ? parsed : [...events, ...parsed]
  }

  /** Whether no event is incomplete, so that the stream may end here. */
  isClean(): boolean {
    return this.#parser.isClean()
  }

  /** Takes events of this form from the next push on, in the place of those of another. */
  expect(template: ChunkTemplate): void {
    if (this.#form?.template === template) return
    this.#form = null
    // Data of several lines: in one line it would not be the same event.
    if (LINE_END.test(template.dataBefore) || LINE_END.test(template.dataAfter)) return
    const { lead, end } = this.#framing
    const before = Buffer.from(lead + template.dataBefore)
    const after = Buffer.from(template.dataAfter + end)
    const textBytesMax = this.#eventBytesMax - before.length - after.length + end.length
    this.#form = { template, before, after, textBytesMax }
  }
}

const LINE_END = /[\r\n]/

function asBuffer(bytes: Uint8Array): Buffer {
  return bytes instanceof Buffer ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

/** Where the text ends of the event that begins at `at`; -1 for one that has another form, is too large or empty, or has not arrived by `bound`. */
function formedTextEnd({ before, after, textBytesMax }: EventForm, bytes: Buffer, at: number, bound: number): number {
  const start = at + before.length
  if (start >= bound || bytes.compare(before, 0, before.length, at, start) !== 0) return -1
  const end = textEnd(bytes, start, Math.min(bound, start + textBytesMax + 1))
  const next = end + after.length
  if (end <= start || next > bound || bytes.compare(after, 0, after.length, end, next) !== 0) return -1
  return end
}

/** Of the escapes of JSON (RFC 8259 section 7) those that JSON.stringify writes: `"\\bfnrt`. Of the others it makes other bytes. */
const KEPT_ESCAPES = new Set([0x22, 0x5c, 0x62, 0x66, 0x6e, 0x72, 0x74])

/** Index of the quote that ends the text; -1 when there is none before `bound`, or when JSON.stringify would not write the text as it stands. */
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

/** Null for bytes that are not UTF-8, and for a text in which such would show as the same character. */
function textOf(bytes: Buffer, start: number, end: number): string | null {
  const text = bytes.toString('utf8', start, end)
  return text.includes('\uFFFD') ? null : text
}

/** A guess from what arrived: a wrong one makes a form that no event has. */
function framingOf(bytes: Buffer): Framing {
  return {
    lead: bytes[5] === 0x20 ? 'data: ' : 'data:',
    end: bytes.at(-3) === 0x0a && bytes.at(-2) === 0x0d ? '\r\n\r\n' : '\n\n',
  }
}
