// Gateway VMs that attack their host over the channel: its one thread, its memory and its other gateway are
// unaffected.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { EnclaveBench, type Machine } from '../../scripts/rigs/enclave/enclave.ts'
import { EnclaveMachine } from '../../scripts/rigs/enclave/machine.ts'
import { startUpstream, type TestUpstream } from '../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../scripts/rigs/until.ts'
import { HostileMachine } from '../rigs/hostile/machine.ts'

const MIB = 1024 * 1024
const testMs = 120_000
/** It takes the next VM's place. */
let hostile: HostileMachine | null = null
let upstream: TestUpstream
let bench: EnclaveBench
let key = ''
let honest = ''

beforeAll(async () => {
  upstream = await startUpstream()
  const newMachine = (): Machine => hostile ?? new EnclaveMachine()
  bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }], newMachine })
  key = bench.addKey()
  honest = (await bench.serve()).vmId
})
afterAll(async () => {
  await bench[Symbol.asyncDispose]()
  await upstream.stop()
})

/** How often this thread comes round in that time. */
async function turnsWithin(ms: number): Promise<number> {
  const endMs = performance.now() + ms
  let count = 0
  for (; performance.now() < endMs; count += 1) await Bun.sleep(1)
  return count
}

async function chat(): Promise<number> {
  const response = await fetch(`${bench.url(honest)}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Hello' }] }),
    tls: { ca: bench.caPem },
  })
  await response.text()
  return response.status
}

// Goal: no message of a gateway VM blocks the host's thread, fills its memory, or keeps another VM's usage out of the
// books.
test.each([
  'answers',
  'lines of 2 MiB',
  'invalid UTF-8',
  'lines that nest',
  'lines with many fields',
  'short lines',
  'answers that nobody asked for',
])(
  'goal: the host does its work, keeps its memory and books the usage of the other gateway, whatever one says: %s',
  async kind => {
    const calm = await turnsWithin(500)
    Bun.gc(true)
    const before = process.memoryUsage().rss
    await using machine = new HostileMachine(kind)
    hostile = machine
    const { session } = await bench.begin()
    hostile = null
    // The kernel hands over what fits into its buffers before the first pause is due.
    await turnsWithin(1_000)
    const turns = await turnsWithin(1_500)
    const booked = bench.rows.length
    expect(await chat()).toBe(200)
    await until('the usage of the other is booked', 60_000, () => bench.rows.length === booked + 1)
    const grownMib = (process.memoryUsage().rss - before) / MIB
    const ignored = machine.channel?.ignored()
    const figures = `${turns} turns in 1.5 s, ${calm} in 0.5 s without it; ${grownMib.toFixed()} MiB more`
    process.stderr.write(`${kind}: ${figures}; ${JSON.stringify(ignored)}\n`)
    expect(turns).toBeGreaterThan(calm)
    expect(grownMib).toBeLessThan(256)
    expect(session.metrics.length).toBeLessThanOrEqual(MIB)
    expect(session.log(0).length).toBeLessThanOrEqual(1_000)
    // It was heard.
    const ignoredCount = Object.values(ignored ?? {}).reduce((sum, value) => sum + value, 0)
    expect(kind === 'answers' ? session.status?.running : ignoredCount).toBeGreaterThan(0)
    await session.stop()
  },
  testMs,
)
