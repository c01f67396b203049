// Cost of a hung VM for others: list and usage of service A while its QEMU is stopped, and the time until a delete
// removes it.
// Runs the compiled appliance in a network namespace of its own; real QEMU under TCG.

import { createAppliance } from '../rigs/appliance.ts'
import { createCustomer } from '../rigs/instances/instances-client.ts'
import { qemuProcesses } from '../rigs/leftovers.ts'
import type { Figures } from './bench-report.ts'
import { measureInNetns, percentile, round } from './in-netns.ts'
import type { BenchContext } from './main.ts'

const readyTimeoutMs = 180_000
const goneTimeoutMs = 120_000
/** Before liveness has judged the VM, and after it has asked it in vain. */
const measuredMs = 20_000
const pauseMs = 25

/** `listMsWithHungVm` and what stands beside it, for `bun run bench network`. */
export function measureHungVm(context: BenchContext): Promise<Figures> {
  return measureInNetns(import.meta.path, context)
}

if (import.meta.main) await Bun.write(process.argv[2] ?? '', JSON.stringify(await measure()))

async function measure(): Promise<Figures> {
  const say = (line: string) => process.stdout.write(`${line}\n`)
  await using appliance = await createAppliance()
  await appliance.start()
  const customer = await createCustomer(appliance, 'bench')
  const { name } = (await customer.create()).body.data
  await customer.reached(name, 'ready', readyTimeoutMs)
  const calm = await latencies({ list: customer.list, usage: customer.usage })
  say(`calm: list p99 ${percentile(calm.list, 99)} ms, usage p99 ${percentile(calm.usage, 99)} ms`)
  const [pid] = qemuProcesses(appliance.stateDir)
  if (pid === undefined) throw new Error('there is no QEMU to stop')
  process.kill(pid, 'SIGSTOP')
  const hung = await latencies({ list: customer.list, usage: customer.usage })
  say(`one VM hangs: list p99 ${percentile(hung.list, 99)} ms, usage p99 ${percentile(hung.usage, 99)} ms`)
  const deletedMs = performance.now()
  await customer.end(name, goneTimeoutMs)
  const deleteMs = round(performance.now() - deletedMs)
  return {
    listMsCalm: { value: percentile(calm.list, 99), unit: 'ms p99', aim: null },
    listMsWithHungVm: { value: percentile(hung.list, 99), unit: 'ms p99', aim: { atMost: 50 }, baseline: 'listMsCalm' },
    usageMsCalm: { value: percentile(calm.usage, 99), unit: 'ms p99', aim: null },
    usageMsWithHungVm: {
      value: percentile(hung.usage, 99),
      unit: 'ms p99',
      aim: { atMost: 50 },
      baseline: 'usageMsCalm',
    },
    deleteMsOfHungVm: { value: deleteMs, unit: 'ms', aim: null },
  }
}

/** Milliseconds of each request, one after the other. */
async function latencies(ask: { list: () => Promise<unknown>; usage: () => Promise<unknown> }) {
  const times = { list: [] as number[], usage: [] as number[] }
  const untilMs = performance.now() + measuredMs
  while (performance.now() < untilMs) {
    for (const what of ['list', 'usage'] as const) {
      const startedMs = performance.now()
      await ask[what]()
      times[what].push(performance.now() - startedMs)
    }
    await Bun.sleep(pauseMs)
  }
  return times
}
