// Goal: whatever the receiver does, spans wait within bounds, losses are counted, and its failures slow the requests to
// it.

import { describe, expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { createLogger } from '../../../src/base/log.ts'
import type { Delivery } from '../../../src/inference/traces/collector.ts'
import { TraceExporter, type TraceExporterDeps } from '../../../src/inference/traces/exporter.ts'
import { readExport } from '../../rigs/gateway/otlp-receiver.ts'
import { requestSpan, traceNames } from '../../rigs/gateway/trace-spans.ts'

const taken: Delivery = { kind: 'taken', rejected: 0 }
const again: Delivery = { kind: 'again', reason: 'unreachable', retryAfterMs: 0 }

function exporterFor(
  behave: (spans: number) => Delivery | Promise<Delivery>,
  changes: Partial<TraceExporterDeps> = {},
) {
  const clock = createManualClock()
  const logged: string[] = []
  /** When each batch came, and how many tokens each of its spans has: its number. */
  const batches: { atMs: number; numbers: unknown[] }[] = []
  const startMs = clock.monotonicMs()
  const exporter = new TraceExporter({
    deliver: async body => {
      const numbers = readExport(Buffer.from(body).toString()).map(span => span.attributes['gen_ai.usage.input_tokens'])
      batches.push({ atMs: clock.monotonicMs() - startMs, numbers })
      return behave(numbers.length)
    },
    names: traceNames,
    queueMax: 100,
    batchMax: 10,
    intervalMs: 1_000,
    timeoutMs: 5_000,
    clock,
    // No jitter.
    random: lengthBytes => new Uint8Array(lengthBytes),
    log: createLogger({ level: 'info', sink: line => void logged.push(line), nowMs: clock.nowMs }),
    ...changes,
  })
  const offer = (from: number, count: number) => {
    for (let at = from; at < from + count; at += 1) exporter.offer(requestSpan({ inputTokens: at }))
  }
  return { exporter, clock, logged, batches, offer }
}

const numbers = (from: number, count: number) => Array.from({ length: count }, (_, at) => from + at)

describe('a receiver that takes them', () => {
  test('goal: all go out, in order, in batches, within an interval', async () => {
    const { exporter, clock, batches, offer } = exporterFor(() => taken)
    exporter.start()
    offer(0, 25)
    await clock.elapse(999)
    expect(batches).toEqual([])
    await clock.elapse(100)
    expect(batches.map(batch => batch.numbers)).toEqual([numbers(0, 10), numbers(10, 10), numbers(20, 5)])
    expect(exporter.counts()).toEqual({ exported: 25, dropped: 0, waiting: 0, problem: null })
    await clock.elapse(60_000)
    expect(batches.length).toBe(3)
    await exporter.stop()
  })

  test('goal: those that it rejects are counted, and it cannot reject more than it was sent', async () => {
    for (const [rejected, exported, dropped] of [
      [4, 6, 4],
      [1_000_000, 0, 10],
    ] as const) {
      const { exporter, clock, offer } = exporterFor(() => ({ kind: 'taken', rejected }))
      exporter.start()
      offer(0, 10)
      await clock.elapse(2_000)
      expect(exporter.counts()).toMatchObject({ exported, dropped, waiting: 0 })
      await exporter.stop()
    }
  })

  test('goal: at the end what waits is sent once more', async () => {
    const { exporter, batches, offer } = exporterFor(() => taken)
    exporter.start()
    offer(0, 13)
    await exporter.stop()
    expect(batches.map(batch => batch.numbers)).toEqual([numbers(0, 10), numbers(10, 3)])
    expect(exporter.counts()).toMatchObject({ exported: 13, waiting: 0 })
  })
})

describe('a receiver that fails', () => {
  test('goal: the pauses double up to a minute, a batch is given up after five attempts, the queue keeps the newest', async () => {
    const { exporter, clock, batches, offer, logged } = exporterFor(() => again)
    exporter.start()
    offer(0, 10)
    await clock.elapse(1_000)
    offer(10, 1_000)
    expect(exporter.counts()).toMatchObject({ waiting: 100, dropped: 910, exported: 0, problem: 'unreachable' })
    await clock.elapse(600_000)
    const gaps = batches.map(({ atMs }, at) => Math.round((atMs - (batches[at - 1]?.atMs ?? 0)) / 1_000))
    expect(gaps.slice(0, 9)).toEqual([1, 1, 2, 4, 8, 16, 32, 60, 60])
    expect(batches.slice(0, 6).map(batch => batch.numbers[0])).toEqual([0, 0, 0, 0, 0, 920])
    expect(batches.length).toBeLessThan(20)
    expect(exporter.counts().waiting).toBeLessThanOrEqual(100)
    expect(logged.length).toBe(1)
    await exporter.stop()
  })

  test('goal: it is asked for as late as it wishes, and once it is back all that waits goes out', async () => {
    let behave: Delivery = { kind: 'again', reason: 'status 429', retryAfterMs: 120_000 }
    const { exporter, clock, batches, offer, logged } = exporterFor(() => behave)
    exporter.start()
    offer(0, 30)
    await clock.elapse(120_000)
    expect(batches.length).toBe(1)
    behave = taken
    await clock.elapse(2_000)
    expect(batches.map(batch => batch.numbers[0])).toEqual([0, 0, 10, 20])
    expect(exporter.counts()).toEqual({ exported: 30, dropped: 0, waiting: 0, problem: null })
    expect(logged.map(line => JSON.parse(line).message)).toEqual([
      'the OTLP receiver does not accept traces; check inference.traces.endpoint',
      'the OTLP receiver accepts traces again',
    ])
    await exporter.stop()
  })

  test('goal: a batch that is refused is not sent twice, and the next waits as after any failure', async () => {
    const { exporter, clock, batches, offer } = exporterFor(() => ({ kind: 'refused', reason: 'status 400' }))
    exporter.start()
    offer(0, 40)
    await clock.elapse(60_000)
    expect(batches.map(batch => batch.numbers[0])).toEqual([0, 10, 20, 30])
    expect(batches.map(batch => Math.round(batch.atMs / 1_000))).toEqual([1, 2, 4, 8])
    expect(exporter.counts()).toEqual({ exported: 0, dropped: 40, waiting: 0, problem: 'status 400' })
    await exporter.stop()
  })

  test('goal: while one hangs there is one request, the queue holds, and an end does not wait for it', async () => {
    const held = Promise.withResolvers<Delivery>()
    const { exporter, clock, batches, offer } = exporterFor(() => held.promise)
    exporter.start()
    offer(0, 10)
    await clock.elapse(1_000)
    offer(10, 5_000)
    await clock.elapse(600_000)
    expect(batches.length).toBe(1)
    expect(exporter.counts().waiting).toBe(100)
    const stopped = exporter.stop()
    held.resolve(again)
    await stopped
    // A batch cut off by the end is tried once more.
    expect(batches.length).toBe(2)
  })

  test('goal: at the end one that is slow gets two seconds in all, one that fails is not asked again', async () => {
    const slow = exporterFor(async () => {
      slow.clock.advance(1_500)
      return taken
    })
    slow.exporter.start()
    slow.offer(0, 100)
    await slow.exporter.stop()
    expect([slow.batches.length, slow.exporter.counts().waiting]).toEqual([2, 80])
    const failing = exporterFor(() => again)
    failing.exporter.start()
    failing.offer(0, 100)
    await failing.exporter.stop()
    expect(failing.batches.length).toBe(1)
  })

  test('goal: one batch that cannot be sent at all is lost alone', async () => {
    let count = 0
    const { exporter, clock, offer } = exporterFor(() => {
      count += 1
      if (count === 1) throw new Error('the encoder has failed')
      return taken
    })
    exporter.start()
    offer(0, 20)
    await clock.elapse(10_000)
    expect(exporter.counts()).toEqual({ exported: 10, dropped: 10, waiting: 0, problem: null })
    await exporter.stop()
  })
})

test('goal: metrics say what went out and why what did not', async () => {
  const { exporter, clock, offer } = exporterFor(() => ({ kind: 'taken', rejected: 1 }))
  exporter.start()
  offer(0, 103)
  exporter.noteLost(7)
  exporter.noteLost(Number.MAX_SAFE_INTEGER)
  await clock.elapse(2_000)
  const lines = exporter
    .collector()
    .render()
    .split('\n')
    .filter(line => /^[^#]/.test(line))
  expect(lines).toEqual([
    'strongroom_trace_spans_exported_total 90',
    'strongroom_trace_spans_dropped_total{reason="overflow"} 3',
    'strongroom_trace_spans_dropped_total{reason="refused"} 10',
    'strongroom_trace_spans_dropped_total{reason="failed"} 0',
    'strongroom_trace_spans_dropped_total{reason="lost"} 1000007',
    'strongroom_trace_spans_waiting 0',
  ])
  await exporter.stop()
})
