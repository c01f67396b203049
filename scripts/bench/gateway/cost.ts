// Cost of a request and a chunk for a process between client and stub. Effects: load on processes of the caller.
//
// Every measure is a number of requests or chunks, and processes that are compared are measured in turns. A figure that
// compares two is the median of the ratios within each turn, so a machine that is busy for a while changes it little.

import { FFIType, ptr } from 'bun:ffi'
import { readFileSync } from 'node:fs'
import { libcOf } from '../../../src/linux/ffi.ts'
import { childrenOf, type Load, type Running, stubView } from './processes.ts'

const connections = 64
/** Enough that the compiler of the runtime has finished with the code of a request. */
const warmRequests = 24_000
const warmSteps = 6
const turns = 5
const requestsPerTurn = 4_000
const pacedStreams = 100
/** Before each measure of chunks: the streams have begun, and the first of them are not counted. */
const warmChunks = 5_000
const chunksPerTurn = 15_000
const chunksTimeoutMs = 60_000
/** Within which a gateway has left the stub after its client has left. */
const quietMs = 5_000

export type CostRig = {
  readonly folder: string
  readonly load: Load
  readonly stub: Running
  readonly say: (line: string) => void
}

/** One way to be served; requests and chunks may be measured at different processes. */
export type Served = {
  readonly name: string
  readonly forRequests: Running
  /** Null for a process that relays no streams. */
  readonly forChunks: Running | null
}

/** `chunkUs` is NaN for a process that relays no streams. */
export type TurnCost = RequestCost & { readonly chunkUs: number }

/** Costs by name, one for each turn. */
export class TurnCosts<Cost extends { readonly [key in keyof Cost]: number }> {
  readonly #costs = new Map<string, Cost[]>()

  add(name: string, cost: Cost): void {
    const costs = this.#costs.get(name) ?? []
    this.#costs.set(name, costs)
    costs.push(cost)
  }

  names(): string[] {
    return [...this.#costs.keys()]
  }

  latest(name: string, key: keyof Cost): number {
    return this.#costs.get(name)?.at(-1)?.[key] ?? Number.NaN
  }

  median(name: string, key: keyof Cost): number {
    return median((this.#costs.get(name) ?? []).map(cost => cost[key]))
  }

  /** The median of `name` divided by `other` in each turn that has both. */
  ratio(name: string, other: string, key: keyof Cost): number {
    const others = this.#costs.get(other) ?? []
    const both = (this.#costs.get(name) ?? []).slice(0, others.length)
    return median(both.map((cost, turn) => cost[key] / (others[turn]?.[key] ?? Number.NaN)))
  }
}

/** Requests and chunks of each, in turns, after enough requests of each. */
export async function costsInTurns({ load, stub, say }: CostRig, all: readonly Served[]): Promise<TurnCosts<TurnCost>> {
  const costs = new TurnCosts<TurnCost>()
  await warm(
    load,
    all.map(({ forRequests }) => forRequests),
  )
  for (let turn = 0; turn < turns; turn += 1) {
    for (const { name, forRequests, forChunks } of all) {
      const request = await requestCost(load, forRequests, { connections, requests: requestsPerTurn })
      const chunk = forChunks === null ? null : await chunkCost(load, stub, forChunks, pacedStreams)
      costs.add(name, { ...request, chunkUs: chunk?.cpuUs ?? Number.NaN })
    }
    const latest = costs.names().map(name => {
      return `${name} ${round(costs.latest(name, 'cpuUs'))} and ${round(costs.latest(name, 'chunkUs'))} µs`
    })
    say(`CPU of a request and of a chunk: ${latest.join(', ')}`)
  }
  return costs
}

/** Sends enough requests to each that its code is compiled, in turns. */
export async function warm(load: Load, all: readonly Running[], requests = warmRequests): Promise<void> {
  for (let step = 0; step < warmSteps; step += 1) {
    for (const running of all) await requestCost(load, running, { connections, requests: requests / warmSteps })
  }
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
  { connections, requests }: { readonly connections: number; readonly requests: number },
): Promise<RequestCost> {
  const [allMs, ownMs, servingMs] = [cpuMsOf(pid), ownCpuMsOf(pid), threadCpuMsOf(pid, pid)]
  const values = await load.run(target, { kind: 'rate', connections, requests })
  const [answered = Number.NaN, tookMs = Number.NaN, , p99Ms = Number.NaN, closedCount = 0] = values
  const each = (spentMs: number) => (spentMs * 1_000) / answered
  return {
    perSecond: (answered * 1_000) / tookMs,
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
  const { chunks: begun } = await stubView(stub)
  await load.run(target, { kind: 'talk', count: streams })
  await untilChunks(stub, begun + warmChunks)
  await load.run(target, { kind: 'lags' })
  const [beforeMs, { chunks: before }, startedMs] = [cpuMsOf(pid), await stubView(stub), performance.now()]
  const passed = (await untilChunks(stub, before + chunksPerTurn)) - before
  const [spentMs, tookMs] = [cpuMsOf(pid) - beforeMs, performance.now() - startedMs]
  const lagsMs = await load.run(target, { kind: 'lags' })
  await load.run(target, { kind: 'release' })
  return { perSecond: (passed * 1_000) / tookMs, cpuUs: (spentMs * 1_000) / passed, lagsMs }
}

/** Returns the count of chunks once it is at least `count`. */
async function untilChunks(stub: Running, count: number): Promise<number> {
  const endMs = performance.now() + chunksTimeoutMs
  for (;;) {
    const { chunks } = await stubView(stub)
    if (chunks >= count) return chunks
    if (performance.now() > endMs) throw new Error(`the stub has sent ${chunks} chunks of ${count} and takes too long`)
    await Bun.sleep(20)
  }
}

async function untilQuiet(stub: Running): Promise<void> {
  const endMs = performance.now() + quietMs
  while ((await stubView(stub)).running > 0) {
    if (performance.now() > endMs) throw new Error('the stub still answers somebody whom the client has left')
    await Bun.sleep(10)
  }
}

/** Returns the processor time of all threads of a process and its children. */
export function cpuMsOf(pid: number): number {
  return childrenOf(pid).reduce((sum, child) => sum + cpuMsOf(child), ownCpuMsOf(pid))
}

/**
 * The clock of a process, in nanoseconds: /proc has ticks of 10 ms, a tenth of what a turn of the relay takes. It
 * includes threads that have ended, as those of the runtime's compiler do after a while.
 */
function ownCpuMsOf(pid: number): number {
  const time = new BigInt64Array(2)
  // clock_getcpuclockid(3): the kernel's number of the clock of another process (include/linux/posix-timers.h).
  const isRead = libc().clock_gettime((~pid << 3) | CPUCLOCK_SCHED, ptr(time)) === 0
  return isRead ? Number(time[0]) * 1_000 + Number(time[1]) / 1e6 : Number.NaN
}

const CPUCLOCK_SCHED = 2
const libc = libcOf({ clock_gettime: { args: [FFIType.i32, FFIType.ptr], returns: FFIType.i32 } })

/** proc(5), schedstat: nanoseconds. */
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
