// A streamed completion on its way: the upstream's bytes in, checked events out, as fast as the client reads. Effects: reads one response.

import { receiptComment } from '../../attest/receipt/response.ts'
import { utf8 } from '../../base/bytes.ts'
import type { Deadlines } from '../../base/deadlines.ts'
import type { TokensSource } from '../../store/directory/usage.table.ts'
import { type Batch, ChunkStream, type ChunkStreamLimits } from '../openai/chunk-stream.ts'
import type { TokenCounts } from '../openai/completion.ts'
import type { CompletionPlan } from '../openai/completion-plan.ts'
import { sseEvent } from '../openai/sse.ts'
import { isPlausible, tokensOf, type Usage, usageOf } from '../openai/usage.ts'
import type { ResponseSeal, Tokens } from '../types.ts'
import type { UpstreamResponse } from '../upstream/connection.ts'
import { UpstreamFault } from '../upstream/fault.ts'
import { errorBody } from './responses.ts'

export type StreamLimits = ChunkStreamLimits & {
  /** Between two events; comments and incomplete events do not count. */
  readonly idleTimeoutMs: number
  /** Until the first event, from when the gateway begins to read. */
  readonly firstByteTimeoutMs: number
  /** How long a client may read nothing while there is something for it. */
  readonly stallTimeoutMs: number
}

export type StreamEnd = {
  readonly outcome: 'completed' | 'aborted' | 'failed'
  /** Null unless the outcome is `failed`. */
  readonly error: unknown
  /** As the upstream counted them, else the prompt's estimate and a token for each chunk that was delivered. */
  readonly tokens: Tokens
  readonly tokensSource: TokensSource
}

export type StreamDeps = {
  readonly deadlines: Deadlines
  readonly limits: StreamLimits
  readonly plan: CompletionPlan
  readonly counts: TokenCounts
  /** Null: no receipt. */
  readonly seal: ResponseSeal | null
  /** Called once, and awaited before [DONE] is sent: so the ledger is right when the client has everything. Never rejects. */
  readonly onEnd: (end: StreamEnd) => Promise<void>
  /** Aborted when the client leaves. */
  readonly signal: AbortSignal
}

/**
 * Reads up to the first event, so that a failure until then can still be a status: UpstreamFault. Later failures are events.
 * Rejects with the signal's reason when the client has left.
 */
export function openStream(upstream: UpstreamResponse, deps: StreamDeps): Promise<ReadableStream<Uint8Array>> {
  return new StreamRelay(upstream, deps).open()
}

type Controller = ReadableStreamDefaultController<Uint8Array>

const DONE = utf8(sseEvent('[DONE]'))
const drainTimeoutMs = 1_000

class StreamRelay {
  readonly #upstream: UpstreamResponse
  readonly #deps: StreamDeps
  readonly #chunks: ChunkStream
  /** For the upstream's next event. */
  readonly #idleDeadline: MovingDeadline
  /** For the client's next read. */
  readonly #stallDeadline: MovingDeadline
  #controller: Controller | null = null
  /** Read before the stream was opened. */
  #ready: Batch | null = null
  #receivedBytes = 0
  #isLate = false
  #isBegun = false
  #isEnded = false
  /** The client has left, or does not read. */
  #isLeft = false

