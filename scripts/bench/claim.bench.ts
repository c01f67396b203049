// Service A: how soon an instance is ready and answers SSH, from the warm pool and cold; where the time goes; how fast
// the pool fills again and what a VM of it costs. Runs the compiled appliance in a network namespace of its own; real
// QEMU under TCG, real OpenSSH.

import { readFileSync } from 'node:fs'
import type { AdminStatus } from '../../src/contract/admin/admin.ts'
import { type Appliance, createAppliance, imageDir } from '../rigs/appliance.ts'
import { type Customer, createCustomer } from '../rigs/instances/instances-client.ts'
import { qemuProcesses } from '../rigs/leftovers.ts'
import { until } from '../rigs/until.ts'
import type { Figures } from './bench-report.ts'
import { plainBootMs } from './boot/plain-boot.ts'
import { cpuPercent } from './boot/process-time.ts'
import { PHASES, type Timeline, watchVm } from './boot/vm-timeline.ts'
import { loggedIn, measureInNetns, percentile, round, type Say } from './in-netns.ts'
import type { BenchContext } from './main.ts'

const warmRuns = 8
const coldRuns = 3
/** After the boot: the guest has gone quiet, and so has this machine. */
const settleMs = 3_000
const idleMs = 5_000
const readyTimeoutMs = 180_000
/** A client that asks oftener takes the CPU from the claim. */
const askEveryMs = 20

/** Figures of one run; the measuring itself happens in a second process, inside the namespace. */
export function run(context: BenchContext): Promise<Figures> {
  return measureInNetns(import.meta.path, context)
}

if (import.meta.main) await Bun.write(process.argv[2] ?? '', JSON.stringify(await measure()))

type Start = { readonly readyMs: number; readonly sshMs: number; readonly timeline: Timeline }

async function measure(): Promise<Figures> {
  const say = (line: string) => process.stdout.write(`${line}\n`)
  const { starts: cold, plainMs } = await measureCold(say)
  const { starts: warm, refillsMs, idle } = await measureWarm(say)
  const ready = (starts: readonly Start[], percent: number) =>
    percentile(
      starts.map(start => start.readyMs),
      percent,
    )
  const ssh = (starts: readonly Start[]) =>
    percentile(
      starts.map(start => start.sshMs),
      50,
    )
  const ratio = (ms: number) => round(ms / percentile(plainMs, 50))
  return {
    warmReadyMsP50: { value: ready(warm, 50), unit: 'ms', aim: { atMost: 1_500 } },
    warmReadyMsP99: { value: ready(warm, 99), unit: 'ms', aim: { atMost: 3_000 } },
    warmSshMsP50: { value: ssh(warm), unit: 'ms', aim: { atMost: 3_000 } },
    coldSshMsP50: { value: ssh(cold), unit: 'ms', aim: { atMost: 10_000 }, baseline: 'plainBootMs' },
    // For machines that emulate at another speed than the aims suppose, where a plain boot takes 4 s.
    coldSshRatioPlain: { value: ratio(ssh(cold)), unit: '', aim: { atMost: 2.3 } },
    warmReadyRatioPlain: { value: ratio(ready(warm, 50)), unit: '', aim: { atMost: 0.2 } },
    plainBootMs: { value: percentile(plainMs, 50), unit: 'ms', aim: null },
    coldReadyMsP50: { value: ready(cold, 50), unit: 'ms', aim: null },
    idleVmMiB: { value: idle.memoryMiB, unit: 'MiB', aim: null },
    idleVmCpuPercent: { value: idle.cpuPercent, unit: '%', aim: null },
    refillMsP50: { value: percentile(refillsMs, 50), unit: 'ms', aim: null },
    refillsPerMinute: { value: round(60_000 / percentile(refillsMs, 50)), unit: '/min', aim: null },
    ...phaseFigures('cold', cold),
    ...phaseFigures('warm', warm),
  }
}

/** Median of each phase, where there is one. */
function phaseFigures(kind: string, starts: readonly Start[]): Figures {
  return Object.fromEntries(
    PHASES.flatMap(phase => {
      const values = starts.flatMap(start => start.timeline[phase] ?? [])
      if (values.length === 0) return []
      return [[`${kind}${phase}MsP50`, { value: percentile(values, 50), unit: 'ms', aim: null }]]
    }),
  )
}

