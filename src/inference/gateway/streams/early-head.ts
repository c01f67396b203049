// The head of a stream that goes out before the first event, and the pings until then: an engine may read a long prompt
// for minutes, and clients take silence for a failure and ask again from the beginning. Effects: the client's
// connection.

import { utf8 } from '../../../base/bytes.ts'
import type { Deadlines } from '../../../base/work/deadlines.ts'
import { ChunkStream, type ChunkStreamLimits } from '../../openai/chunk-stream.ts'
import type { CompletionPlan } from '../../openai/completion-plan.ts'
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
  /** Called once, unless the response has begun before. */
  readonly respond: (response: Response) => void
}

type WaitingStream = { readonly headers: ResponseHeaders; readonly plan: CompletionPlan }

/** Sends one request's headers and pings early. Failover may follow; errors become events. */
export class EarlyHead {
  readonly #deps: EarlyHeadDeps
  #cancelTimer: (() => void) | null = null
  /** Null until the headers are sent. */
  #chunks: ChunkStream | null = null
  /** True between `wait` or `retry` and `pause`. */
  #isWaiting = false
  #pingCount = 0
  /** The client has not read the last ping yet. */
  #hasUnread = false
  #isLeft = false
  /** Null until a reader opens the stream. */
  #outlet: Outlet | null = null
  #user: OutletUser | null = null
  #lastText: string | null = null

  constructor(deps: EarlyHeadDeps) {
    this.#deps = deps
  }

  /** Whether the client has the headers. */
  get isSent(): boolean {
    return this.#chunks !== null
  }

  /** Pings that the client gets before everything else. */
  get pingCount(): number {
    return this.#pingCount
  }

  /** Schedules the headers of `job`, or the next ping. Call when an upstream has the request. */
  wait(job: WaitingStream): void {
    this.#isWaiting = true
    if (this.#chunks === null) this.#after(headAfterMs, () => this.#send(job))
    else this.#after(pingEveryMs, () => this.#ping())
  }

  /** Cancels unsent headers, or resumes pings. Call after a failed attempt. */
  retry(): void {
    this.pause()
    if (this.#chunks === null) return
    this.#isWaiting = true
    this.#after(pingEveryMs, () => this.#ping())
  }

  /** Stops headers and pings until the next `wait` or `retry`. */
  pause(): void {
    this.#isWaiting = false
    this.#cancelTimer?.()
    this.#cancelTimer = null
  }

  /** Hands the stream to `user`. Returns false if headers were not sent: the caller responds. */
  handOver(user: OutletUser): boolean {
    this.pause()
    if (this.#chunks === null) return false
    this.#user = user
    if (this.#outlet !== null) user.onOpen(this.#outlet)
    if (this.#isLeft) user.onLeave()
    return true
  }

  /** Ends the stream with the error. Call only if `isSent`. */
  fail(error: unknown): void {
    this.pause()
    this.#lastText = this.#chunks?.fail(errorBody(error)) ?? ''
    this.#end()
  }

  #send({ headers, plan }: WaitingStream): void {
    const { limits, readBy, respond } = this.#deps
    this.#chunks = new ChunkStream(plan, limits)
    const body = openOutlet(readBy, {
      onOpen: outlet => this.#open(outlet),
      // Before `handOver`, the request's signal reports a disconnect.
      onLeave: () => {
        this.#isLeft = true
        this.#user?.onLeave()
      },
    })
    respond(streamResponse(body, headers))
  }

  #open(outlet: Outlet): void {
    this.#outlet = outlet
    if (this.#lastText !== null) this.#end()
    else if (this.#user !== null) this.#user.onOpen(outlet)
    else if (this.#isWaiting) this.#ping()
  }

  /** Sends nothing before the stream is open, and while the client does not read: texts would pile up. */
  #ping(): void {
    if (this.#chunks !== null && this.#outlet !== null && !this.#hasUnread) {
      this.#pingCount += 1
      const taken = this.#outlet.write(utf8(this.#chunks.ping()))
      this.#hasUnread = taken !== null
      const read = () => {
        this.#hasUnread = false
      }
      taken?.then(read, read)
    }
    this.#after(pingEveryMs, () => this.#ping())
  }

  #after(ms: number, then: () => void): void {
    this.#cancelTimer?.()
    this.#cancelTimer = this.#deps.deadlines.after(ms, then)
  }

  #end(): void {
    if (this.#outlet === null) return
    void this.#outlet.write(utf8(this.#lastText ?? ''))
    this.#outlet.close()
  }
}
