// Processor time of a request at the gateway: of a host in a fleet beside one alone, in turns. Effects: processes on
// loopback, a database.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { present } from '../../../src/base/assert.ts'
import type { PostgresServer } from '../../rigs/postgres/server.ts'
import type { Figures } from '../bench-report.ts'
import { median, percentile, requestCost, round } from '../gateway/cost.ts'
import { startLoad, startOurs, startStub } from '../gateway/processes.ts'
import type { BenchContext } from '../main.ts'
import { BenchFleet, timedCreate } from './bench-fleet.ts'

/** Many short turns: the machine is as fast for both of a pair. */
const rate = { connections: 64, requests: 2_000 }
const [warmTurns, turns] = [16, 96]
/** Another host's creates, which the gateway's host copies. */
const createEveryMs = 1_000

export async function measureGateway(
  server: PostgresServer,
  { note, signal }: Pick<BenchContext, 'note' | 'signal'>,
): Promise<Figures> {
  const folder = mkdtempSync(join(tmpdir(), 'srt-bench-'))
  try {
    await using fleet = await BenchFleet.open(server, 1)
    const { key } = await fleet.newKey()
    await using stub = await startStub()
    await using load = startLoad()
    await using alone = await startOurs(folder, stub)
    await using inFleet = await startOurs(folder, stub, null, fleet.database)
    const other = present(fleet.hosts[0], 'the fleet has another host')
    const stopping = new AbortController()
    const creating = createNowAndThen(() => timedCreate(other, key), stopping.signal)
    const aloneUs: number[] = []
    const inFleetUs: number[] = []
    const ratios: number[] = []
    for (let turn = -warmTurns; turn < turns; turn += 1) {
      signal.throwIfAborted()
      const cost = async (running: typeof alone) => (await requestCost(load, running, rate)).cpuUs
      // Each comes first as often as the other.
      const first = turn % 2 === 0 ? alone : inFleet
      const firstUs = await cost(first)
      const secondUs = await cost(first === alone ? inFleet : alone)
      if (turn < 0) continue
      const [aloneCpuUs, fleetCpuUs] = first === alone ? [firstUs, secondUs] : [secondUs, firstUs]
      aloneUs.push(aloneCpuUs)
      inFleetUs.push(fleetCpuUs)
      ratios.push(fleetCpuUs / aloneCpuUs)
    }
    stopping.abort()
    await creating
    const [middle, low, high] = [0.5, 0.25, 0.75].map(share => percentile(ratios, share))
    // Half of the pairs began with the one, half with the other: what coming first costs is in both.
    const spread = `middle half ${round(low ?? 0)} to ${round(high ?? 0)}, ${ratios.length} pairs`
    const sums = [inFleetUs, aloneUs].map(values => values.reduce((sum, value) => sum + value, 0))
    const overall = round((sums[0] ?? 0) / (sums[1] ?? 1), 3)
    note(`a request at the gateway in a fleet beside alone: ${round(middle ?? 0, 3)} (${spread}; sums ${overall})`)
    return {
      gatewayRequestCpuRatioFleet: { value: middle ?? Number.NaN, unit: '', aim: { atMost: 1.05 } },
      gatewayRequestCpuUsFleet: {
        value: median(inFleetUs),
        unit: 'µs',
        aim: null,
        baseline: 'gatewayRequestCpuUsAlone',
      },
      gatewayRequestCpuUsAlone: { value: median(aloneUs), unit: 'µs', aim: null },
    }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

async function createNowAndThen(create: () => Promise<unknown>, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await create()
    await Bun.sleep(createEveryMs)
  }
}
