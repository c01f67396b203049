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
  /** Of an event whose text is empty, as the parser counts: without line ends. */
  readonly lineBytes: number
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

  /** The events that these bytes complete, in order. UpstreamFault malformed or too_large. */
  push(bytes: Uint8Array): StreamEvent[] {
    if (!this.#parser.isBetweenEvents()) return this.#parser.push(bytes)
    const buffer = asBuffer(bytes)
    const events: StreamEvent[] = []
    let at = 0
    if (this.#form !== null) at = takeFormed(this.#form, { buffer, eventBytesMax: this.#eventBytesMax, events })
    if (at === buffer.length) return events
    const rest = at === 0 ? buffer : buffer.subarray(at)
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
    this.#form = { template, before, after, lineBytes: before.length + after.length - end.length }
  }
}

const LINE_END = /[\r\n]/

function asBuffer(bytes: Uint8Array): Buffer {
  return bytes instanceof Buffer ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

type Taking = { readonly buffer: Buffer; readonly eventBytesMax: number; readonly events: StreamEvent[] }

/** Takes events of a form from the beginning; gives where the first one begins that has another form, is too large, or is not complete. */
function takeFormed(form: EventForm, { buffer, eventBytesMax, events }: Taking): number {
  const { template, before, after, lineBytes } = form
  let at = 0
  while (at + before.length < buffer.length) {
    const start = at + before.length
    if (buffer.compare(before, 0, before.length, at, start) !== 0) break
    const { end, isAscii } = textEnd(buffer, start)
    if (end <= start || end - start + lineBytes > eventBytesMax) break
    const next = end + after.length
    if (next > buffer.length || buffer.compare(after, 0, after.length, end, next) !== 0) break
    const text = isAscii ? buffer.toString('latin1', start, end) : textOf(buffer, start, end)
    if (text === null) break
    events.push({ template, text })
    at = next
  }
  return at
}

/** Of the escapes of JSON (RFC 8259 section 7) those that JSON.stringify writes: `"\\bfnrt`. Of the others it makes other bytes. */
const KEPT_ESCAPES = new Set([0x22, 0x5c, 0x62, 0x66, 0x6e, 0x72, 0x74])

const NO_TEXT = { end: -1, isAscii: true }

/** `end`: index of the quote that ends the text; -1 when there is none, or when JSON.stringify would not write the text as it stands. */
function textEnd(bytes: Uint8Array, start: number): { readonly end: number; readonly isAscii: boolean } {
  let bits = 0
  for (let at = start; at < bytes.length; at += 1) {
    const byte = bytes[at] ?? 0
    if (byte === 0x22) return { end: at, isAscii: bits < 0x80 }
    if (byte < 0x20) return NO_TEXT
    bits |= byte
    if (byte !== 0x5c) continue
    at += 1
    if (!KEPT_ESCAPES.has(bytes[at] ?? 0)) return NO_TEXT
  }
  return NO_TEXT
}

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** Null for bytes that are not UTF-8. */
function textOf(buffer: Buffer, start: number, end: number): string | null {
  try {
    return decoder.decode(buffer.subarray(start, end))
  } catch {
    return null
  }
}

/** A guess from what arrived: a wrong one makes a form that no event has. */
function framingOf(bytes: Buffer): Framing {
  return {
    lead: bytes[5] === 0x20 ? 'data: ' : 'data:',
    end: bytes.at(-3) === 0x0a && bytes.at(-2) === 0x0d ? '\r\n\r\n' : '\n\n',
  }
}
