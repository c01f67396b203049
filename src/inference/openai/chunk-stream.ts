// A streamed completion's bytes made into events for the client: chunks, or what another API has in their place. Pure; holds one stream's state.

import type { GatewayError } from '../../contract/inference.ts'
import { ChunkConverter } from './chunk.ts'
import type { CompletionPlan } from './completion-plan.ts'
import { EventReader, type StreamEvent } from './event-reader.ts'
import type { ShapedStream } from './shape.ts'
import { sseEvent } from './sse.ts'
import type { Usage } from './usage.ts'

/** Events for the client. `isEnd`: the end follows. */
export type Batch = { readonly text: string; readonly isEnd: boolean }

export type ChunkStreamLimits = {
  readonly eventBytesMax: number
  /** Of content that is kept for a check of response_format. */
  readonly responseBytesMax: number
}

const DONE = sseEvent('[DONE]')

export class ChunkStream {
  readonly #events: EventReader
  readonly #converter: ChunkConverter
  /** Null: the client gets the chunks. */
  readonly #shaped: ShapedStream | null
  readonly #includesUsage: boolean
  #eventCount = 0

  constructor(plan: CompletionPlan, { eventBytesMax, responseBytesMax }: ChunkStreamLimits) {
    this.#events = new EventReader(eventBytesMax)
    const { shape, obfuscate, request } = plan
    this.#includesUsage = request.includeUsage
    this.#shaped = shape?.openStream({ keptCharsMax: responseBytesMax, obfuscate }) ?? null
    // Padding is for what the client gets.
    this.#converter = new ChunkConverter(shape === null ? plan : { ...plan, obfuscate: null }, responseBytesMax)
  }

  /** What the upstream has reported so far. */
  get usage(): Usage | null {
    return this.#converter.usage
  }

  /** An estimate of the tokens. */
  get deliveredCount(): number {
    return this.#converter.deliveredCount
  }

  /** Of the choices that have ended, in their order. */
  finishReasons(): string[] {
    return this.#converter.finishReasons()
  }

  /** Complete ones of the upstream, comments not included. */
  get eventCount(): number {
    return this.#eventCount
  }

  /** The events that these bytes complete: all of them, or UpstreamFault. */
  push(bytes: Uint8Array, start = 0, end = bytes.length): Batch {
    const events = this.#events.push(bytes, start, end)
    this.#eventCount += events.length
    let text = ''
    for (const event of events) {
      const chunk = this.#convert(event)
      if (chunk === 'end') return { text, isEnd: true }
      if (chunk !== null) text += this.#shaped === null ? sseEvent(chunk) : this.#shaped.push(chunk)
    }
    const { template } = this.#converter
    if (template !== null) this.#events.expect(template)
    return { text, isEnd: false }
  }

  /** Whether no event is incomplete. */
  isClean(): boolean {
    return this.#events.isClean()
  }

  /** Contents of the choices that have ended since the last call, for a check against the strict schema of response_format. */
  takeContents(): readonly string[] {
    return this.#converter.takeContents()
  }

  /** The events of a stream that is whole, after its chunks and before `end`: of chunks the usage, for clients that asked for it. */
  finish(usage: Usage): string {
    if (this.#shaped !== null) return this.#shaped.finish(usage)
    return this.#includesUsage ? sseEvent(this.#converter.usageChunk(usage)) : ''
  }

  /** The last event of a stream that is whole. */
  get end(): string {
    return this.#shaped?.end ?? DONE
  }

  /** The events that end a stream that broke. */
  fail(error: GatewayError): string {
    return this.#shaped?.fail(error) ?? sseEvent(JSON.stringify(error))
  }

  #convert(event: StreamEvent): string | 'end' | null {
    return typeof event === 'string' ? this.#converter.convert(event) : this.#converter.convertTemplated(event)
  }
}
