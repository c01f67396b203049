// What several processes on one port bring: requests per second and CPU of two relays with their owner, beside one process. On a machine with fewer cores
// than all of them and the client need, the rates say little; what one request costs the owner says where scaling ends. Effects: starts gateways.

import type { Figures } from './bench-report.ts'
import { chunkCost, median, type RequestCost, requestCost, round } from './gateway-cost.ts'
import { type Load, type Running, startOurs } from './gateway-processes.ts'

const rounds = 3
const rate = { connections: 64, ms: 2_000 }
const pacedStreams = 100

export type RelayRig = {
  readonly folder: string
  readonly load: Load
  readonly stub: Running
  readonly say: (line: string) => void
}

export async function measureRelays({ folder, load, stub, say }: RelayRig): Promise<Figures> {
  await using one = await startOurs(folder, stub, { processes: 1 })
  await using two = await startOurs(folder, stub, { processes: 2 })
  const all = [one, two].map(running => ({ running, requests: [] as RequestCost[], chunksUs: [] as number[] }))
  for (const { running } of all) await requestCost(load, running, rate)
  for (let turn = 0; turn < rounds; turn += 1) {
    for (const { running, requests, chunksUs } of all) {
      requests.push(await requestCost(load, running, rate))
      chunksUs.push((await chunkCost(load, stub, running, pacedStreams)).cpuUs)
    }
  }
  const [alone, relayed] = all.map(({ requests, chunksUs }) => ({
    rate: median(requests.map(one => one.perSecond)),
    ownerUs: median(requests.map(one => one.ownCpuUs)),
    allUs: median(requests.map(one => one.cpuUs)),
    chunkUs: median(chunksUs),
  }))
  if (alone === undefined || relayed === undefined) throw new Error('both were measured')
  say(`requests/s: one process ${Math.round(alone.rate)}, two relays ${Math.round(relayed.rate)}`)
  say(
    `CPU of a request: one process ${round(alone.allUs)} µs, two relays ${round(relayed.allUs)} µs with the owner's ${round(relayed.ownerUs)} µs`,
  )
  return {
    processScaling2: { value: round(relayed.rate / alone.rate), unit: '', aim: null },
    ownerCpuUsPerRequest: { value: round(relayed.ownerUs), unit: 'µs', aim: null, baseline: 'aloneCpuUsPerRequest' },
    aloneCpuUsPerRequest: { value: round(alone.allUs), unit: 'µs', aim: null },
    relayedCpuUsPerRequest: { value: round(relayed.allUs), unit: 'µs', aim: null },
    // What a chunk costs is the relays' alone: the owner is told of it once a second.
    relayedChunkCpuRatio: { value: round(relayed.chunkUs / alone.chunkUs), unit: '', aim: null },
  }
}
