// Service B: what the gateway adds to a request and to a stream, beside the same without it, through nginx, and
// through Portkey's gateway; and beside a relay of the same parts that does nothing, which shows what the runtime
// costs by itself. Runs in a network namespace of its own, loopback only. Every process shares the machine's cores
// with the others. Plain HTTP on both sides, because nginx proxies plain HTTP too, but in the rows that have TLS;
// authentication, limits, validation, ledger and metrics are on.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { measureNeighbours } from '../rigs/gateway/neighbours.ts'
import { measureVmDeath } from '../rigs/gateway/vm-death.ts'
import { createNetns } from '../rigs/netns.ts'
import type { Figure, Figures } from './bench-report.ts'
import { measureChunks } from './gateway/chunks.ts'
import {
  median as medianOf,
  percentile,
  type RequestCost,
  requestCost,
  round as roundTo,
  TurnCosts,
  warm,
} from './gateway/cost.ts'
import {
  installPortkey,
  type Load,
  type Running,
  residentBytes,
  startLoad,
  startNginx,
  startOurs,
  startPortkey,
  startRaw,
  startRelay,
  startStockNginx,
  startStreamingNginx,
  startStub,
} from './gateway/processes.ts'
import { measureRelays } from './gateway/relays.ts'
import { measureSecured } from './gateway/secured.ts'
import type { Mode } from './gateway/wire.ts'
import type { BenchContext } from './main.ts'

const rateTurns = 9
const requestsPerTurn = 4_000
/** It serves a tenth of the requests in the same time. */
const portkey = { turns: 3, requests: 1_000, warmRequests: 3_000 }
const streamTurns = 5
const aloneRepeats = 100
const manyRepeats = 10
/** Warm-up requests per connection, before streams are measured. */
const warmRepeats = 60
const connections = 64
const heldStreams = 1_000
const settleMs = 5_000
/** Long enough that the garbage of the streams' beginning is collected. */
const heldMs = 15_000
const leaveCount = 20
/** A busy machine takes several times as long for the same requests. */
const insideTimeoutMs = 2_400_000