/** One instance, from its POST to the end of the first SSH command. */
async function measureStart(
  appliance: Appliance,
  customer: Customer,
  which: 'next' | 'present',
): Promise<Start & { readonly name: string }> {
  const watching = watchVm(appliance, which)
  const startedMs = performance.now()
  const { name, hostname } = (await customer.create()).body.data
  for (let status = ''; status !== 'ready'; status = (await customer.retrieve(name)).status) {
    if (status === 'failed' || performance.now() - startedMs > readyTimeoutMs) throw new Error(`${name} is ${status}`)
    await Bun.sleep(askEveryMs)
  }
  const readyMs = performance.now() - startedMs
  await loggedIn(appliance, hostname)
  const sshMs = performance.now() - startedMs
  return { name, readyMs, sshMs, timeline: await watching.timeline(`bench/${name}`) }
}

function startText({ readyMs, sshMs, timeline }: Start): string {
  const phases = Object.entries(timeline).map(([phase, ms]) => `${phase} ${ms}`)
  return `ready ${round(readyMs)} ms, SSH ${round(sshMs)} ms (${phases.join(', ')})`
}

/** In turns with plain boots, which share the machine's hour with them. */
async function measureCold(say: Say): Promise<{ readonly starts: Start[]; readonly plainMs: number[] }> {
  const image = await imageDir()
  await using appliance = await createAppliance()
  await appliance.start()
  const customer = await createCustomer(appliance, 'bench')
  const starts: Start[] = []
  const plainMs: number[] = []
  for (let i = 0; i < coldRuns; i += 1) {
    plainMs.push(await plainBootMs(image))
    say(`plain boot ${i + 1}: ${round(plainMs.at(-1) ?? 0)} ms`)
    const start = await measureStart(appliance, customer, 'next')
    starts.push(start)
    say(`cold ${i + 1}: ${startText(start)}`)
    await customer.end(start.name, readyTimeoutMs)
  }
  return { starts, plainMs }
}

async function measureWarm(say: Say): Promise<{ starts: Start[]; refillsMs: number[]; idle: Idle }> {
  await using appliance = await createAppliance('warm = 1', 'pool')
  await appliance.start()
  const customer = await createCustomer(appliance, 'bench')
  const starts: Start[] = []
  await warm(appliance)
  const idle = await measureIdle(qemuProcesses(appliance.stateDir)[0] ?? 0)
  say(`a VM of the pool: ${idle.memoryMiB} MiB, ${idle.cpuPercent} % of a CPU`)
  for (let i = 0; i < warmRuns; i += 1) {
    const start = await measureStart(appliance, customer, 'present')
    starts.push(start)
    say(`warm ${i + 1}: ${startText(start)}`)
    await customer.end(start.name, readyTimeoutMs)
    await warm(appliance)
  }
  return { starts, refillsMs: refills(appliance), idle }
}

/** Until there is a warm VM and nothing else goes on. */
async function warm(appliance: Appliance): Promise<void> {
  await until('a VM is warm', readyTimeoutMs, async () => {
    await Bun.sleep(200)
    const { pool } = await appliance.admin<AdminStatus>('status')
    if (pool.last_failure !== null) throw new Error(`the pool failed: ${pool.last_failure.reason}`)
    return pool.warm === 1 && pool.booting === 0
  })
  await Bun.sleep(settleMs)
}

function refills(appliance: Appliance): number[] {
  const lines = appliance
    .log()
    .split('\n')
    .filter(line => line.includes('"refillMs"'))
  return lines.map(line => Number(JSON.parse(line).refillMs))
}

type Idle = { readonly memoryMiB: number; readonly cpuPercent: number }

/** Memory and CPU of a process; shared memory counts in proportion (PSS). */
async function measureIdle(pid: number): Promise<Idle> {
  const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8')
  const memoryMiB = round(Number(/^Pss:\s+(\d+) kB$/m.exec(rollup)?.[1]) / 1024)
  return { memoryMiB, cpuPercent: await cpuPercent(pid, idleMs) }
}
