// The head of a stream that is sent before the first event, and the pings until then. An engine may read a long
// prompt for minutes, and clients treat silence as a failure and retry from the beginning. Effects: the client's
// connection.

import { utf8 } from '../../../base/bytes.ts'
import type { Deadlines } from '../../../base/work/deadlines.ts'
import { ChunkStream, type ChunkStreamLimits } from '../../openai/chunk-stream.ts'
import type { CompletionPlan } from '../../openai/completion-plan.ts'
import { type QueuePlace, queueHeader, queueText } from '../../upstream/queue.ts'
import { errorBody, type ResponseHeaders, streamResponse } from '../responses.ts'
import { type Outlet, type OutletUser, openOutlet, type ReadBy } from './outlet.ts'

/** How long an upstream may take to refuse a request, or to begin, before the client gets the head. */
const headAfterMs = 1_000
/** Longest silence of a stream. */
export const pingEveryMs = 10_000

export type EarlyHeadDeps = {
  readonly deadlines: Deadlines
  readonly limits: ChunkStreamLimits
  readonly readBy: ReadBy
  /** Called once, unless the response has already begun. */
  readonly respond: (response: Response) => void
}

type WaitingStream = {
  readonly plan: CompletionPlan
  /** Called once, when the headers are sent. */
  readonly headers: () => ResponseHeaders
  /** Returns the queue position of the request; null if it is not known to wait. Never rejects. */
  readonly place: () => QueuePlace | null | Promise<QueuePlace | null>
}

/** Sends the headers and pings of one request early. Failover may follow; errors become events. */
export class EarlyHead {
  readonly #deps: EarlyHeadDeps
  #cancelTimer: (() => void) | null = null
  /** Null until the headers are sent. */
  #chunks: ChunkStream | null = null
  /** True between `wait` or `retry` and `pause`. */
  #isWaiting = false
  #place: WaitingStream['place'] | null = null
  /** The place that each ping named; null for a ping without one. */
  readonly #pings: (string | null)[] = []
  /** True while the client has not read the last ping. */
  #hasUnread = false
  #isLeft = false
  /** Null until a reader opens the stream. */
  #outlet: Outlet | null = null
  #user: OutletUser | null = null
  #lastText: string | null = null

  constructor(deps: EarlyHeadDeps) {
    this.#deps = deps
  }

  /** Whether the client has received the headers. */
  get isSent(): boolean {
    return this.#chunks !== null
  }

  /** Pings that the client receives before everything else, each with the place in the queue that it names. */
  get pings(): readonly (string | null)[] {
    return this.#pings
  }

  /** Schedules the headers, or the next ping. Call it when an upstream or a queue (`afterMs`) has the request. */
  wait(stream: WaitingStream, afterMs = headAfterMs): void {
    this.#isWaiting = true
    this.#place = stream.place
    if (this.#chunks === null) this.#after(afterMs, place => this.#send(stream, place))
    else this.#after(pingEveryMs, place => this.#ping(place))
  }

  /** Cancels unsent headers, or resumes pings. Call it after a failed attempt. */
  retry(): void {
    this.pause()
    if (this.#chunks === null) return
    this.#isWaiting = true
    this.#place = null
    this.#after(pingEveryMs, place => this.#ping(place))
  }

  /** Stops headers and pings until the next `wait` or `retry`. */
  pause(): void {
    this.#isWaiting = false
    this.#cancelTimer?.()
    this.#cancelTimer = null
  }

  /** Hands the stream to `user`. Returns false if the headers were not sent; then the caller responds. */
  handOver(user: OutletUser): boolean {
    this.pause()
    if (this.#chunks === null) return false
    this.#user = user
    if (this.#outlet !== null) user.onOpen(this.#outlet)
    if (this.#isLeft) user.onLeave()
    return true
  }

  /** Ends the stream with the error. Call it only if `isSent`. */
  fail(error: unknown): void {
    this.pause()
    this.#lastText = this.#chunks?.fail(errorBody(error)) ?? ''
    this.#end()
  }

  #send({ headers, plan }: WaitingStream, place: string | null): void {
    const { limits, readBy, respond } = this.#deps
    this.#chunks = new ChunkStream(plan, limits)
    const body = openOutlet(readBy, {
      onOpen: outlet => this.#open(outlet),
      // Until `handOver`, the request's signal reports a disconnect.
      onLeave: () => {
        this.#isLeft = true
        this.#user?.onLeave()
      },
    })
    const { [queueHeader]: waited, ...others } = headers()
    const queue = [waited, place].filter(part => typeof part === 'string').join(', ')
    respond(streamResponse(body, queue === '' ? others : { ...others, [queueHeader]: queue }))
  }

  #open(outlet: Outlet): void {
    this.#outlet = outlet
    if (this.#lastText !== null) this.#end()
    else if (this.#user !== null) this.#user.onOpen(outlet)
    else if (this.#isWaiting) this.#ping(null)
  }

  /** Sends nothing before the stream is open or while the client does not read, because texts would pile up. */
  #ping(place: string | null): void {
    if (this.#chunks !== null && this.#outlet !== null && !this.#hasUnread) {
      this.#pings.push(place)
      const taken = this.#outlet.write(utf8(this.#chunks.ping(place)))
      this.#hasUnread = taken !== null
      const read = () => {
        this.#hasUnread = false
      }
      taken?.then(read, read)
    }
    this.#after(pingEveryMs, next => this.#ping(next))
  }

  #after(ms: number, then: (place: string | null) => void): void {
    this.#cancelTimer?.()
    let isDue = true
    const cancel = this.#deps.deadlines.after(ms, async () => {
      const place = (await this.#place?.()) ?? null
      if (isDue) then(place === null ? null : queueText(place))
    })
    this.#cancelTimer = () => {
      isDue = false
      cancel()
    }
  }

  #end(): void {
    if (this.#outlet === null) return
    void this.#outlet.write(utf8(this.#lastText ?? ''))
    this.#outlet.close()
  }
}
