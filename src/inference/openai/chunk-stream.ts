// Turns the bytes of a streamed completion into events for the client, as OpenAI's chunks or in another API's form.
// Pure; holds one stream's state.

import type { GatewayError } from '../../contract/http/inference.ts'
import { ChunkConverter } from './chunk.ts'
import type { CompletionPlan } from './completion-plan.ts'
import type { DialectStream } from './dialect.ts'
import { EventReader } from './event-reader.ts'
import { COMMENT_PING, sseEvent } from './sse.ts'
import type { Usage } from './usage.ts'

/** Events for the client. `isEnd`: whether the end follows. `eventCount`: number of complete events of the upstream. */
export type Batch = { readonly text: string; readonly isEnd: boolean; readonly eventCount: number }

export type ChunkStreamLimits = {
  readonly eventBytesMax: number
  /** Bound of content that is kept for the check of response_format. */
  readonly responseBytesMax: number
}

const DONE = sseEvent('[DONE]')

export class ChunkStream {
  readonly #events: EventReader
  #valid = ''
  readonly #converter: ChunkConverter
  /** Null if the client gets the chunks. */
  readonly #dialect: DialectStream | null
  readonly #includesUsage: boolean

  constructor(plan: CompletionPlan, { eventBytesMax, responseBytesMax }: ChunkStreamLimits) {
    this.#events = new EventReader(eventBytesMax)
    const { dialect, obfuscate, request } = plan
    this.#includesUsage = request.includeUsage
    this.#dialect = dialect?.openStream({ keptCharsMax: responseBytesMax, obfuscate }) ?? null
    // Only events for the client are padded.
    this.#converter = new ChunkConverter(dialect === null ? plan : { ...plan, obfuscate: null }, responseBytesMax)
  }

  /** Usage that the upstream has reported so far. */
  get usage(): Usage | null {
    return this.#converter.usage
  }

  /** Estimated number of tokens. */
  get deliveredCount(): number {
    return this.#converter.deliveredCount
  }

  /** Returns the finish reasons of the choices that have ended, in order. */
  finishReasons(): string[] {
    return this.#converter.finishReasons()
  }

  /**
   * Returns the events that the bytes from `start` to `end` complete. Throws UpstreamFault if any of them is invalid.
   */
  push(bytes: Uint8Array, start = 0, end = bytes.length): Batch {
    const { texts, data } = this.#events.push(bytes, start, end)
    const eventCount = texts.length + data.length
    let text = ''
    try {
      for (const item of texts) text += this.#eventOf(this.#converter.convertTemplated(item))
      for (const item of data) {
        const chunk = this.#converter.convert(item)
        if (chunk === 'end') return { text, isEnd: true, eventCount }
        if (chunk !== null) text += this.#eventOf(chunk)
      }
    } catch (error) {
      // Contents that are not checked yet stay here.
      if (this.#converter.takeContents().length === 0) this.#valid = text
      throw error
    }
    if (data.length > 0) this.#events.expect(this.#converter.template)
    return { text, isEnd: false, eventCount }
  }

  /** Returns the events in front of the invalid one, which were counted; empty if `push` has not thrown. */
  takeValid(): string {
    const valid = this.#valid
    this.#valid = ''
    return valid
  }

  /** Reports whether no event is incomplete. */
  isClean(): boolean {
    return this.#events.isClean()
  }

  /** Returns the contents of the choices that ended since the last call, to check against a strict response_format. */
  takeContents(): readonly string[] {
    return this.#converter.takeContents()
  }

  /**
   * Returns the events between the last chunk and `end` of a complete stream, such as the usage chunk for clients that
   * requested it.
   */
  finish(usage: Usage): string {
    if (this.#dialect !== null) return this.#dialect.finish(usage)
    return this.#includesUsage ? sseEvent(this.#converter.usageChunk(usage)) : ''
  }

  /** Returns a keep-alive. `place`: position in a queue, sent as a comment. Equal call sequences return equal text. */
  ping(place: string | null = null): string {
    const ping = this.#dialect?.ping() ?? COMMENT_PING
    return place === null ? ping : `: queue ${place}\n\n${ping}`
  }

  /** The last event of a complete stream. */
  get end(): string {
    return this.#dialect?.end ?? DONE
  }

  /** Returns the events that end a broken stream. */
  fail(error: GatewayError): string {
    return this.#dialect?.fail(error) ?? sseEvent(JSON.stringify(error))
  }

  #eventOf(chunk: string): string {
    return this.#dialect === null ? sseEvent(chunk) : this.#dialect.push(chunk)
  }
}
