// Builds of a crate without code, from the request to the last event, by the times at which a client gets the events.
// Beside each time stands the processor time of the VM, which a busy machine changes less. Runs the compiled appliance
// in a network namespace of its own; real QEMU under TCG.

import { readFileSync } from 'node:fs'

import { StageTimes } from '../../../src/contract/http/build-stages.ts'
import { createBuildsAppliance, createBuildsClient, messageOf } from '../../rigs/build/builds-client.ts'
import { randomNonce } from '../../rigs/build/builds-service.ts'
import { archiveOf, plainProject } from '../../rigs/build/sources.ts'
import { qemuProcesses } from '../../rigs/leftovers.ts'
import type { Figures } from '../bench-report.ts'
import { measureInNetns, percentile, type Say } from '../in-netns.ts'
import type { BenchContext } from '../main.ts'

const runs = 3

/** Figures of one run; the measuring itself happens in a second process, inside the namespace. */
export function measureEmptyBuilds(context: BenchContext): Promise<Figures> {
  return measureInNetns(import.meta.path, context)
}

if (import.meta.main) {
  const say = (line: string) => process.stdout.write(`${line}\n`)
  await Bun.write(process.argv[2] ?? '', JSON.stringify(await measure(say)))
}

async function measure(say: Say): Promise<Figures> {
  const { appliance } = await createBuildsAppliance()
  await using _ = appliance
  await appliance.start()
  const client = await createBuildsClient(appliance)
  const source_data = Buffer.from(archiveOf(plainProject)).toString('base64')
  const all: number[] = []
  const cpu: number[] = []
  const ofStages = new Map<string, number[]>()
  for (let at = 1; at <= runs; at += 1) {
    const others = qemuProcesses(appliance.stateDir)
    const startedMs = performance.now()
    const { job_id } = await client.submit({ nonce: randomNonce(), source_data, source_name: 'empty.tar.gz' })
    const stages = new StageTimes()
    let [last, cpuMs] = ['', 0]
    for await (const { data } of client.stream(job_id)) {
      const ms = performance.now() - startedMs
      stages.note(data.type, ms)
      last = JSON.stringify(data)
      cpuMs = Math.max(cpuMs, cpuMsOf(qemuProcesses(appliance.stateDir).filter(pid => !others.includes(pid))))
      say(`${seconds(ms)} ${seconds(cpuMs)} ${data.type} ${messageOf(data).slice(0, 120)}`)
    }
    if (!last.includes('"ok"')) throw new Error(`the build failed: ${last}`)
    all.push(performance.now() - startedMs)
    cpu.push(cpuMs)
    for (const { stage, ms } of stages.list()) ofStages.set(stage, [...(ofStages.get(stage) ?? []), ms])
    say(`run ${at}: ${stages.text()}`)
  }
  const perStage = [...ofStages].map(([stage, values]) => [
    `${stage}Ms`,
    { value: percentile(values, 50), unit: 'ms', aim: null },
  ])
  return {
    emptyCrateMs: { value: percentile(all, 50), unit: 'ms', aim: { atMost: 45_000 } },
    vmCpuMs: { value: percentile(cpu, 50), unit: 'ms', aim: null },
    ...Object.fromEntries(perStage),
  }
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1).padStart(6)} s`
}

/** Processor time of these processes so far, in ms: fields 14 and 15 of proc_pid_stat(5), in hundredths of a second. */
function cpuMsOf(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => {
    try {
      const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? []
      return sum + (Number(fields[11]) + Number(fields[12])) * 10
    } catch {
      return sum
    }
  }, 0)
}
