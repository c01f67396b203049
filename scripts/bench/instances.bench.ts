// Service A: how soon a cold instance answers SSH, what requests cost, how the daemon starts and what it weighs, and
// whether cycles leak. Runs the compiled appliance in a network namespace of its own; real QEMU under TCG, real
// OpenSSH.

import { Database } from 'bun:sqlite'
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { createAppliance, imageDir } from '../rigs/appliance.ts'
import { type Customer, createCustomer } from '../rigs/instances/instances-client.ts'
import { holdings, NOTHING } from '../rigs/leftovers.ts'
import type { Figures } from './bench-report.ts'
import { loggedIn, measureInNetns, percentile, round, type Say } from './in-netns.ts'
import type { BenchContext } from './main.ts'

const coldRuns = 5
const startRuns = 7
const postCount = 200
const listCount = 1000
const listRuns = 50
const cycles = 50
const readyTimeoutMs = 180_000

/** Figures of one run; the measuring itself happens in a second process, inside the namespace. */
export function run(context: BenchContext): Promise<Figures> {
  return measureInNetns(import.meta.path, context)
}

if (import.meta.main) await Bun.write(process.argv[2] ?? '', JSON.stringify(await measure()))

async function measure(): Promise<Figures> {
  const say = (line: string) => process.stdout.write(`${line}\n`)
  const cold = await measureCold(say)
  const requests = await measureRequests(say)
  const leak = await measureCycles(say)
  const start = await measureStart(say)
  const image = await imageDir()
  return {
    coldSshMsP50: { value: percentile(cold.ssh, 50), unit: 'ms', aim: { atMost: 15_000 } },
    coldReadyMsP50: { value: percentile(cold.ready, 50), unit: 'ms', aim: null },
    warmSshMsP50: { value: percentile(cold.warm, 50), unit: 'ms', aim: null },
    postMsP50: { value: percentile(requests.post, 50), unit: 'ms', aim: null },
    postMsP99: { value: percentile(requests.post, 99), unit: 'ms', aim: null },
    list1Ms: { value: requests.list1Ms, unit: 'ms', aim: null },
    list1000Ms: { value: requests.list1000Ms, unit: 'ms', aim: null, baseline: 'list1Ms' },
    startMs: { value: percentile(start.startMs, 50), unit: 'ms', aim: { atMost: 300 } },
    idleRssMiB: { value: start.idleRssMiB, unit: 'MiB', aim: { atMost: 150 } },
    imageMiB: { value: round(statSync(join(image, 'root.img')).size / 2 ** 20), unit: 'MiB', aim: null },
    leakedObjects: { value: leak.objects, unit: '', aim: { atMost: 0 } },
    leakedDescriptors: { value: leak.descriptors, unit: '', aim: { atMost: 0 } },
    rssGrowthMiB: { value: leak.rssGrowthMiB, unit: 'MiB', aim: { atMost: 20 } },
  }
}

/** From the POST to the end of the first successful SSH command, one VM at a time. */
async function measureCold(say: Say): Promise<{ ssh: number[]; ready: number[]; warm: number[] }> {
  await using appliance = await createAppliance()
  await appliance.start()
  const customer = await createCustomer(appliance, 'bench')
  const figures = { ssh: [] as number[], ready: [] as number[], warm: [] as number[] }
  for (let i = 0; i < coldRuns; i += 1) {
    const startedMs = performance.now()
    const { name, hostname } = (await customer.create()).body.data
    await customer.reached(name, 'ready', readyTimeoutMs)
    figures.ready.push(performance.now() - startedMs)
    await loggedIn(appliance, hostname)
    figures.ssh.push(performance.now() - startedMs)
    const againMs = performance.now()
    await loggedIn(appliance, hostname)
    figures.warm.push(performance.now() - againMs)
    await customer.remove(name)
    await customer.reached(name, 'terminated', readyTimeoutMs)
    say(`cold start ${i + 1}: ${round(figures.ssh.at(-1) ?? 0)} ms to the first SSH command`)
  }
  return figures
}

