// Cost of a request and a chunk for a process between client and stub. Effects: load on processes of the caller.

import { readdirSync, readFileSync } from 'node:fs'
import { childrenOf, type Load, type Running, stubView } from './processes.ts'

const turns = 3
const rate = { connections: 64, ms: 2_000 }
const pacedStreams = 100
const warmMs = 1_500
const talkMs = 3_000
/** Within which a gateway has left the stub after its client has left. */
const quietMs = 5_000

export type CostRig = {
  readonly folder: string
  readonly load: Load
  readonly stub: Running
  readonly say: (line: string) => void
}

/** One way to be served; requests and chunks may be measured at different processes. */
export type Served = { readonly name: string; readonly forRequests: Running; readonly forChunks: Running }

/** Medians over all turns. */
export type Costs = Pick<RequestCost, Middle> & { readonly chunkUs: number }

type Middle = 'perSecond' | 'cpuUs' | 'ownCpuUs' | 'servingCpuUs'

/** Requests and chunks of each, in turns, after a first round of requests that warms up. By name. */
export async function costsInTurns(
  { load, stub, say }: CostRig,
  all: readonly Served[],
): Promise<ReadonlyMap<string, Costs>> {
  const seen = all.map(served => ({ served, requests: [] as RequestCost[], chunksUs: [] as number[] }))
  for (const { forRequests } of all) await requestCost(load, forRequests, rate)
  for (let turn = 0; turn < turns; turn += 1) {
    for (const { served, requests, chunksUs } of seen) {
      requests.push(await requestCost(load, served.forRequests, rate))
      chunksUs.push((await chunkCost(load, stub, served.forChunks, pacedStreams)).cpuUs)
    }
    const latest = seen.map(
      ({ served, requests, chunksUs }) =>
        `${served.name} ${round(requests.at(-1)?.cpuUs ?? 0)} and ${round(chunksUs.at(-1) ?? 0)} µs`,
    )
    say(`CPU of a request and of a chunk: ${latest.join(', ')}`)
  }
  const costsOf = (requests: readonly RequestCost[], chunksUs: readonly number[]): Costs => {
    const middle = (key: Middle) => median(requests.map(request => request[key]))
    return {
      perSecond: middle('perSecond'),
      cpuUs: middle('cpuUs'),
      ownCpuUs: middle('ownCpuUs'),
      servingCpuUs: middle('servingCpuUs'),
      chunkUs: median(chunksUs),
    }
  }
  return new Map(seen.map(({ served, requests, chunksUs }) => [served.name, costsOf(requests, chunksUs)]))
}

export type RequestCost = {
  readonly perSecond: number
  readonly p99Ms: number
  /** On a processor: of the process and its children, and of the process alone. */
  readonly cpuUs: number
  readonly ownCpuUs: number
  /** The same of its first thread alone, which serves clients. */
  readonly servingCpuUs: number
  /** Connections that were closed, and made again. */
  readonly closedCount: number
}

export async function requestCost(
  load: Load,
  { target, pid }: Running,
  { connections, ms }: { readonly connections: number; readonly ms: number },
): Promise<RequestCost> {
  const [allMs, ownMs, servingMs] = [cpuMsOf(pid), ownCpuMsOf(pid), threadCpuMsOf(pid, pid)]
  const values = await load.run(target, { kind: 'rate', connections, ms })
  const [perSecond = Number.NaN, , p99Ms = Number.NaN, closedCount = 0] = values
  const each = (spentMs: number) => (spentMs * 1_000_000) / (perSecond * ms)
  return {
    perSecond,
    p99Ms,
    closedCount,
    cpuUs: each(cpuMsOf(pid) - allMs),
    ownCpuUs: each(ownCpuMsOf(pid) - ownMs),
    servingCpuUs: each(threadCpuMsOf(pid, pid) - servingMs),
  }
}

export type ChunkCost = {
  readonly perSecond: number
  /** CPU time of the process and its children. */
  readonly cpuUs: number
  /** How late the sampled chunks were. */
  readonly lagsMs: readonly number[]
}

/** With so many streams, each of 50 chunks a second. */
export async function chunkCost(load: Load, stub: Running, running: Running, streams: number): Promise<ChunkCost> {
  const { target, pid } = running
  // The stub counts the chunks of all streams.
  await untilQuiet(stub)
  await load.run(target, { kind: 'talk', count: streams })
  await Bun.sleep(warmMs)
  await load.run(target, { kind: 'lags' })
  const [beforeMs, { chunks: before }, startedMs] = [cpuMsOf(pid), await stubView(stub), performance.now()]
  await Bun.sleep(talkMs)
  const spentMs = cpuMsOf(pid) - beforeMs
  const passed = (await stubView(stub)).chunks - before
  const tookMs = performance.now() - startedMs
  const lagsMs = await load.run(target, { kind: 'lags' })
  await load.run(target, { kind: 'release' })
  return { perSecond: (passed * 1_000) / tookMs, cpuUs: (spentMs * 1_000) / passed, lagsMs }
}

async function untilQuiet(stub: Running): Promise<void> {
  const endMs = performance.now() + quietMs
  while ((await stubView(stub)).running > 0) {
    if (performance.now() > endMs) throw new Error('the stub still answers somebody whom the client has left')
    await Bun.sleep(10)
  }
}

/** On a processor, of all threads of a process and its children. */
export function cpuMsOf(pid: number): number {
  return childrenOf(pid).reduce((sum, child) => sum + cpuMsOf(child), ownCpuMsOf(pid))
}

function ownCpuMsOf(pid: number): number {
  return readdirSync(`/proc/${pid}/task`).reduce((sum, task) => sum + threadCpuMsOf(pid, task), 0)
}

/** proc(5), schedstat: nanoseconds. A thread that has ended took none. */
function threadCpuMsOf(pid: number, task: number | string): number {
  try {
    return Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0]) / 1e6
  } catch {
    return 0
  }
}

/** Where two are in the middle, the smaller one. */
export function median(values: readonly number[]): number {
  return percentile(values, 0.5)
}

export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.floor(share * (sorted.length - 1))] ?? Number.NaN
}

/** To so many digits after the point. */
export function round(value: number, digits = 2): number {
  return Math.round(value * 10 ** digits) / 10 ** digits
}
