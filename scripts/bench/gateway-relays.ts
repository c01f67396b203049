// What several processes on one port bring: requests per second and CPU of two relays with their owner, beside one process. On a machine with fewer cores
// than all of them and the client need, the rates say little; what one request costs the owner says where scaling ends. Effects: starts gateways.

import type { Figures } from './bench-report.ts'
import { cpuMsOf, ownCpuMsOf } from './gateway-chunks.ts'
import { type Load, type Running, startOurs, stubView } from './gateway-processes.ts'

const rounds = 3
const rateMs = 2_000
const connections = 64
const pacedStreams = 100
const settleMs = 1_500
const talkMs = 3_000

export type RelayRig = {
  readonly folder: string
  readonly load: Load
  readonly stub: Running
  readonly say: (line: string) => void
}

type Seen = {
  readonly rates: number[]
  readonly ownerUs: number[]
  readonly allUs: number[]
  readonly chunkUs: number[]
}

export async function measureRelays({ folder, load, stub, say }: RelayRig): Promise<Figures> {
  await using one = await startOurs(folder, stub, 1)
  await using two = await startOurs(folder, stub, 2)
  const all = [one, two].map(running => ({ running, seen: { rates: [], ownerUs: [], allUs: [], chunkUs: [] } as Seen }))
  const rate = ({ target }: Running) => load.run(target, { kind: 'rate', connections, ms: rateMs })
  for (const { running } of all) await rate(running)
  for (let round = 0; round < rounds; round += 1) {
    for (const { running, seen } of all) {
      const [ownerMs, allMs] = [ownCpuMsOf(running.pid), cpuMsOf(running.pid)]
      const [perSecond = Number.NaN] = await rate(running)
      const count = (perSecond * rateMs) / 1_000
      seen.rates.push(perSecond)
      seen.ownerUs.push(((ownCpuMsOf(running.pid) - ownerMs) * 1_000) / count)
      seen.allUs.push(((cpuMsOf(running.pid) - allMs) * 1_000) / count)
      seen.chunkUs.push(await chunkUsOf(running, { load, stub }))
    }
  }
  const [alone, relayed] = all.map(({ seen }) => ({
    rate: median(seen.rates),
    ownerUs: median(seen.ownerUs),
    allUs: median(seen.allUs),
    chunkUs: median(seen.chunkUs),
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

async function chunkUsOf(running: Running, { load, stub }: Pick<RelayRig, 'load' | 'stub'>): Promise<number> {
  await load.run(running.target, { kind: 'talk', count: pacedStreams })
  await Bun.sleep(settleMs)
  const [cpuMs, { chunks }] = [cpuMsOf(running.pid), await stubView(stub)]
  await Bun.sleep(talkMs)
  const microseconds = ((cpuMsOf(running.pid) - cpuMs) * 1_000) / ((await stubView(stub)).chunks - chunks)
  await load.run(running.target, { kind: 'release' })
  return microseconds
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor((values.length - 1) / 2)] ?? Number.NaN
}

function round(value: number): number {
  return Math.round(value * 100) / 100
}