/** Requests against records that no VM backs: one instance fills the configured capacity, idle, and the others wait. */
async function measureRequests(say: Say): Promise<{ post: number[]; list1Ms: number; list1000Ms: number }> {
  const settings = 'memory_mib = 2048\nwait_ms = 86400000\ninstances_per_organization_max = 100000'
  await using appliance = await createAppliance(settings, 'capacity')
  await appliance.start()
  const customer = await createCustomer(appliance, 'bench')
  const first = (await customer.create()).body.data
  await customer.reached(first.name, 'ready', readyTimeoutMs)
  const list1Ms = await listMs(customer, 1)
  const post: number[] = []
  for (let i = 0; i < postCount; i += 1) {
    const startedMs = performance.now()
    await customer.create(`key-${i}`)
    post.push(performance.now() - startedMs)
  }
  await appliance.stop()
  fillRecords(join(appliance.stateDir, 'strongroom.db'), first.name, listCount - postCount - 1)
  await appliance.start()
  const list1000Ms = await listMs(customer, listCount)
  say(`${postCount} creates, lists of 1 and of ${listCount}`)
  return { post, list1Ms, list1000Ms }
}

/** Copies one record as terminated ones: a month's worth that the list still shows. */
function fillRecords(path: string, name: string, count: number): void {
  const db = new Database(path)
  const columns = db.query<{ name: string }, []>("SELECT name FROM pragma_table_info('instances')").all()
  const expressions: Record<string, string> = {
    id: "'fill-' || value",
    name: "printf('%08d', value)",
    hostname: "printf('%08d.bench.agents.test', value)",
    status: "'terminated'",
    desired: "'absent'",
    vm_id: 'NULL',
    terminated_at_ms: 'created_at_ms',
  }
  const select = columns.map(column => expressions[column.name] ?? column.name).join(', ')
  db.run(
    `WITH RECURSIVE counter (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM counter WHERE value < ?)
     INSERT INTO instances (${columns.map(column => column.name).join(', ')})
     SELECT ${select} FROM counter, instances WHERE instances.name = ?`,
    [count, name],
  )
  db.close()
}

async function listMs(customer: Customer, expected: number): Promise<number> {
  const times: number[] = []
  for (let i = 0; i < listRuns; i += 1) {
    const startedMs = performance.now()
    const records = await customer.list()
    times.push(performance.now() - startedMs)
    if (records.length !== expected) throw new Error(`the list holds ${records.length} records, not ${expected}`)
  }
  return percentile(times, 50)
}

/** Creates and deletes without waiting for the guest: everything on the host is made and unmade each time. */
async function measureCycles(say: Say): Promise<{ objects: number; descriptors: number; rssGrowthMiB: number }> {
  await using appliance = await createAppliance()
  await appliance.start()
  const customer = await createCustomer(appliance, 'bench')
  const cycle = async () => {
    const { name } = (await customer.create()).body.data
    while (holdings(appliance.stateDir).processes.length === 0) await Bun.sleep(20)
    await customer.remove(name)
    await customer.reached(name, 'terminated', readyTimeoutMs)
  }
  for (let i = 0; i < 5; i += 1) await cycle()
  const before = { rss: rssMiB(appliance.pid()), descriptors: descriptors(appliance.pid()) }
  for (let i = 0; i < cycles; i += 1) await cycle()
  const left = holdings(appliance.stateDir)
  const after = { rss: rssMiB(appliance.pid()), descriptors: descriptors(appliance.pid()) }
  say(
    `${cycles} cycles: RSS ${round(before.rss)} → ${round(after.rss)} MiB, descriptors ${before.descriptors} → ${after.descriptors}`,
  )
  return {
    objects: Object.values(left).flat().length - Object.values(NOTHING).flat().length,
    descriptors: Math.max(0, after.descriptors - before.descriptors),
    rssGrowthMiB: round(after.rss - before.rss),
  }
}

async function measureStart(say: Say): Promise<{ startMs: number[]; idleRssMiB: number }> {
  await using appliance = await createAppliance()
  await appliance.start()
  await appliance.stop()
  const startMs: number[] = []
  for (let i = 0; i < startRuns; i += 1) {
    startMs.push(await appliance.start())
    if (i < startRuns - 1) await appliance.stop()
  }
  // Idle: after the start-up garbage has had time to go.
  await Bun.sleep(5_000)
  const idleRssMiB = round(rssMiB(appliance.pid()))
  say(`start ${startMs.map(round).join(', ')} ms; idle RSS ${idleRssMiB} MiB`)
  return { startMs, idleRssMiB }
}

function rssMiB(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) / 1024
}

function descriptors(pid: number): number {
  return [...new Bun.Glob('*').scanSync({ cwd: `/proc/${pid}/fd`, onlyFiles: false })].length
}