  constructor(upstream: UpstreamResponse, deps: StreamDeps) {
    const { deadlines, limits, plan } = deps
    this.#upstream = upstream
    this.#deps = deps
    this.#chunks = new ChunkStream(plan, limits)
    this.#idleDeadline = new MovingDeadline(deadlines, () => {
      this.#isLate = true
      upstream.abort()
    })
    this.#stallDeadline = new MovingDeadline(deadlines, () => {
      this.#abort()
      this.#controller?.error(new Error('the client does not read'))
    })
  }

  async open(): Promise<ReadableStream<Uint8Array>> {
    this.#ready = await this.#readBatch().catch(error => {
      throw error instanceof UpstreamFault ? error.charged(tokensOf(this.#counted().usage)) : error
    })
    this.#deps.signal.throwIfAborted()
    // Besides `cancel`, which is called only after something has begun to read the stream.
    this.#deps.signal.addEventListener('abort', () => this.#abort(), { once: true })
    return new ReadableStream<Uint8Array>(
      {
        start: controller => {
          this.#controller = controller
          this.#stallDeadline.set(this.#deps.limits.stallTimeoutMs)
        },
        pull: controller => this.#pull(controller),
        cancel: () => this.#abort(),
      },
      { highWaterMark: 0 },
    )
  }

  async #pull(controller: Controller): Promise<void> {
    this.#stallDeadline.clear()
    try {
      const batch = this.#ready ?? (await this.#readBatch())
      this.#ready = null
      if (this.#isEnded) return
      if (batch.text !== '') this.#send(controller, batch.text)
      if (batch.isEnd) await this.#complete(controller)
      else this.#stallDeadline.set(this.#deps.limits.stallTimeoutMs)
    } catch (error) {
      if (!this.#isEnded) await this.#fail(controller, error)
    }
  }

  /** The client has left, or does not read. */
  #abort(): void {
    this.#upstream.abort()
    this.#isLeft = true
    void this.#end('aborted', null)
  }

  /** The next events for the client, at least one of them or the end. */
  async #readBatch(): Promise<Batch> {
    const batch = await this.#readEvents()
    const contents = this.#chunks.takeContents()
    if (contents.length > 0) await this.#deps.plan.schema?.(contents)
    return batch
  }

  async #readEvents(): Promise<Batch> {
    const { firstByteTimeoutMs, idleTimeoutMs } = this.#deps.limits
    this.#idleDeadline.set(this.#isBegun ? idleTimeoutMs : firstByteTimeoutMs)
    try {
      while (true) {
        const bytes = await this.#upstream.read()
        if (bytes === null) throw new UpstreamFault(this.#chunks.isClean() ? 'unfinished' : 'cut')
        this.#receivedBytes += bytes.length
        const { eventCount } = this.#chunks
        const batch = this.#chunks.push(bytes)
        if (this.#isBegun && this.#chunks.eventCount > eventCount) this.#idleDeadline.set(idleTimeoutMs)
        if (batch.text === '' && !batch.isEnd) continue
        this.#isBegun = true
        return batch
      }
    } catch (error) {
      throw this.#isLate ? new UpstreamFault(this.#isBegun ? 'idle_timeout' : 'first_byte_timeout') : error
    } finally {
      // Until the client reads again, silence of the upstream is not a failure.
      this.#idleDeadline.clear()
    }
  }

  #send(controller: Controller, text: string): void {
    const bytes = utf8(text)
    this.#deps.seal?.update(bytes)
    controller.enqueue(bytes)
  }

  async #complete(controller: Controller): Promise<void> {
    const { plan, seal, deadlines } = this.#deps
    const { usage } = this.#counted()
    if (plan.request.includeUsage) this.#send(controller, this.#chunks.usageEvent(usage))
    seal?.update(DONE)
    const receipt = seal?.finish(tokensOf(usage)) ?? null
    await this.#end('completed', null)
    if (this.#isLeft) return
    controller.enqueue(receipt === null ? DONE : utf8(receiptComment(receipt) + sseEvent('[DONE]')))
    controller.close()
    void drain(this.#upstream, deadlines)
  }

  async #fail(controller: Controller, error: unknown): Promise<void> {
    this.#upstream.abort()
    await this.#end('failed', error)
    if (this.#isLeft) return
    controller.enqueue(utf8(sseEvent(JSON.stringify(errorBody(error)))))
    controller.close()
  }

  async #end(outcome: StreamEnd['outcome'], error: unknown): Promise<void> {
    if (this.#isEnded) return
    this.#isEnded = true
    this.#idleDeadline.clear()
    this.#stallDeadline.clear()
    const { usage, tokensSource } = this.#counted()
    await this.#deps.onEnd({ outcome, error, tokens: tokensOf(usage), tokensSource })
  }

  #counted(): { readonly usage: Usage; readonly tokensSource: TokensSource } {
    const { usage, deliveredCount } = this.#chunks
    const { bounds, promptEstimate } = this.#deps.counts
    if (usage !== null && isPlausible(usage, bounds, this.#receivedBytes)) return { usage, tokensSource: 'reported' }
    const estimate = usageOf({ prompt: promptEstimate, completion: deliveredCount })
    return { usage: estimate, tokensSource: usage === null ? 'estimated' : 'implausible' }
  }
}

/** Nothing should follow [DONE]; reads to the end, so that the connection can be used again. */
async function drain(upstream: UpstreamResponse, deadlines: Deadlines): Promise<void> {
  const cancelTimeout = deadlines.after(drainTimeoutMs, upstream.abort)
  const rest = await upstream.read().catch(() => null)
  cancelTimeout()
  if (rest !== null) upstream.abort()
}

/** One deadline at a time; setting it again replaces the earlier one. */
class MovingDeadline {
  readonly #deadlines: Deadlines
  readonly #onLate: () => void
  #cancel: (() => void) | null = null

  constructor(deadlines: Deadlines, onLate: () => void) {
    this.#deadlines = deadlines
    this.#onLate = onLate
  }

  set(ms: number): void {
    this.clear()
    this.#cancel = this.#deadlines.after(ms, this.#onLate)
  }

  clear(): void {
    this.#cancel?.()
    this.#cancel = null
  }
}
