// Service C whole: how soon a client has the first line of its build, from a warm VM and from one that is booted for
// it; and what our layers cost a build, against the same one on the same kernel without them. Runs the compiled
// appliance in a network namespace of its own; real QEMU under TCG.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { assert } from '../../../src/base/assert.ts'
import type { AdminStatus } from '../../../src/contract/admin/admin.ts'
import { type Appliance, builtImage, createAppliance, imageDir } from '../../rigs/appliance.ts'
import { randomNonce } from '../../rigs/build/builds-service.ts'
import { archiveOf } from '../../rigs/build/sources.ts'
import { until } from '../../rigs/until.ts'
import type { Figures } from '../bench-report.ts'
import { measureInNetns, percentile, round, type Say } from '../in-netns.ts'
import type { BenchContext } from '../main.ts'
import { plainBuildMs } from './plain.ts'
import { project } from './project.ts'

const coldRuns = 1
const warmRuns = 2
const vcpus = 2
const memoryMib = 2048
const warmTimeoutMs = 180_000
/** After the boot: the guest has gone quiet, and so has this machine. */
const settleMs = 3_000
const builds = 'https://127.0.0.1:8443'

/** Figures of one run; the measuring itself happens in a second process, inside the namespace. */
export function measureBuildVms(context: BenchContext): Promise<Figures> {
  return measureInNetns(import.meta.path, context)
}

if (import.meta.main) {
  const say = (line: string) => process.stdout.write(`${line}\n`)
  await Bun.write(process.argv[2] ?? '', JSON.stringify(await measure(say)))
}

async function measure(say: Say): Promise<Figures> {
  const { firstLineMs: cold, vmMs, plainMs } = await measureCold(say)
  const warm = await measureWarm(say)
  const [vm, plain] = [Math.min(...vmMs), Math.min(...plainMs)]
  return {
    coldFirstLineMs: { value: percentile(cold, 50), unit: 'ms', aim: null },
    warmFirstLineMs: { value: percentile(warm, 50), unit: 'ms', aim: null },
    vmOverheadRatio: { value: round(vm / plain), unit: 'x', aim: { atMost: 1.1 } },
    vmBuildMs: { value: vm, unit: 'ms', aim: null, baseline: 'plainBuildMs' },
    plainBuildMs: { value: plain, unit: 'ms', aim: null },
  }
}

type Cold = { readonly firstLineMs: number[]; readonly vmMs: number[]; readonly plainMs: number[] }

/** Each build in our VM is followed by one without our layers, so that both meet the same machine. */
async function measureCold(say: Say): Promise<Cold> {
  const image = await builtImage('builder')
  await using appliance = await startAppliance(image, 0)
  const client = await createClient(appliance)
  const cold: Cold = { firstLineMs: [], vmMs: [], plainMs: [] }
  for (let i = 0; i < coldRuns; i += 1) {
    const build = await client.submit()
    const vmMs = spentMs(await build.ended())
    cold.firstLineMs.push(build.firstLineMs)
    cold.vmMs.push(vmMs)
    const plainMs = await plainBuildMs(project, { image, vcpus, memoryMib, directory: appliance.directory })
    cold.plainMs.push(plainMs)
    say(`cold ${i + 1}: first line ${round(build.firstLineMs)} ms, build ${vmMs} ms; without our layers ${plainMs} ms`)
  }
  return cold
}

async function measureWarm(say: Say): Promise<number[]> {
  await using appliance = await startAppliance(await builtImage('builder'), 1)
  const client = await createClient(appliance)
  const firstLineMs: number[] = []
  for (let i = 0; i < warmRuns; i += 1) {
    await warm(appliance)
    const build = await client.submit()
    firstLineMs.push(build.firstLineMs)
    say(`warm ${i + 1}: first line ${round(build.firstLineMs)} ms`)
    // The rest of it tells nothing more.
    await build.cancel()
    await build.ended()
  }
  return firstLineMs
}

