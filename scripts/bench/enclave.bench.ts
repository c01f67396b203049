// The gateway in its measured VM: how soon one answers attested, what an update costs its clients, how late usage is
// booked, what encryption and the host's map add. Runs the compiled appliance in a network namespace of its own; real
// QEMU under TCG. Encryption and map are measured natively.

import { Database } from 'bun:sqlite'
import { join } from 'node:path'
import { pinGatewayVm } from '../lib/gateway-pins.ts'
import { type Appliance, createAppliance } from '../rigs/appliance.ts'
import { buildCachedImage } from '../rigs/build/image-build.ts'
import {
  createGatewayClient,
  createModelFile,
  type GatewayClient,
  gatewayTables,
  gatewayUrl,
  workerModel as model,
} from '../rigs/gateway/appliance-gateway.ts'
import { listGatewayVms, servingGatewayVm } from '../rigs/gateway/serving-gateway-vm.ts'
import { qemuProcesses } from '../rigs/leftovers.ts'
import { until } from '../rigs/until.ts'
import type { Figures } from './bench-report.ts'
import { cpuPercent } from './boot/process-time.ts'
import { measureEncryption } from './encryption.ts'
import { measureForward } from './forward.ts'
import { measureInNetns, percentile, round } from './in-netns.ts'
import type { BenchContext } from './main.ts'

const startRuns = 3
const [settleMs, restMs] = [45_000, 60_000]
const loadClients = 2
const lagRequests = 20
const goneTimeoutMs = 120_000
const lagTimeoutMs = 10_000
/** A client that asks oftener takes the CPU from the VM. */
const askEveryMs = 100
const chat = { model, messages: [{ role: 'user', content: 'hello' }], max_tokens: 4, temperature: 0 }

/** Figures of one run; the appliance is measured in a second process, inside the namespace. */
export async function run(context: BenchContext): Promise<Figures> {
  // There is no network in the namespace, should the image have to be built.
  await buildCachedImage('inference')
  const appliance = await measureInNetns(import.meta.path, context)
  context.signal.throwIfAborted()
  const encryption = await measureEncryption(context)
  return { ...appliance, ...encryption, ...(await measureForward(context.note)) }
}

if (import.meta.main) await Bun.write(process.argv[2] ?? '', JSON.stringify(await measure()))

async function measure(): Promise<Figures> {
  const say = (line: string) => process.stdout.write(`${line}\n`)
  using file = createModelFile()
  await using appliance = await createAppliance('', 'vm', undefined, await gatewayTables(file.path, 'vm'))
  await appliance.start()
  await appliance.admin('org', 'create', 'bench')
  const client = await createGatewayClient(appliance, 'bench')
  // The first one of an appliance waits for the keys of the simulated platform, which are made once.
  await servingGatewayVm(appliance)
  const rest = await measureRest(appliance)
  say(`at rest: ${rest} % of a processor`)
  const starts: Start[] = []
  for (let count = 1; count <= startRuns; count += 1) {
    const start = await measureStart(appliance, client)
    say(
      `start ${count}: booted after ${start.bootMs}, serves after ${start.servesMs}, first attested answer ${start.startMs} ms`,
    )
    starts.push(start)
  }
  const lag = await measureLag(appliance, client)
  say(`usage: booked ${lag.usageLagMs} ms after an answer of ${lag.answerMs} ms`)
  const update = await measureUpdate(appliance, client)
  say(`update: ${update.failed} of ${update.asked} requests failed in ${update.updateMs} ms`)
  await appliance.stop()
  const median = (pick: (start: Start) => number) => percentile(starts.map(pick), 50)
  return {
    startMs: { value: median(start => start.startMs), unit: 'ms', aim: null, baseline: 'bootMs' },
    bootMs: { value: median(start => start.bootMs), unit: 'ms', aim: null },
    servesMs: { value: median(start => start.servesMs), unit: 'ms', aim: null, baseline: 'bootMs' },
    restCpuPercent: { value: rest, unit: '%', aim: { atMost: 2 } },
    updateFailedRequests: { value: update.failed, unit: '', aim: { atMost: 0 } },
    updateRequests: { value: update.asked, unit: '', aim: null },
    updateMs: { value: update.updateMs, unit: 'ms', aim: null, baseline: 'startMs' },
    usageLagMs: { value: lag.usageLagMs, unit: 'ms', aim: { atMost: 1_000 }, baseline: 'answerMs' },
    answerMs: { value: lag.answerMs, unit: 'ms', aim: null },
  }
}

/**
 * From the VM's start: until its first message, until the host verified it, until a client got and verified an answer.
 */
type Start = { readonly bootMs: number; readonly servesMs: number; readonly startMs: number }

/** Processor time of a gateway VM without requests, after the work of its start. */
async function measureRest(appliance: Appliance): Promise<number> {
  const [pid] = qemuProcesses(appliance.stateDir)
  if (pid === undefined) throw new Error('the gateway VM has no QEMU')
  await Bun.sleep(settleMs)
  return await cpuPercent(pid, restMs)
}