export async function run({ repoRoot, note, signal }: BenchContext): Promise<Figures> {
  await installPortkey(note)
  using netns = createNetns()
  const folder = mkdtempSync(join(tmpdir(), 'srt-bench-'))
  const results = join(folder, 'figures.json')
  try {
    const child = Bun.spawn(netns.argv([process.execPath, import.meta.path, folder, results]), {
      cwd: repoRoot,
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'inherit',
      timeout: insideTimeoutMs,
      signal,
    })
    for await (const chunk of child.stdout) note(Buffer.from(chunk).toString().trimEnd())
    if ((await child.exited) !== 0) throw new Error(`the measuring process ended with ${await child.exited}`)
    const figures = (await Bun.file(results).json()) as Figures
    const vmDeathResetMs = { value: round(await measureVmDeath()), unit: 'ms', aim: { atMost: 1_000 } }
    return { ...figures, vmDeathResetMs }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

if (import.meta.main) {
  const [folder = '', results = ''] = process.argv.slice(2)
  await Bun.write(results, JSON.stringify(await measure(folder)))
  process.exit(0)
}

type Say = (line: string) => void
type Named<T> = { readonly direct: T; readonly nginx: T; readonly ours: T }
type Rig = { readonly load: Load; readonly targets: Named<Running>; readonly say: Say }
type RateRig = Rig & {
  readonly others: { readonly stockNginx: Running; readonly relay: Running }
  /** Each of them null where it cannot be had. */
  readonly portkeys: { readonly portkeyBun: Running | null; readonly portkeyNode: Running | null }
}

async function measure(folder: string): Promise<Figures> {
  const say: Say = line => process.stdout.write(`${line}\n`)
  await using direct = await startStub()
  await using nginx = await startNginx(folder, direct)
  await using portkeyBun = await startPortkey(direct, 'bun')
  await using portkeyNode = await startPortkey(direct, 'node')
  await using load = startLoad()
  if (portkeyBun === null) say("Portkey's gateway is not there: its figures are left out")
  const weight = await measureWeight(folder, { load, stub: direct, nginx, say })
  await using ours = await startOurs(folder, direct)
  await using stockNginx = await startStockNginx(folder, direct)
  await using relay = await startRelay(direct)
  const rig = { load, targets: { direct, nginx, ours }, say }
  const rates = await measureRates({ ...rig, others: { stockNginx, relay }, portkeys: { portkeyBun, portkeyNode } })
  const streams = await measureStreams(rig)
  const leaving = await measureLeaving(rig)
  await using streaming = await startStreamingNginx(folder, direct)
  await using raw = await startRaw(direct)
  const chunks = await measureChunks({ load, stub: direct, targets: { ours, nginx: streaming, raw }, say })
  const relays = await measureRelays({ folder, load, stub: direct, say })
  const secured = await measureSecured({ folder, load, stub: direct, say })
  const neighbours = await measureNeighbour(say)
  return { ...rates, ...streams, ...weight, ...leaving, ...chunks, ...relays, ...secured, ...neighbours }
}

/** An upstream with as many places as the built-in worker has by default; two keys of one organization. */
async function measureNeighbour(say: Say): Promise<Figures> {
  const { aloneMs, besideMs } = await measureNeighbours({ held: connections, places: 4, sameOrganization: true })
  say(`a key's requests: ${round(aloneMs)} ms alone, ${round(besideMs)} ms beside ${connections} of another key`)
  return { neighbourP50Ratio: { value: round(besideMs / aloneMs), unit: '', aim: { atMost: 1.5 } } }
}

/** Requests per second with 64 connections, in turns. */
async function measureRates({ load, targets, others, portkeys, say }: RateRig): Promise<Figures> {
  const there = Object.entries(portkeys).flatMap(([name, running]) =>
    running === null ? [] : [[name, running] as const],
  )
  const all = [...Object.entries({ ...targets, ...others }), ...there]
  const isPortkey = (name: string) => name in portkeys
  const costs = new TurnCosts<RequestCost>()
  const runningOf = (isWanted: (name: string) => boolean) =>
    all.filter(([name]) => isWanted(name)).map(([, running]) => running)
  await warm(load, runningOf(isPortkey), portkey.warmRequests)
  await warm(
    load,
    runningOf(name => !isPortkey(name)),
  )
  for (let turn = 0; turn < rateTurns; turn += 1) {
    for (const [name, running] of all) {
      if (isPortkey(name) && turn >= portkey.turns) continue
      const requests = isPortkey(name) ? portkey.requests : requestsPerTurn
      const cost = await requestCost(load, running, { connections, requests })
      costs.add(name, cost)
      if (cost.closedCount > 0) {
        say(`${running.target.name} has closed ${cost.closedCount} connections; they were made again`)
      }
    }
    const latest = all.map(([name]) => {
      return `${name} ${Math.round(costs.latest(name, 'perSecond'))} (${round(costs.latest(name, 'cpuUs'))} µs)`
    })
    say(`requests/s and CPU of each: ${latest.join(', ')}`)
  }
  const of = (name: string, key: keyof RequestCost) => round(costs.median(name, key))
  const ratio = (name: string, other: string, key: keyof RequestCost) => round(costs.ratio(name, other, key))
  const recorded = (value: number): Figure => ({ value, unit: '', aim: null })
  const figures: Record<string, Figure> = {
    requestCpuRatioRelay: { value: ratio('ours', 'relay', 'cpuUs'), unit: '', aim: { atMost: 1.45 } },
    requestCpuUs: { value: of('ours', 'cpuUs'), unit: 'µs', aim: null, baseline: 'relayRequestCpuUs' },
    rpsRatioNginxC64: recorded(ratio('ours', 'nginx', 'perSecond')),
    rpsRatioStockNginxC64: recorded(ratio('ours', 'stockNginx', 'perSecond')),
    relayRpsRatioNginxC64: recorded(ratio('relay', 'nginx', 'perSecond')),
  }
  const portkeyAims = { portkeyBun: { atLeast: 4 }, portkeyNode: { atLeast: 8 } }
  for (const name of ['portkeyBun', 'portkeyNode'] as const) {
    const value = ratio('ours', name, 'perSecond')
    if (portkeys[name] !== null) figures[`rpsRatioP${name.slice(1)}C64`] = { value, unit: '', aim: portkeyAims[name] }
  }
  for (const [name] of all) {
    figures[`${name}RpsC64`] = { value: Math.round(of(name, 'perSecond')), unit: '/s', aim: null }
    figures[`${name}MsP99C64`] = { value: of(name, 'p99Ms'), unit: 'ms', aim: null }
    // CPU time of the process alone: it says more than the rate while others use the machine.
    if (name !== 'ours') figures[`${name}RequestCpuUs`] = { value: of(name, 'cpuUs'), unit: 'µs', aim: null }
    else figures.servingCpuUs = { value: of(name, 'servingCpuUs'), unit: 'µs', aim: null }
  }
  return figures
}

/** From the request to the first event: one stream after the other, and 64 that talk at a model's pace. */
async function measureStreams({ load, targets, say }: Rig): Promise<Figures> {
  // Not Portkey's gateway: on Node 20 it answers streams of a custom host with 500 (tried with 1.15.2).
  const all = Object.entries(targets)
  // The first thousands of streams run code that is not compiled yet.
  for (const [, { target }] of all) {
    await load.run(target, { kind: 'firstChunk', mode: 'short', connections, repeats: warmRepeats })
  }
  const measureAll = async (mode: Mode, count: number, repeats: number) => {
    const costs = new TurnCosts<{ readonly p50: number; readonly p99: number }>()
    // The first turn warms up.
    for (let turn = -1; turn < streamTurns; turn += 1) {
      for (const [name, { target }] of all) {
        const times = await load.run(target, { kind: 'firstChunk', mode, connections: count, repeats })
        if (turn >= 0) costs.add(name, { p50: percentile(times, 0.5), p99: percentile(times, 0.99) })
      }
    }
    const p50 = (name: string) => round(costs.median(name, 'p50'))
    const p99 = (name: string) => round(costs.median(name, 'p99'))
    say(
      `first chunk, ${count} at a time: ${all.map(([name]) => `${name} ${p50(name)}, p99 ${p99(name)} ms`).join(', ')}`,
    )
    return { p50, p99, p99Ratio: (name: string, other: string) => round(costs.ratio(name, other, 'p99')) }
  }
  const alone = await measureAll('short', 1, aloneRepeats)
  const many = await measureAll('paced', connections, manyRepeats)
  const added = ({ p50 }: typeof alone, name: string) => round(p50(name) - p50('direct'))
  return {
    addedFirstChunkMsC1: {
      value: added(alone, 'ours'),
      unit: 'ms',
      aim: null,
      baseline: 'nginxAddedFirstChunkMsC1',
    },
    addedFirstChunkMsC64: {
      value: added(many, 'ours'),
      unit: 'ms',
      aim: null,
      baseline: 'nginxAddedFirstChunkMsC64',
    },
    firstChunkP99MsC64: {
      value: many.p99('ours'),
      unit: 'ms',
      aim: null,
      baseline: 'nginxFirstChunkP99MsC64',
    },
    firstChunkP99RatioNginxC64: { value: many.p99Ratio('ours', 'nginx'), unit: '', aim: { atMost: 1.5 } },
    nginxFirstChunkP99MsC64: { value: many.p99('nginx'), unit: 'ms', aim: null },
    directFirstChunkP99MsC64: { value: many.p99('direct'), unit: 'ms', aim: null },
    directFirstChunkMsC1: { value: alone.p50('direct'), unit: 'ms', aim: null },
    directFirstChunkMsC64: { value: many.p50('direct'), unit: 'ms', aim: null },
    nginxAddedFirstChunkMsC1: { value: added(alone, 'nginx'), unit: 'ms', aim: null },
    nginxAddedFirstChunkMsC64: { value: added(many, 'nginx'), unit: 'ms', aim: null },
  }
}

type Weighing = { readonly load: Load; readonly stub: Running; readonly nginx: Running; readonly say: Say }

/** Growth of a young process's resident memory for each open, silent stream. */
async function measureWeight(folder: string, { load, stub, nginx, say }: Weighing): Promise<Figures> {
  await using ours = await startOurs(folder, stub)
  const bytesOf = async ({ target, pid }: Running) => {
    await load.run(target, { kind: 'firstChunk', mode: 'short', connections, repeats: 10 })
    await Bun.sleep(settleMs)
    const before = residentBytes(pid)
    await load.run(target, { kind: 'hold', count: heldStreams })
    await Bun.sleep(heldMs)
    const bytes = (residentBytes(pid) - before) / heldStreams
    await load.run(target, { kind: 'release' })
    return Math.round(bytes)
  }
  const own = await bytesOf(ours)
  const theirs = await bytesOf(nginx)
  say(`${heldStreams} idle streams: ${own} bytes each, nginx ${theirs}`)
  return {
    bytesPerStream: { value: own, unit: 'B', aim: { atMost: 20_480 }, baseline: 'nginxBytesPerStream' },
    nginxBytesPerStream: { value: theirs, unit: 'B', aim: null },
  }
}

/** From the client's leaving to the upstream's seeing it; the slowest of all. */
async function measureLeaving({ load, targets, say }: Rig): Promise<Figures> {
  const stubPort = targets.direct.target.port
  const leave = (of: Running, mode: Mode) => load.run(of.target, { kind: 'leave', mode, count: leaveCount, stubPort })
  const modes = ['idle', 'silentStream', 'silentPlain'] as const
  const own: number[] = []
  const base: number[] = []
  for (const mode of modes) {
    own.push(...(await leave(targets.ours, mode)))
    base.push(...(await leave(targets.direct, mode)))
  }
  say(`upstream free after ${round(median(own))} ms, at most ${round(Math.max(...own))} ms`)
  return {
    upstreamFreeMs: { value: round(Math.max(...own)), unit: 'ms', aim: { atMost: 100 }, baseline: 'directFreeMs' },
    directFreeMs: { value: round(Math.max(...base)), unit: 'ms', aim: null },
  }
}

function median(values: readonly number[]): number {
  return round(medianOf(values))
}

function round(value: number): number {
  return roundTo(value, 3)
}
