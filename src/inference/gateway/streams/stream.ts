// A streamed completion: reads the upstream's bytes and sends checked events as fast as the client reads. Effects:
// reads one response.

import { receiptComment } from '../../../attest/receipt/response.ts'
import { utf8 } from '../../../base/bytes.ts'
import type { Deadlines, MovingDeadline } from '../../../base/work/deadlines.ts'
import type { TokensSource } from '../../../store/directory/usage/usage.table.ts'
import { UpstreamFault } from '../../failure.ts'
import { type Batch, ChunkStream, type ChunkStreamLimits } from '../../openai/chunk-stream.ts'
import type { TokenCounts } from '../../openai/completion.ts'
import type { CompletionPlan } from '../../openai/completion-plan.ts'
import { isPlausible, tokensOf, type Usage, usageOf, withoutCached } from '../../openai/usage.ts'
import type { ResponseSeal, Tokens } from '../../types.ts'
import type { BodyFlow, BodySink, UpstreamResponse } from '../../upstream/connection.ts'
import { errorBody } from '../responses.ts'
import { type EarlyHead, pingEveryMs } from './early-head.ts'
import { type Outlet, openOutlet, type ReadBy } from './outlet.ts'

export type StreamLimits = ChunkStreamLimits & {
  /** Maximum time between two events; comments and incomplete events do not count. */
  readonly idleTimeoutMs: number
  /** Maximum time until the first event, from when the gateway begins to read; 0 for no limit. */
  readonly firstByteTimeoutMs: number
  /** How long a client may leave available data unread. */
  readonly stallTimeoutMs: number
}

export type StreamEnd = {
  readonly outcome: 'completed' | 'aborted' | 'failed'
  /** Null unless the outcome is `failed`. */
  readonly error: unknown
  /** The upstream's counts; without them an estimate of the prompt and one token per delivered chunk. */
  readonly tokens: Tokens
  readonly tokensSource: TokensSource
  /** Returns the finish reasons of the choices that have ended. */
  readonly finishReasons: () => string[]
  /** The receipt being signed. It is stored only for an open request, so the account closes after it. */
  readonly signed: Promise<unknown> | null
}

export type StreamDeps = {
  readonly deadlines: Deadlines
  readonly limits: StreamLimits
  readonly plan: CompletionPlan
  readonly counts: TokenCounts
  /** Null if there is no receipt. */
  readonly seal: ResponseSeal | null
  /**
   * Called once and awaited before the end is sent, so that the ledger is correct when the client has everything. Never
   * rejects.
   */
  readonly onEnd: (end: StreamEnd) => Promise<void>
  /** Aborted when the client leaves. */
  readonly signal: AbortSignal
  readonly readBy: ReadBy
  /** Null if no headers or pings were sent early. */
  readonly early: Pick<EarlyHead, 'pings' | 'pause' | 'handOver'> | null
}

/**
 * Reads up to the first event. Until then, a failure is an UpstreamFault with a status; later failures are events.
 * Rejects with the signal's reason if the client has left.
 */
export function openStream(upstream: UpstreamResponse, deps: StreamDeps): Promise<OpenedStream> {
  return new StreamRelay(upstream, deps).open()
}

export type OpenedStream = {
  /** Null if the early head already opened the stream. */
  readonly body: ReadableStream<Uint8Array> | null
  /** Returns the number of chunks that the client has received so far. */
  readonly countDelivered: () => number
}

const drainTimeoutMs = 1_000

/** Awaits the first events, then pushes the rest from socket to socket while the client takes it. */
class StreamRelay implements BodySink {
  readonly #upstream: UpstreamResponse
  readonly #deps: StreamDeps
  readonly #chunks: ChunkStream
  /** Deadline of the upstream's next event. */
  readonly #idleDeadline: MovingDeadline
  /** Deadline of the next ping. */
  readonly #pingDeadline: MovingDeadline
  /** Deadline of the client's next read. */
  readonly #stallDeadline: MovingDeadline
  /** Deadline of the upstream's end after [DONE]. */
  readonly #drainDeadline: MovingDeadline
  #outlet: Outlet | null = null
  #flow: BodyFlow | null = null
  #receivedBytes = 0
  #earlyPings = 0
  /** Whether [DONE] has arrived. */
  #isDraining = false
  #isEnded = false
  /** Whether the client has left, or does not read. */
  #isLeft = false

