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

/** One request's. After the head another upstream may still be tried; its failure is an event. */
export class EarlyHead {
  readonly #deps: EarlyHeadDeps
  #cancelTimer: (() => void) | null = null
  /** Null: the head is not out. */
  #chunks: ChunkStream | null = null
  #pingCount = 0
  /** Null: nothing reads the stream yet. */
  #outlet: Outlet | null = null
  #user: OutletUser | null = null
  #lastText: string | null = null

  constructor(deps: EarlyHeadDeps) {
    this.#deps = deps
  }

  get isOut(): boolean {
    return this.#chunks !== null
  }

  /** Pings that the client gets before everything else. */
  get pingCount(): number {
    return this.#pingCount
  }

  /** An upstream has the request. `job`: its headers and its plan are those of the stream. */
  wait(job: WaitingStream): void {
    if (this.#chunks === null) this.#after(headAfterMs, () => this.#send(job))
    else this.#pingLater()
  }

  /** The upstream has failed, and another one may follow. */
  retry(): void {
    if (this.#chunks === null) this.pause()
    else this.#pingLater()
  }

  /** Until the next call of `wait` or `retry`: no head, and no ping. */
  pause(): void {
    this.#cancelTimer?.()
    this.#cancelTimer = null
  }

  /** Gives the rest of the stream to `user`. False: the head is not out, and the response is the caller's. */
  take(user: OutletUser): boolean {
    this.pause()
    if (this.#chunks === null) return false
    this.#user = user
    if (this.#outlet !== null) user.onOpen(this.#outlet)
    return true
  }

  /** Ends the stream with the error. Only where the head is out. */
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
      // Until there is a user, the request's signal tells.
      onLeave: () => this.#user?.onLeave(),
    })
    respond(streamResponse(body, headers))
  }

  #open(outlet: Outlet): void {
    this.#outlet = outlet
    if (this.#lastText !== null) this.#end()
    else if (this.#user !== null) this.#user.onOpen(outlet)
    else this.#ping()
  }

  #ping(): void {
    const text = this.#chunks?.ping() ?? ''
    this.#pingCount += 1
    void this.#outlet?.write(utf8(text))
    this.#pingLater()
  }

  #pingLater(): void {
    this.#after(pingEveryMs, () => this.#ping())
  }

  #after(ms: number, then: () => void): void {
    this.pause()
    this.#cancelTimer = this.#deps.deadlines.after(ms, then)
  }

  #end(): void {
    if (this.#outlet === null) return
    void this.#outlet.write(utf8(this.#lastText ?? ''))
    this.#outlet.close()
  }
}
