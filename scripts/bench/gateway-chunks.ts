// What a chunk of a stream costs: CPU time of the gateway for each that it passes on, beside nginx without buffering and a relay that reads nothing;
// and how late chunks are at 25,000 a second. Streams are paced as a model talks. Effects: load on processes that the caller has started.

import { readdirSync, readFileSync } from 'node:fs'
import type { Figures } from './bench-report.ts'
import { childrenOf, type Load, type Running, stubView } from './gateway-processes.ts'

const rounds = 3
const pacedStreams = 100
const manyStreams = 500
const warmMs = 1_500
const measureMs = 3_000

export type ChunkRig = {
  readonly load: Load
  readonly stub: Running
  readonly targets: { readonly ours: Running; readonly nginx: Running; readonly raw: Running }
  readonly say: (line: string) => void
}

type Cost = { readonly chunksPerSecond: number; readonly microseconds: number; readonly lags: readonly number[] }

export async function measureChunks({ load, stub, targets, say }: ChunkRig): Promise<Figures> {
  const all = Object.entries(targets)
  const seen = new Map<string, number[]>(all.map(([name]) => [name, []]))
  const measure = async (running: Running, count: number): Promise<Cost> => {
    await load.run(running.target, { kind: 'talk', count })
    await Bun.sleep(warmMs)
    await load.run(running.target, { kind: 'lags' })
    const [cpuMs, chunks, startedMs] = [cpuMsOf(running.pid), (await stubView(stub)).chunks, performance.now()]
    await Bun.sleep(measureMs)
    const spentMs = cpuMsOf(running.pid) - cpuMs
    const passed = (await stubView(stub)).chunks - chunks
    const tookMs = performance.now() - startedMs
    const lags = await load.run(running.target, { kind: 'lags' })
    await load.run(running.target, { kind: 'release' })
    return { chunksPerSecond: (passed * 1000) / tookMs, microseconds: (spentMs * 1000) / passed, lags }
  }
  for (let round = 0; round < rounds; round += 1) {
    for (const [name, running] of all) seen.get(name)?.push((await measure(running, pacedStreams)).microseconds)
    say(`CPU for a chunk: ${all.map(([name]) => `${name} ${round2(seen.get(name)?.at(-1) ?? 0)} µs`).join(', ')}`)
  }
  const cost = (name: string) => median(seen.get(name) ?? [])
  const many = new Map<string, Cost>()
  for (const [name, running] of all) many.set(name, await measure(running, manyStreams))
  const late = (name: string) => round2(percentile(many.get(name)?.lags ?? [], 0.99))
  for (const [name, { chunksPerSecond }] of many) {
    say(`${name}: ${Math.round(chunksPerSecond)} chunks/s, p99 ${late(name)} ms late`)
  }
  return {
    chunkCpuRatioNginx: { value: round2(cost('ours') / cost('nginx')), unit: '', aim: { atMost: 1.15 } },
    chunkCpuRatioRaw: { value: round2(cost('ours') / cost('raw')), unit: '', aim: null },
    chunkCpuUs: { value: round2(cost('ours')), unit: 'µs', aim: null, baseline: 'nginxChunkCpuUs' },
    nginxChunkCpuUs: { value: round2(cost('nginx')), unit: 'µs', aim: null },
    rawChunkCpuUs: { value: round2(cost('raw')), unit: 'µs', aim: null },
    // Of one core.
    chunksPerSecond: { value: Math.round(1_000_000 / cost('ours')), unit: '/s', aim: null },
    chunkP99Ms25k: { value: late('ours'), unit: 'ms', aim: null, baseline: 'nginxChunkP99Ms25k' },
    nginxChunkP99Ms25k: { value: late('nginx'), unit: 'ms', aim: null },
    rawChunkP99Ms25k: { value: late('raw'), unit: 'ms', aim: null },
    // What really went through while that was measured: fewer than 25,000 say that this machine has no cores for more.
    chunkP99Rate: { value: Math.round(many.get('ours')?.chunksPerSecond ?? 0), unit: '/s', aim: null },
  }
}

/** On a processor, of all threads of a process and its children; proc(5), schedstat: nanoseconds. */
export function cpuMsOf(pid: number): number {
  const own = readdirSync(`/proc/${pid}/task`).map(task => readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8'))
  const ownMs = own.reduce((sum, text) => sum + Number(text.split(' ')[0]) / 1e6, 0)
  return childrenOf(pid).reduce((sum, child) => sum + cpuMsOf(child), ownMs)
}

function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.floor(share * (sorted.length - 1))] ?? Number.NaN
}

function median(values: readonly number[]): number {
  return percentile(values, 0.5)
}

function round2(value: number): number {
  return Math.round(value * 100) / 100
}
