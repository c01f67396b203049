// Service A: how soon an instance is ready and answers SSH, from the warm pool and cold; where the time goes; how fast the pool fills again and
// what a VM of it costs. Runs the compiled appliance in a network namespace of its own; real QEMU under TCG, real OpenSSH.

import { readFileSync } from 'node:fs'
import type { AdminStatus } from '../../src/contract/admin.ts'
import { type Appliance, createAppliance } from '../../test/rigs/appliance.ts'
import { type Customer, createCustomer } from '../../test/rigs/instances-client.ts'
import { qemuProcesses } from '../../test/rigs/leftovers.ts'
import { until } from '../../test/rigs/until.ts'
import type { Figure, Figures } from './bench-report.ts'
import { type BootTimeline, PHASES, watchBoot } from './boot-timeline.ts'
import { loggedIn, measureInNetns, percentile, round, type Say } from './in-netns.ts'
import type { BenchContext } from './main.ts'

const warmRuns = 10
const coldRuns = 3
/** After the boot: the guest has gone quiet, and so has this machine. */
const settleMs = 3_000
const readyTimeoutMs = 180_000
/** A client that asks oftener takes the CPU from the claim. */
const askEveryMs = 20

/** Figures of one run; the measuring itself happens in a second process, inside the namespace. */
export function run(context: BenchContext): Promise<Figures> {
  return measureInNetns(import.meta.path, context)
}

if (import.meta.main) await Bun.write(process.argv[2] ?? '', JSON.stringify(await measure()))

type Start = { readonly readyMs: number; readonly sshMs: number; readonly claimMs: number; readonly probeMs: number }

async function measure(): Promise<Figures> {
  const say = (line: string) => process.stdout.write(`${line}\n`)
  const cold = await measureCold(say)
  const warm = await measureWarm(say)
  const of = (starts: readonly Start[], key: keyof Start) => starts.map(start => start[key])
  const recorded = (value: number, unit = 'ms'): Figure => ({ value, unit, aim: null })
  return {
    warmReadyMsP50: { value: percentile(of(warm.starts, 'readyMs'), 50), unit: 'ms', aim: { atMost: 1_500 } },
    warmReadyMsP99: { value: percentile(of(warm.starts, 'readyMs'), 99), unit: 'ms', aim: { atMost: 3_000 } },
    warmSshMsP50: { value: percentile(of(warm.starts, 'sshMs'), 50), unit: 'ms', aim: { atMost: 3_000 } },
    coldSshMsP50: { value: percentile(of(cold.starts, 'sshMs'), 50), unit: 'ms', aim: { atMost: 10_000 } },
    coldReadyMsP50: recorded(percentile(of(cold.starts, 'readyMs'), 50)),
    warmClaimMsP50: recorded(percentile(of(warm.starts, 'claimMs'), 50)),
    warmProbeMsP50: recorded(percentile(of(warm.starts, 'probeMs'), 50)),
    idleVmMiB: recorded(warm.idleVmMiB, 'MiB'),
    refillMsP50: recorded(percentile(warm.refillsMs, 50)),
    refillsPerMinute: recorded(round(60_000 / percentile(warm.refillsMs, 50)), '/min'),
    ...bootFigures(cold.boots),
  }
}

/** Of each phase of a boot, the median. */
function bootFigures(boots: readonly BootTimeline[]): Figures {
  return Object.fromEntries(
    PHASES.map(phase => {
      const value = percentile(
        boots.flatMap(boot => boot[phase] ?? []),
        50,
      )
      return [`boot${phase}Ms`, { value, unit: 'ms', aim: null }]
    }),
  )
}

/** One instance, from its POST to the end of the first SSH command. */
async function start(appliance: Appliance, customer: Customer): Promise<Start & { readonly name: string }> {
  const startedMs = performance.now()
  const { name, hostname } = (await customer.create()).body.data
  for (let status = ''; status !== 'ready'; status = (await customer.retrieve(name)).status) {
    if (status === 'failed' || performance.now() - startedMs > readyTimeoutMs) throw new Error(`${name} is ${status}`)
    await Bun.sleep(askEveryMs)
  }
  const readyMs = performance.now() - startedMs
  await loggedIn(appliance, hostname)
  const sshMs = performance.now() - startedMs
  return { name, readyMs, sshMs, ...provisionedIn(appliance) }
}

/** What the daemon says of the newest claim. */
function provisionedIn(appliance: Appliance): Pick<Start, 'claimMs' | 'probeMs'> {
  const line = appliance
    .log()
    .split('\n')
    .findLast(text => text.includes('instance provisioned'))
  const { claimMs, probeMs }: { claimMs?: number; probeMs?: number } = JSON.parse(line ?? '{}')
  if (claimMs === undefined || probeMs === undefined) throw new Error('the daemon does not say what a claim took')
  return { claimMs, probeMs }
}

async function measureCold(say: Say): Promise<{ starts: Start[]; boots: BootTimeline[] }> {
  await using appliance = await createAppliance()
  await appliance.start()
  const customer = await createCustomer(appliance, 'bench')
  const starts: Start[] = []
  const boots: BootTimeline[] = []
  for (let i = 0; i < coldRuns; i += 1) {
    const watching = watchBoot(appliance)
    const one = await start(appliance, customer)
    const boot = await watching.timeline(`bench/${one.name}`)
    starts.push(one)
    boots.push(boot)
    say(`cold ${i + 1}: ready ${round(one.readyMs)} ms, SSH ${round(one.sshMs)} ms; ${JSON.stringify(boot)}`)
    await customer.end(one.name, readyTimeoutMs)
  }
  return { starts, boots }
}

async function measureWarm(say: Say): Promise<{ starts: Start[]; refillsMs: number[]; idleVmMiB: number }> {
  await using appliance = await createAppliance('warm = 1', 'pool')
  await appliance.start()
  const customer = await createCustomer(appliance, 'bench')
  const starts: Start[] = []
  await warm(appliance)
  const idleVmMiB = round(Math.max(...qemuProcesses(appliance.stateDir).map(pssMiB)))
  for (let i = 0; i < warmRuns; i += 1) {
    const one = await start(appliance, customer)
    starts.push(one)
    say(
      `warm ${i + 1}: ready ${round(one.readyMs)} ms (claim ${one.claimMs}, probe ${one.probeMs}), SSH ${round(one.sshMs)} ms`,
    )
    await customer.end(one.name, readyTimeoutMs)
    await warm(appliance)
  }
  return { starts, refillsMs: refills(appliance), idleVmMiB }
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

/** Memory of a process, what it shares with others counted in proportion. */
function pssMiB(pid: number): number {
  const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8')
  return Number(/^Pss:\s+(\d+) kB$/m.exec(rollup)?.[1] ?? Number.NaN) / 1024
}