/** A VM dies, and another takes its place: from that one's start to the first answer that a client has verified. */
async function measureStart(appliance: Appliance, client: GatewayClient): Promise<Start> {
  const before = await servingGatewayVm(appliance)
  const [pid] = qemuProcesses(appliance.stateDir)
  if (pid === undefined) throw new Error('the gateway VM has no QEMU')
  process.kill(pid, 'SIGKILL')
  const vm = await servingGatewayVm(appliance, before)
  await until('it answers', goneTimeoutMs, async () => {
    await Bun.sleep(askEveryMs)
    return (await statusOf(client)) === 200
  })
  await verify(appliance)
  const endMs = Date.now()
  const at = (message: string, to?: string) => loggedMs(appliance, { vm, message, to })
  const startedMs = at('a gateway VM is started')
  return {
    bootMs: at('VM moved', 'running') - startedMs,
    servesMs: at('a gateway VM serves') - startedMs,
    startMs: endMs - startedMs,
  }
}

/** As a client that knows the image's manifest and the operator's key. */
async function verify(appliance: Appliance): Promise<void> {
  const pins = await pinGatewayVm({
    operatorKey: (await appliance.admin<{ digest: string }>('operator-key')).digest,
    configFile: join(appliance.directory, 'strongroom.toml'),
    directory: appliance.directory,
  })
  const argv = ['verify', 'gateway', gatewayUrl, '--ca', join(appliance.stateDir, 'ca/ca.pem'), ...pins]
  const root = ['--trust-simulated-root', join(appliance.stateDir, 'simulator/root.pem')]
  const { exitCode, stdout } = await appliance.cli(...argv, ...root)
  if (exitCode !== 0) throw new Error(`the gateway cannot be verified:\n${stdout}`)
}

type Logged = { readonly vm: string; readonly message: string; readonly to?: string | undefined }

/** When the daemon wrote a line about a VM. */
function loggedMs(appliance: Appliance, { vm, message, to }: Logged): number {
  for (const line of appliance
    .log()
    .split('\n')
    .filter(text => text.includes(vm))) {
    const said = JSON.parse(line)
    if (said.message === message && said.vm === vm && said.to === to) return Date.parse(said.time)
  }
  throw new Error(`the daemon has not said "${message}" of VM ${vm}`)
}

/** 0: no answer. */
async function statusOf(client: GatewayClient, more: Record<string, unknown> = {}): Promise<number> {
  try {
    const response = await client.post('/v1/chat/completions', { ...chat, ...more })
    const text = await response.text()
    return more.stream === true && !text.endsWith('data: [DONE]\n\n') ? 0 : response.status
  } catch {
    return 0
  }
}

/** From the end of an answer at the client to its row in the host's database. */
async function measureLag(
  appliance: Appliance,
  client: GatewayClient,
): Promise<{ readonly usageLagMs: number; readonly answerMs: number }> {
  using db = new Database(join(appliance.stateDir, 'strongroom.db'), { readonly: true })
  const row = db.query<{ id: string }, [string]>('SELECT id FROM usage WHERE id = ?')
  const lagsMs: number[] = []
  const answersMs: number[] = []
  for (let turn = 0; turn < lagRequests; turn += 1) {
    const startedMs = performance.now()
    const response = await client.post('/v1/chat/completions', chat)
    await response.text()
    if (response.status !== 200) throw new Error(`the gateway answers ${response.status}`)
    const answeredMs = performance.now()
    const id = response.headers.get('x-request-id') ?? ''
    while (row.get(id) === null) {
      if (performance.now() - answeredMs > lagTimeoutMs) throw new Error(`no row after ${lagTimeoutMs} ms`)
      await Bun.sleep(1)
    }
    answersMs.push(answeredMs - startedMs)
    lagsMs.push(performance.now() - answeredMs)
  }
  return { usageLagMs: percentile(lagsMs, 50), answerMs: percentile(answersMs, 50) }
}

/** Clients that go on asking, whole and streamed, while a VM takes over from another and until that is gone. */
async function measureUpdate(
  appliance: Appliance,
  client: GatewayClient,
): Promise<{ readonly failed: number; readonly asked: number; readonly updateMs: number }> {
  const before = await servingGatewayVm(appliance)
  const found = { failed: 0, asked: 0 }
  const stopping = new AbortController()
  const ask = async (stream: boolean) => {
    while (!stopping.signal.aborted) {
      found.asked += 1
      if ((await statusOf(client, { stream })) !== 200) found.failed += 1
    }
  }
  const load = Promise.all(Array.from({ length: loadClients }, (_, index) => ask(index % 2 === 1)))
  const startedMs = performance.now()
  try {
    await appliance.admin('inference', 'update')
    await servingGatewayVm(appliance, before)
    const updateMs = round(performance.now() - startedMs)
    await until('the VM before it is gone', goneTimeoutMs, async () => {
      await Bun.sleep(askEveryMs)
      return (await listGatewayVms(appliance)).every(({ vm, state }) => vm !== before || state === 'gone')
    })
    return { ...found, updateMs }
  } finally {
    stopping.abort()
    await load
  }
}
