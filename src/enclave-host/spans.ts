// Fetches the spans of one gateway VM for an exporter. Effects: through the engine.
//
// The VM is hostile: the wire checks the form of spans, and their rate is bounded.

import { type Clock, onAbort, pause } from '../base/clock.ts'
import { sweepLater } from '../base/work/sweep.ts'
import { TokenBucket } from '../base/work/token-bucket.ts'
import type { TraceSpan } from '../contract/vm/span.ts'
import type { GatewayVmEngine } from './types.ts'

/** Receives the fetched spans; neither throws. */
export type SpanTaker = {
  readonly offer: (span: TraceSpan) => void
  /** Called with the number of missing spans. */
  readonly noteLost: (count: number) => void
}

export type SpanFetcherDeps = {
  readonly vmId: string
  readonly engine: Pick<GatewayVmEngine, 'spans'>
  readonly taker: SpanTaker
  /** Whether the VM has its workload. */
  readonly isFed: () => boolean
  readonly onFailure: (error: unknown) => void
  readonly clock: Clock
}

const askTimeoutMs = 10_000
const intervalMs = 1_000
/** An image without spans refuses each time. */
const retryMs = 10_000
const leastPauseMs = 5
const spansPerSecondMax = 1_024
/** At the end. */
const restMs = 1_000
/** No share: limits one VM when it ends. */
const restPiecesMax = 16

export class SpanFetcher {
  readonly #deps: SpanFetcherDeps
  readonly #allowed: TokenBucket
  /** The next number to request, in the VM's numbering; null if unknown. */
  #from: number | null = null

  constructor(deps: SpanFetcherDeps) {
    this.#deps = deps
    this.#allowed = new TokenBucket(spansPerSecondMax, deps.clock)
  }

  /** Another process runs in the VM: its numbers restart. */
  beginAnew(): void {
    this.#from = null
  }

  /** Runs until the signal, then fetches the rest: the last request has often just ended. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, isFed, onFailure } = this.#deps
    const ended = Promise.withResolvers<void>()
    onAbort(signal, ended.resolve)
    await sweepLater({ clock, intervalMs, signal }, async () => {
      if (!isFed()) return
      try {
        // An answer that comes after the end counts, but is not waited for.
        await Promise.race([this.#fetchAll(signal), ended.promise])
      } catch (error) {
        onFailure(error)
        await pause(clock, retryMs, signal)
      }
    })
    if (!isFed()) return
    const rest = this.#fetchRest().catch(onFailure)
    await Promise.race([rest, clock.sleep(restMs)])
  }

  async #fetchAll(signal: AbortSignal): Promise<void> {
    for (let count = await this.#fetch(); count > 0 && !signal.aborted; count = await this.#fetch()) {
      await pause(this.#deps.clock, Math.max(leastPauseMs, this.#allowed.take(count)), signal)
    }
  }

  /** The last request acknowledges the previous spans, so that the next daemon does not get them again. */
  async #fetchRest(): Promise<void> {
    for (let pieces = 0; pieces < restPiecesMax && (await this.#fetch()) > 0; pieces += 1);
  }

  /** How many there were. */
  async #fetch(): Promise<number> {
    const { vmId, engine, taker } = this.#deps
    const from = this.#from
    const { first, spans } = await engine.spans(vmId, { from: from ?? 0 }, askTimeoutMs)
    // At the start it is unknown what an earlier daemon has fetched.
    if (from !== null && first > from) taker.noteLost(first - from)
    for (const span of spans) taker.offer(span)
    this.#from = Math.min(Number.MAX_SAFE_INTEGER, Math.max(from ?? 0, first + spans.length))
    return spans.length
  }
}
