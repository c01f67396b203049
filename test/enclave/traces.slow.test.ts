// Traces of a gateway VM: what leaves it, by whose leave, and what the operator's OTLP receiver gets of it in the end.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { EnclaveBench, type EnclaveBenchOptions } from '../../scripts/rigs/enclave/enclave.ts'
import { EnclaveMachine } from '../../scripts/rigs/enclave/machine.ts'
import { startUpstream, type TestUpstream } from '../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../scripts/rigs/until.ts'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import { type WorkloadDocument, workloadText } from '../../src/contract/vm/workload.ts'
import { openCollector } from '../../src/inference/traces/collector.ts'
import { TraceExporter } from '../../src/inference/traces/exporter.ts'
import { startOtlpReceiver } from '../rigs/gateway/otlp-receiver.ts'
import { traceNames } from '../rigs/gateway/trace-spans.ts'

const testMs = 120_000
let upstream: TestUpstream
beforeAll(async () => {
  upstream = await startUpstream()
})
afterAll(() => upstream.stop())

const traces = { sampleRatio: 1, followParent: false, forwardParent: false }
const canary = 'canary-2f91d4'
const traceId = '0af7651916cd43dd8448eb211c80319c'

function start(options: Partial<EnclaveBenchOptions>): Promise<EnclaveBench> {
  return EnclaveBench.start({ upstreams: [{ url: upstream.url }], ...options })
}

function chat(bench: EnclaveBench, vmId: string, key: string, stream: boolean): Promise<Response> {
  return fetch(`${bench.url(vmId)}/v1/chat/completions`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${key}`,
      'content-type': 'application/json',
      tracestate: `a=${canary}`,
      traceparent: `00-${traceId}-b7ad6b7169203331-01`,
    },
    body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: canary }], user: canary, stream }),
    tls: { ca: bench.caPem },
  })
}

test(
  'goal: spans of its requests reach the receiver by way of the host, are forgotten in the VM, and hold no text; so says workload.json',
  async () => {
    const said: Uint8Array[] = []
    const machine = new EnclaveMachine()
    machine.watch((direction, bytes) => void (direction === 'from-guest' && said.push(bytes)))
    const receiver = await startOtlpReceiver()
    await using undo = new AsyncDisposableStack()
    undo.defer(receiver.stop)
    const bench = undo.use(await start({ gateway: { traces }, newMachine: () => machine }))
    const exporter = new TraceExporter({
      deliver: openCollector({ endpoint: receiver.url, headers_file: '', ca_file: '' }, systemClock),
      names: traceNames,
      queueMax: 100,
      batchMax: 10,
      intervalMs: 50,
      timeoutMs: 30_000,
      log: silentLogger,
      clock: systemClock,
      random: systemRandom,
    })
    exporter.start()
    undo.defer(() => exporter.stop())
    const key = bench.addKey()
    const { vmId } = await bench.serve({ spans: exporter })
    for (const stream of [false, true]) {
      const answer = await chat(bench, vmId, key, stream)
      expect([answer.status, (await answer.text()).length > 0]).toEqual([200, true])
    }
    await until('both requests and their attempts are told', 60_000, () => receiver.spans.length === 4)
    expect(receiver.problems).toEqual([])
    expect(new Set(receiver.spans.map(span => span.traceId))).toEqual(new Set([traceId]))
    expect(receiver.spans.map(span => `${span.name} ${span.kind}`).toSorted()).toEqual([
      ...['chat m 2', 'chat m 2', 'chat m 3', 'chat m 3'],
    ])
    const heard = () => Buffer.concat(said).toString()
    expect(heard()).toContain(traceId)
    for (const secret of [canary, key.split('_')[2] ?? 'no key']) {
      expect([heard().includes(secret), receiver.bodies.join().includes(secret)]).toEqual([false, false])
    }
    // Its host says with the next question which it has.
    let kept = { first: 0, count: 4 }
    await until('they are forgotten', 60_000, async () => {
      const { first, spans } = await bench.engine.spans(vmId, { from: 0 }, 30_000)
      kept = { first, count: spans.length }
      return spans.length < 4
    })
    expect(kept.first + kept.count).toBe(4)
    const response = await fetch(`${bench.url(vmId)}/workload.json`, { tls: { ca: bench.caPem } })
    const document = (await response.json()) as WorkloadDocument
    expect(document.gateway.traces).toEqual(traces)
  },
  testMs,
)

test(
  'goal: a VM whose workload.json says nothing of traces has none to give, however often its host asks',
  async () => {
    await using bench = await start({})
    expect(workloadText(bench.workload)).not.toContain('traces')
    const key = bench.addKey()
    const { vmId } = await bench.serve()
    expect(await (await chat(bench, vmId, key, true)).text()).toEndWith('[DONE]\n\n')
    await until('the request is booked', 60_000, () => bench.books.booked(vmId) === 1)
    for (const from of [0, 1, Number.MAX_SAFE_INTEGER]) {
      expect(await bench.engine.spans(vmId, { from }, 30_000)).toEqual({ first: 0, spans: [] })
    }
    expect(upstream.seen.at(-1)?.headers.has('traceparent')).toBe(false)
  },
  testMs,
)

test(
  'goal: spans that nobody fetches cost the VM no request, and a host that comes later gets those that are left',
  async () => {
    await using bench = await start({ gateway: { traces: { ...traces, forwardParent: true } } })
    const key = bench.addKey()
    const { vmId } = await bench.serve()
    for (let count = 0; count < 40; count += 1) {
      const answer = await chat(bench, vmId, key, false)
      expect([answer.status, (await answer.text()).length > 0]).toEqual([200, true])
    }
    expect(upstream.seen.at(-1)?.headers.get('traceparent')).toMatch(new RegExp(`^00-${traceId}-[0-9a-f]{16}-01$`))
    const piece = await bench.engine.spans(vmId, { from: 0 }, 30_000)
    expect([piece.first, piece.spans.length]).toEqual([0, 64])
    let rest = piece
    await until('the last request has ended there, too', 60_000, async () => {
      rest = await bench.engine.spans(vmId, { from: 64 }, 30_000)
      return rest.spans.length >= 16
    })
    expect([rest.first, rest.spans.length]).toEqual([64, 16])
  },
  testMs,
)
