// Cost of a chunk of a stream: CPU time of the gateway per chunk, beside nginx without buffering and a relay that
// reads nothing; and delay of chunks at 25,000 a second. Streams are paced like a model. Effects: load on processes of
// the caller.

import type { Figures } from '../bench-report.ts'
import { type ChunkCost, chunkCost, percentile, round, TurnCosts } from './cost.ts'
import type { Load, Running } from './processes.ts'

const turns = 5
const pacedStreams = 100
const manyStreams = 500

export type ChunkRig = {
  readonly load: Load
  readonly stub: Running
  readonly targets: { readonly ours: Running; readonly nginx: Running; readonly raw: Running }
  readonly say: (line: string) => void
}

export async function measureChunks({ load, stub, targets, say }: ChunkRig): Promise<Figures> {
  const all = Object.entries(targets)
  const costs = new TurnCosts<{ readonly cpuUs: number }>()
  // The first turn warms up.
  for (let turn = -1; turn < turns; turn += 1) {
    for (const [name, running] of all) {
      const { cpuUs } = await chunkCost(load, stub, running, pacedStreams)
      if (turn >= 0) costs.add(name, { cpuUs })
    }
    if (turn < 0) continue
    say(`CPU for a chunk: ${all.map(([name]) => `${name} ${round(costs.latest(name, 'cpuUs'))} µs`).join(', ')}`)
  }
  const cost = (name: string) => costs.median(name, 'cpuUs')
  const many = new Map<string, ChunkCost>()
  for (const [name, running] of all) many.set(name, await chunkCost(load, stub, running, manyStreams))
  const late = (name: string) => round(percentile(many.get(name)?.lagsMs ?? [], 0.99))
  for (const [name, { perSecond }] of many) say(`${name}: ${Math.round(perSecond)} chunks/s, p99 ${late(name)} ms late`)
  return {
    chunkCpuRatioNginx: { value: round(costs.ratio('ours', 'nginx', 'cpuUs')), unit: '', aim: { atMost: 1.15 } },
    chunkCpuRatioRaw: { value: round(costs.ratio('ours', 'raw', 'cpuUs')), unit: '', aim: null },
    chunkCpuUs: { value: round(cost('ours')), unit: 'µs', aim: null, baseline: 'nginxChunkCpuUs' },
    nginxChunkCpuUs: { value: round(cost('nginx')), unit: 'µs', aim: null },
    rawChunkCpuUs: { value: round(cost('raw')), unit: 'µs', aim: null },
    // Chunks that one core passes on.
    chunksPerSecond: { value: Math.round(1_000_000 / cost('ours')), unit: '/s', aim: null },
    chunkP99Ms25k: { value: late('ours'), unit: 'ms', aim: null, baseline: 'nginxChunkP99Ms25k' },
    nginxChunkP99Ms25k: { value: late('nginx'), unit: 'ms', aim: null },
    rawChunkP99Ms25k: { value: late('raw'), unit: 'ms', aim: null },
    // The rate that was reached: below 25,000 the machine had no cores for more.
    chunkP99Rate: { value: Math.round(many.get('ours')?.perSecond ?? 0), unit: '/s', aim: null },
  }
}