async function startAppliance(image: string, warmVms: number): Promise<Appliance> {
  const settings = [
    `image_dir = ${JSON.stringify(image)}`,
    `vcpus = ${vcpus}`,
    `memory_mib = ${memoryMib}`,
    'scratch_gib = 4',
    `warm = ${warmVms}`,
  ].join('\n')
  const listen = { listen: 'builds = "127.0.0.1:8443"' }
  const appliance = await createAppliance(settings, 'builds', await imageDir(), '', listen)
  await appliance.start()
  return appliance
}

/** Until there is a warm VM and nothing else goes on. */
async function warm(appliance: Appliance): Promise<void> {
  await until('a build VM is warm', warmTimeoutMs, async () => {
    await Bun.sleep(200)
    const { builds } = await appliance.admin<AdminStatus>('status')
    return builds?.warm === 1 && builds.booting === 0
  })
  await Bun.sleep(settleMs)
}

type BuildEvent = { readonly type: string; readonly msg?: string; readonly result?: { readonly status: string } }

type Submitted = {
  /** From the POST to the first line of the phase `build`. */
  readonly firstLineMs: number
  /** Every event, once the build has ended. */
  readonly ended: () => Promise<readonly BuildEvent[]>
  readonly cancel: () => Promise<void>
}

async function createClient(appliance: Appliance): Promise<{ readonly submit: () => Promise<Submitted> }> {
  await appliance.cli('org', 'create', 'bench')
  const { key } = await appliance.admin<{ key: string }>('key', 'create', 'bench')
  const tls = { ca: readFileSync(join(appliance.stateDir, 'ca/ca.pem'), 'utf8') }
  const source_data = Buffer.from(archiveOf(project)).toString('base64')
  const ask = async (method: string, path: string, body: string | null = null) => {
    const headers = { Authorization: `Bearer ${key}` }
    const response = await fetch(builds + path, { method, tls, headers, body })
    assert(response.ok, `${method} ${path}: ${response.status}`)
    return response
  }
  return {
    submit: async () => {
      const body = JSON.stringify({ nonce: randomNonce(), source_data, source_name: 'work.tar.gz' })
      const startedMs = performance.now()
      const { job_id } = (await (await ask('POST', '/build', body)).json()) as { job_id: string }
      const events = eventsOf(await ask('GET', `/build/${job_id}/events`))
      const seen: BuildEvent[] = []
      for (let type = ''; type !== 'build'; type = seen.at(-1)?.type ?? '') {
        const { value, done } = await events.next()
        if (done) throw new Error(`the build ended before its first line: ${JSON.stringify(seen.slice(-2))}`)
        seen.push(value)
      }
      const firstLineMs = performance.now() - startedMs
      return {
        firstLineMs,
        ended: async () => {
          for await (const event of events) seen.push(event)
          return seen
        },
        cancel: async () => void (await ask('DELETE', `/build/${job_id}`)),
      }
    },
  }
}

async function* eventsOf(response: Response): AsyncGenerator<BuildEvent, undefined> {
  const decoder = new TextDecoder()
  let text = ''
  for await (const chunk of response.body ?? []) {
    const lines = (text + decoder.decode(chunk, { stream: true })).split('\n')
    text = lines.pop() ?? ''
    for (const line of lines) if (line.startsWith('data: ')) yield JSON.parse(line.slice(6)) as BuildEvent
  }
}

/** From the end of the fetch phase to the end of the build: Cargo, sandbox, copy of the source, artifacts. */
function spentMs(events: readonly BuildEvent[]): number {
  const last = events.at(-1)
  assert(last?.result?.status === 'ok', `the build failed: ${JSON.stringify(last)}`)
  const secondsAt = (type: string) => {
    const said = events.find(event => event.type === type && event.msg?.startsWith('done, '))?.msg
    return Number(/([\d.]+) s$/.exec(said ?? '')?.[1])
  }
  const ms = Math.round((secondsAt('build') - secondsAt('fetch')) * 1000)
  assert(ms > 0, 'the build does not say how long it took')
  return ms
}
