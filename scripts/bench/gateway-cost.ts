// What a request and a chunk cost a process that stands between client and stub. Effects: load on processes that the caller has started.

import { readdirSync, readFileSync } from 'node:fs'
import { childrenOf, type Load, type Running, stubView } from './gateway-processes.ts'

const warmMs = 1_500
const talkMs = 3_000
/** Within which a gateway has left the stub after its client has left. */
const quietMs = 5_000

export type RequestCost = {
  readonly perSecond: number
  readonly p99Ms: number
  /** On a processor: of the process and its children, and of the process alone. */
  readonly cpuUs: number
  readonly ownCpuUs: number
  /** Connections that were closed, and made again. */
  readonly closedCount: number
}

export async function requestCost(
  load: Load,
  { target, pid }: Running,
  { connections, ms }: { readonly connections: number; readonly ms: number },
): Promise<RequestCost> {
  const [allMs, ownMs] = [cpuMsOf(pid), ownCpuMsOf(pid)]
  const values = await load.run(target, { kind: 'rate', connections, ms })
  const [perSecond = Number.NaN, , p99Ms = Number.NaN, closedCount = 0] = values
  const each = (spentMs: number) => (spentMs * 1_000_000) / (perSecond * ms)
  return {
    ...{ perSecond, p99Ms, closedCount },
    cpuUs: each(cpuMsOf(pid) - allMs),
    ownCpuUs: each(ownCpuMsOf(pid) - ownMs),
  }
}

export type ChunkCost = {
  readonly perSecond: number
  /** Of the process and its children. */
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

/** proc(5), schedstat: nanoseconds. */
function ownCpuMsOf(pid: number): number {
  const own = readdirSync(`/proc/${pid}/task`).map(task => readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8'))
  return own.reduce((sum, text) => sum + Number(text.split(' ')[0]) / 1e6, 0)
}

/** Of the smaller of the two in the middle. */
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