  constructor(upstream: UpstreamResponse, deps: StreamDeps) {
    const { deadlines, limits, plan } = deps
    this.#upstream = upstream
    this.#deps = deps
    this.#chunks = new ChunkStream(plan, limits)
    this.#idleDeadline = deadlines.moving(() => this.#fail(new UpstreamFault('idle_timeout')))
    this.#pingDeadline = deadlines.moving(() => this.#ping())
    this.#stallDeadline = deadlines.moving(() => {
      this.#abort()
      this.#outlet?.fail(new Error('the client stopped reading'))
    })
    this.#drainDeadline = deadlines.moving(upstream.abort)
  }

  async open(): Promise<OpenedStream> {
    const first = await this.#readFirst().catch(error => {
      throw error instanceof UpstreamFault ? error.charged(tokensOf(this.#counted().usage)) : error
    })
    const { signal, limits, readBy, early } = this.#deps
    signal.throwIfAborted()
    // In addition to `onLeave`, which is called only after reading of the stream has begun.
    signal.addEventListener('abort', () => this.#abort(), { once: true })
    this.#stallDeadline.set(limits.stallTimeoutMs)
    const user = { onOpen: (outlet: Outlet) => this.#begin(outlet, first), onLeave: () => this.#abort() }
    const body = early?.handOver(user) === true ? null : openOutlet(readBy, user)
    return { body, countDelivered: () => this.#chunks.deliveredCount }
  }

  // Called by the upstream's body.

  onBytes(bytes: Buffer, start: number, end: number): void {
    // Bytes after [DONE] make the connection unusable for another request.
    if (this.#isDraining) this.#upstream.abort()
    if (this.#isDraining || this.#isEnded) return
    try {
      const batch = this.#take(bytes, start, end)
      if (batch.eventCount > 0) this.#idleDeadline.set(this.#deps.limits.idleTimeoutMs)
      const contents = this.#chunks.takeContents()
      if (contents.length === 0) this.#deliver(batch)
      else void this.#deliverChecked(contents, batch)
    } catch (error) {
      this.#fail(error)
    }
  }

  onEnd(): void {
    if (this.#isDraining) this.#drainDeadline.clear()
    else this.#fail(this.#endFault())
  }

  onFailure(error: unknown): void {
    if (this.#isDraining) this.#drainDeadline.clear()
    else this.#fail(error)
  }

  /** Returns the first events for the client: at least one, or the end. */
  async #readFirst(): Promise<Batch> {
    const { deadlines, limits, early } = this.#deps
    let isLate = false
    const late = () => {
      isLate = true
      this.#upstream.abort()
    }
    const cancelTimeout = limits.firstByteTimeoutMs === 0 ? null : deadlines.after(limits.firstByteTimeoutMs, late)
    try {
      while (true) {
        const bytes = await this.#upstream.read()
        if (bytes === null) throw this.#endFault()
        this.#catchUp()
        const batch = this.#take(bytes, 0, bytes.length)
        if (batch.text === '' && !batch.isEnd) continue
        early?.pause()
        cancelTimeout?.()
        const contents = this.#chunks.takeContents()
        if (contents.length > 0) await this.#deps.plan.schema?.(contents)
        return batch
      }
    } catch (error) {
      throw isLate ? new UpstreamFault('first_byte_timeout') : error
    } finally {
      cancelTimeout?.()
    }
  }

  /** Replays early pings through converter and seal, because ids and receipt must match the sent bytes. */
  #catchUp(): void {
    const { early, seal } = this.#deps
    for (const place of early?.pings.slice(this.#earlyPings) ?? []) {
      const text = this.#chunks.ping(place)
      this.#earlyPings += 1
      seal?.update(utf8(text))
    }
  }

  #take(bytes: Uint8Array, start: number, end: number): Batch {
    this.#receivedBytes += end - start
    return this.#chunks.push(bytes, start, end)
  }

  /** Returns the fault of a body that ended without [DONE]. */
  #endFault(): UpstreamFault {
    return new UpstreamFault(this.#chunks.isClean() ? 'unfinished' : 'cut')
  }

  #begin(outlet: Outlet, first: Batch): void {
    this.#stallDeadline.clear()
    if (this.#isEnded) return
    this.#outlet = outlet
    this.#flow = this.#upstream.pushTo(this)
    if (this.#deliver(first)) this.#goOn()
  }

  /** Returns whether the next events may arrive at once. */
  #deliver({ text, isEnd }: Batch): boolean {
    const taken = text === '' ? null : this.#send(text)
    if (isEnd) void this.#complete().catch(error => this.#fail(error))
    else if (taken !== null) this.#waitUntil(taken)
    return !isEnd && taken === null
  }

  async #deliverChecked(contents: readonly string[], batch: Batch): Promise<void> {
    this.#flow?.pause()
    this.#idleDeadline.clear()
    this.#pingDeadline.clear()
    try {
      await this.#deps.plan.schema?.(contents)
      if (!this.#isEnded && this.#deliver(batch)) this.#goOn()
    } catch (error) {
      this.#fail(error)
    }
  }

  /**
   * Pauses reading until the client accepts more. Meanwhile, silence of the upstream is not a failure, unless the last
   * write was a ping.
   */
  #waitUntil(taken: Promise<unknown>, isPing = false): void {
    this.#flow?.pause()
    if (!isPing) this.#idleDeadline.clear()
    this.#pingDeadline.clear()
    this.#stallDeadline.set(this.#deps.limits.stallTimeoutMs)
    // Rejects if the client has left; otherwise the deadline ends the stream.
    taken.then(
      () => this.#goOn(isPing),
      () => {},
    )
  }

  /** Resumes reading. A ping proves nothing about the upstream, so the deadline of its next event stays. */
  #goOn(isPing = false): void {
    if (this.#isEnded) return
    this.#stallDeadline.clear()
    this.#pingDeadline.set(pingEveryMs)
    if (!isPing) this.#idleDeadline.set(this.#deps.limits.idleTimeoutMs)
    this.#flow?.resume()
  }

  /** Writes the text; returns the same as the outlet's `write`. */
  #send(text: string): Promise<unknown> | null {
    const { seal } = this.#deps
    this.#pingDeadline.set(pingEveryMs)
    // The receipt hashes exactly the bytes that are sent.
    const data = seal === null ? text : utf8(text)
    if (typeof data !== 'string') seal?.update(data)
    return this.#outlet?.write(data) ?? null
  }

  #ping(): void {
    const taken = this.#send(this.#chunks.ping())
    if (taken !== null) this.#waitUntil(taken, true)
  }

  async #complete(): Promise<void> {
    const { seal } = this.#deps
    this.#drain()
    const { usage } = this.#counted()
    const last = this.#chunks.finish(usage)
    const { end } = this.#chunks
    seal?.update(utf8(last + end))
    let text = last + end
    try {
      // Runs both at once: while the signature waits for others, the stream holds no place at its upstream.
      const signed = seal?.finish(tokensOf(usage)) ?? null
      const [receipt] = await Promise.all([signed, this.#end('completed', null, signed)])
      if (receipt !== null) text = last + receiptComment(receipt) + end
    } catch (error) {
      text = this.#chunks.fail(errorBody(error))
    }
    if (this.#isLeft) return
    void this.#outlet?.write(utf8(text))
    this.#outlet?.close()
  }

  /** Waits for the end of the body after [DONE], so that the connection can be reused. Nothing should follow. */
  #drain(): void {
    this.#isDraining = true
    this.#idleDeadline.clear()
    this.#pingDeadline.clear()
    this.#drainDeadline.set(drainTimeoutMs)
    this.#flow?.resume()
  }

  #fail(error: unknown): void {
    if (this.#isEnded) return
    // Another listener may have aborted the upstream first because the client left.
    if (this.#deps.signal.aborted) this.#abort()
    else void this.#endFailed(error)
  }

  async #endFailed(error: unknown): Promise<void> {
    // First, because aborting the upstream also causes a failure of its body, which would not wait for the ledger.
    const booked = this.#end('failed', error)
    this.#drainDeadline.clear()
    this.#upstream.abort()
    await booked
    if (this.#isLeft) return
    void this.#outlet?.write(utf8(this.#chunks.takeValid() + this.#chunks.fail(errorBody(error))))
    this.#outlet?.close()
  }

  /** Ends the stream of a client that has left, or does not read. */
  #abort(): void {
    this.#isLeft = true
    void this.#end('aborted', null)
    this.#drainDeadline.clear()
    this.#upstream.abort()
  }

  async #end(outcome: StreamEnd['outcome'], error: unknown, signed: StreamEnd['signed'] = null): Promise<void> {
    if (this.#isEnded) return
    this.#isEnded = true
    this.#idleDeadline.clear()
    this.#pingDeadline.clear()
    this.#stallDeadline.clear()
    const { usage, tokensSource } = this.#counted()
    const finishReasons = () => this.#chunks.finishReasons()
    await this.#deps.onEnd({ outcome, error, tokens: tokensOf(usage), tokensSource, finishReasons, signed })
  }

  #counted(): { readonly usage: Usage; readonly tokensSource: TokensSource } {
    const { usage, deliveredCount } = this.#chunks
    const { bounds, promptEstimate, showsCached } = this.#deps.counts
    if (usage !== null && isPlausible(usage, bounds, this.#receivedBytes)) {
      return { usage: showsCached ? usage : withoutCached(usage), tokensSource: 'reported' }
    }
    const estimate = usageOf({ prompt: promptEstimate, completion: deliveredCount })
    return { usage: estimate, tokensSource: usage === null ? 'estimated' : 'implausible' }
  }
}
