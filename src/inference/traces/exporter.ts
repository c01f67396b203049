// Exports spans: a bounded queue, batches, one at a time. Effects: timers; those of `deliver`.
//
// After a failure the exporter retries with a pause that doubles; meanwhile new spans evict the oldest. An absent, slow
// or hostile receiver costs a request now and then, and the memory of the queue.

import { pause } from '../../base/clock.ts'
import { type Collector, type Family, metricsText } from '../../base/prometheus.ts'
import type { Runtime } from '../../base/runtime.ts'
import { backOffMs } from '../../base/work/back-off.ts'
import { sweepLater } from '../../base/work/sweep.ts'
import type { TraceSpan } from '../../contract/vm/span.ts'
import type { Deliver, Delivery } from './collector.ts'
import { encodeSpans, type OtlpNames } from './otlp.codec.ts'

export type TraceExporterDeps = Runtime & {
  readonly deliver: Deliver
  readonly names: OtlpNames
  readonly queueMax: number
  readonly batchMax: number
  readonly intervalMs: number
  readonly timeoutMs: number
}

export type TraceCounts = {
  /** Number of spans that the receiver accepted. */
  readonly exported: number
  /** Number of spans evicted from a queue, given up after several attempts, or refused by the receiver. */
  readonly dropped: number
  readonly waiting: number
  /** Why the receiver currently accepts nothing; null if no problem is known. */
  readonly problem: string | null
}

const backOffRange = { minMs: 1_000, maxMs: 60_000 }
/** Attempts per batch, with pauses in between. */
const attemptsMax = 5
/** Limit for the remaining spans at shutdown. */
const lastTimeoutMs = 2_000
/** A gateway VM may report any number of lost spans. No share: a number in a report. */
const lostMax = 1_000_000

export class TraceExporter {
  readonly #deps: TraceExporterDeps
  readonly #stopping = new AbortController()
  readonly #queue: TraceSpan[] = []
  /** Taken from the queue, not yet delivered. */
  #batch: readonly TraceSpan[] = []
  #running: Promise<void> = Promise.resolve()
  #exported = 0
  #overflowed = 0
  #refused = 0
  #failed = 0
  #lost = 0
  #failuresInRow = 0
  #problem: string | null = null

  constructor(deps: TraceExporterDeps) {
    this.#deps = deps
  }

  /** Adds a span. Never throws, never waits. */
  readonly offer = (span: TraceSpan): void => {
    this.#queue.push(span)
    if (this.#queue.length + this.#batch.length <= this.#deps.queueMax) return
    this.#queue.shift()
    this.#overflowed += 1
  }

  /** Counts spans that were lost before they reached the exporter. */
  readonly noteLost = (count: number): void => {
    this.#lost += Math.min(count, lostMax)
  }

  start(): void {
    this.#running = this.#run()
  }

  /** Sends the waiting spans, for at most two seconds. */
  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#running
    const { clock } = this.#deps
    const untilMs = clock.monotonicMs() + lastTimeoutMs
    // Does not retry a receiver that fails now.
    while (this.#failuresInRow === 0 && clock.monotonicMs() < untilMs && this.#fill()) {
      this.#settle(await this.#deliver(untilMs - clock.monotonicMs(), new AbortController().signal))
    }
  }

  counts(): TraceCounts {
    return {
      exported: this.#exported,
      dropped: this.#overflowed + this.#refused + this.#failed + this.#lost,
      waiting: this.#queue.length + this.#batch.length,
      problem: this.#problem,
    }
  }

  collector(): Collector {
    return { workload: 'metrics-collector', render: () => metricsText(this.#families()) }
  }

  async #run(): Promise<void> {
    const { clock, intervalMs, timeoutMs } = this.#deps
    const { signal } = this.#stopping
    await sweepLater({ clock, intervalMs, signal }, async () => {
      while (!signal.aborted && this.#fill()) {
        await this.#sendBatch(timeoutMs, signal)
        // Yields to other work between two batches.
        await pause(clock, 1, signal)
      }
    })
  }

  /** Reports whether there is a batch to deliver. */
  #fill(): boolean {
    if (this.#batch.length === 0) this.#batch = this.#queue.splice(0, this.#deps.batchMax)
    return this.#batch.length > 0
  }

  async #sendBatch(timeoutMs: number, signal: AbortSignal): Promise<void> {
    for (let attempts = 1; attempts <= attemptsMax; attempts += 1) {
      const delivery = await this.#deliver(timeoutMs, signal)
      // An attempt that shutdown cut off proves nothing about the receiver.
      if (signal.aborted && delivery.kind === 'again') return
      if (attempts === attemptsMax && delivery.kind === 'again') this.#giveUp()
      this.#settle(delivery)
      if (delivery.kind !== 'taken') await pause(this.#deps.clock, this.#backOffMs(delivery), signal)
      if (this.#batch.length === 0 || signal.aborted) return
    }
  }

  async #deliver(timeoutMs: number, signal: AbortSignal): Promise<Delivery> {
    const { deliver, names, log } = this.#deps
    try {
      return await deliver(encodeSpans(this.#batch, names), timeoutMs, signal)
    } catch (error) {
      // Loses one batch, instead of ending the daemon.
      log.error('a batch of spans cannot be sent', { error })
      return { kind: 'refused', reason: 'internal' }
    }
  }

  #settle(delivery: Delivery): void {
    const { log } = this.#deps
    const { length } = this.#batch
    if (delivery.kind === 'taken') {
      const rejected = Math.min(delivery.rejected, length)
      this.#exported += length - rejected
      this.#refused += rejected
      this.#batch = []
      if (this.#failuresInRow > 0) log.info('the OTLP receiver accepts traces again', { failures: this.#failuresInRow })
      this.#failuresInRow = 0
      this.#problem = null
      return
    }
    if (delivery.kind === 'refused') {
      this.#refused += length
      this.#batch = []
    }
    if (this.#failuresInRow === 0) {
      log.warn('the OTLP receiver does not accept traces; check inference.traces.endpoint', { reason: delivery.reason })
    }
    this.#failuresInRow += 1
    this.#problem = delivery.reason
  }

  #giveUp(): void {
    this.#failed += this.#batch.length
    this.#batch = []
  }

  /** Reduces the pause by up to half at random, so that many hosts do not retry at once. */
  #backOffMs(delivery: Delivery): number {
    const doubled = backOffMs(backOffRange, this.#failuresInRow)
    const share = (this.#deps.random(1)[0] ?? 0) / 512
    return Math.max(doubled * (1 - share), delivery.kind === 'again' ? delivery.retryAfterMs : 0)
  }

  #families(): Family[] {
    const dropped = { overflow: this.#overflowed, refused: this.#refused, failed: this.#failed, lost: this.#lost }
    return [
      {
        name: 'strongroom_trace_spans_exported_total',
        help: 'Spans that the OTLP receiver has accepted.',
        type: 'counter',
        samples: [{ labels: {}, value: this.#exported }],
      },
      {
        name: 'strongroom_trace_spans_dropped_total',
        help: 'Spans that were not exported: queue full, refused by the receiver, retries exhausted, or lost in the gateway VM.',
        type: 'counter',
        samples: Object.entries(dropped).map(([reason, value]) => ({ labels: { reason }, value })),
      },
      {
        name: 'strongroom_trace_spans_waiting',
        help: 'Spans on their way to the OTLP receiver.',
        type: 'gauge',
        samples: [{ labels: {}, value: this.counts().waiting }],
      },
    ]
  }
}
