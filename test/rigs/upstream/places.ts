// Where servers of upstreams listen in tests of connections, and a client of them. Effects: sockets.

import { selfSigned, type Transport } from '../../../scripts/rigs/gateway/raw-upstream.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { createDeadlines } from '../../../src/base/work/deadlines.ts'
import { UpstreamClient } from '../../../src/inference/upstream/client.ts'

export const own = await selfSigned('127.0.0.1')
export const PLACES = { tcp: { kind: 'tcp' }, tls: { kind: 'tls', own }, unix: { kind: 'unix' } } satisfies Record<
  string,
  Transport
>

export function openClient(deadlines = createDeadlines(systemClock)) {
  const client = new UpstreamClient({ deadlines, timeouts: { connectMs: 60_000, firstByteMs: 60_000 } })
  return Object.assign(client, { [Symbol.dispose]: () => client.close() })
}

/** Resolves when it has not changed for a while. */
export async function standsStill(what: string, value: () => number): Promise<void> {
  let before = Number.NaN
  await until(what, 10_000, async () => {
    const now = value()
    const isStill = now === before
    before = now
    await Bun.sleep(200)
    return isStill
  })
}
