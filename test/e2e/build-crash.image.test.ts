// Service C whose daemon is killed in each phase of a build: nothing is lost, repeated or left behind.

import { expect, test } from 'bun:test'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Appliance } from '../../scripts/rigs/appliance.ts'
import {
  type BuildsClient,
  createBuildsAppliance,
  createBuildsClient,
  messageOf,
  type SeenEvent,
  unpackResult,
  verifyResult,
} from '../../scripts/rigs/build/builds-client.ts'
import { archiveOf, withBuildScript } from '../../scripts/rigs/build/sources.ts'
import { holdings, NOTHING, qemuProcesses } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import type { BuildEvent } from '../../src/contract/http/build.ts'

const timeoutMs = 600_000
const artifactMiB = 6

/** Takes its time, and makes a program whose archive is not copied at one go. */
const slowProject = {
  ...withBuildScript(`fn main() {
    let mut bytes = Vec::with_capacity(${artifactMiB} << 20);
    let mut x: u64 = 0x9e3779b97f4a7c15;
    while bytes.len() < ${artifactMiB} << 20 { x ^= x << 13; x ^= x >> 7; x ^= x << 17; bytes.extend_from_slice(&x.to_le_bytes()); }
    std::fs::write(std::env::var("OUT_DIR").unwrap() + "/noise", bytes).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
  }`),
  'src/main.rs':
    'static NOISE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/noise"));\nfn main() { println!("{}", std::hint::black_box(NOISE).len()); }\n',
}

type Phase = { readonly name: string; readonly isNow: (event: BuildEvent) => boolean }

const says = (type: BuildEvent['type'], part: string) => (event: BuildEvent) =>
  event.type === type && messageOf(event).includes(part)

/** By what a client sees; each comes once. */
const phases: readonly Phase[] = [
  { name: 'its VM is defined', isNow: says('vm', 'is started') },
  { name: 'ordered', isNow: says('vm', 'has its order') },
  { name: 'the guest waits for the evidence of the dispatch', isNow: says('init', 'source tree') },
  { name: 'the build runs', isNow: says('build', 'Compiling') },
  { name: 'the guest waits for the evidence of the completion', isNow: says('provenance', 'SHA-256') },
  { name: 'the guest writes its result', isNow: says('attest', 'completion receipt') },
]

async function killAndStart(appliance: Appliance, phase: string, meanwhile: () => void = () => {}): Promise<void> {
  const startedMs = performance.now()
  await appliance.kill()
  meanwhile()
  await appliance.start()
  // For whoever sees this test fail.
  process.stdout.write(`killed while ${phase}; back after ${Math.round(performance.now() - startedMs)} ms\n`)
}

/** Follows a build to its end over broken connections, as a browser does; kills the daemon once in each phase. */
async function followWithKills(
  { appliance, client }: { appliance: Appliance; client: BuildsClient },
  id: string,
  left: Phase[],
): Promise<SeenEvent[]> {
  const seen: SeenEvent[] = []
  while (seen.at(-1)?.data.type !== 'complete') {
    try {
      for await (const event of client.stream(id, seen.at(-1)?.id)) {
        seen.push(event)
        const at = left.findIndex(phase => phase.isNow(event.data))
        if (at === -1) continue
        await killAndStart(appliance, left[at]?.name ?? '')
        left.splice(at, 1)
        break
      }
    } catch (error) {
      if (!isBroken(error)) throw error
      // As long as the daemon is away; the test has a limit.
      await Bun.sleep(20)
    }
  }
  return seen
}

/** A connection that the killed daemon has broken or does not take. */
function isBroken(error: unknown): boolean {
  return /^(?:ConnectionRefused|ConnectionClosed|ECONNREFUSED|ECONNRESET)$/.test(
    String((error as { code?: unknown }).code),
  )
}

/**
 * Kills the daemon while this build's result is copied, after all other kills. False: the copy was not seen before
 * the abort.
 */
async function killAtCopy(
  appliance: Appliance,
  { id, left, signal }: { id: string; left: readonly Phase[]; signal: AbortSignal },
): Promise<boolean> {
  const directory = join(appliance.stateDir, 'builds', id)
  while (!signal.aborted) {
    if (left.length === 0 && existsSync(join(directory, 'result.tar.gz.tmp'))) {
      // Stopped first, so that what is looked at is what is killed.
      process.kill(appliance.pid(), 'SIGSTOP')
      const isPart = !existsSync(join(directory, 'result.tar.gz'))
      await killAndStart(appliance, 'its result is copied')
      return isPart
    }
    await Bun.sleep(1)
  }
  return false
}

/** No event is missing, none comes twice; and what the guest said is on disk in the guest's own order. */
function expectWhole(appliance: Appliance, id: string, seen: readonly SeenEvent[]): void {
  expect(seen.map(event => event.id)).toEqual(seen.map((_, at) => at + 1))
  expect(seen.filter(event => event.data.type === 'complete')).toHaveLength(1)
  const lines = readFileSync(join(appliance.stateDir, 'builds', id, 'events.jsonl'), 'utf8')
    .trim()
    .split('\n')
  const stored = lines.map(line => JSON.parse(line) as { id: number; seq: number | null; data: BuildEvent })
  expect(stored.map(({ id, data }) => ({ id, data }))).toEqual([...seen])
  const numbers = stored.flatMap(({ seq }) => seq ?? [])
  expect(numbers).toEqual(numbers.map((_, at) => at))
}

async function expectNothingLeft(appliance: Appliance): Promise<void> {
  await until('nothing of the VMs is left', 60_000, () => Bun.deepEquals(holdings(appliance.stateDir), NOTHING))
  expect(await appliance.admin('doctor', '--leaks')).toMatchObject({ leaks: [] })
  expect(qemuProcesses(appliance.stateDir)).toEqual([])
}

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'a build survives kills of the daemon in every phase, and one whose VM dies with the daemon ends as failed',
      async () => {
        // Goal: what a client was promised holds whatever happens to the daemon. Two VMs: one for each way to end.
        const service = await createBuildsAppliance('concurrent_max = 1')
        await using appliance = service.appliance
        await appliance.start()
        const client = await createBuildsClient(appliance)
        const source_data = Buffer.from(archiveOf(slowProject)).toString('base64')
        const submit = (nonce: string) => client.submit({ nonce, source_data, source_name: 'hello.tar.gz' })
        const nonce = '00112233445566778899aabbccddeeff'
        const first = await submit(nonce)
        const second = await submit('ffeeddccbbaa99887766554433221100')
        expect([first.status, second.status]).toEqual([200, 200])
        await killAndStart(appliance, 'one build is accepted and one waits in the queue')
        expect((await client.record(second.job_id)).state).toBe('queued')

        const left = [...phases]
        const over = new AbortController()
        const copied = killAtCopy(appliance, { id: first.job_id, left, signal: over.signal })
        const seen = await followWithKills({ appliance, client }, first.job_id, left)
        over.abort()
        expect(left.map(phase => phase.name)).toEqual([])
        expect(await copied).toBe(true)
        expect(seen.at(-1)?.data).toEqual({ type: 'complete', result: { status: 'ok' } })
        expectWhole(appliance, first.job_id, seen)
        const archive = join(appliance.directory, 'result.tar.gz')
        const result = await client.result(first.job_id)
        writeFileSync(archive, result)
        const source = join(appliance.directory, 'slow.tar.gz')
        writeFileSync(source, archiveOf(slowProject))
        expect(await verifyResult(service, { archive, nonce, asked: ['--source', source] })).toBe('')
        const unpacked = unpackResult(join(appliance.directory, 'unpacked'), result)
        expect(Bun.spawnSync([join(unpacked, 'artifacts/hello')]).stdout.toString()).toBe(`${artifactMiB << 20}\n`)

        // The VM of the second one dies while nobody watches.
        const begun: SeenEvent[] = []
        for await (const event of client.stream(second.job_id)) {
          begun.push(event)
          if (says('build', 'Compiling')(event.data)) break
        }
        await killAndStart(appliance, 'a build runs, with its VM', () => {
          for (const pid of qemuProcesses(appliance.stateDir)) process.kill(pid, 'SIGKILL')
        })
        const rest = await Array.fromAsync(client.stream(second.job_id, begun.at(-1)?.id))
        expect(rest.at(-1)?.data).toMatchObject({
          type: 'complete',
          result: { status: 'failed', error_type: 'internal', error: expect.stringContaining('The build VM failed') },
        })
        expectWhole(appliance, second.job_id, [...begun, ...rest])
        expect((await client.record(second.job_id)).result).toBeNull()
        expect((await client.ask(`/build/${second.job_id}/result`)).status).toBe(404)
        expect(readdirSync(join(appliance.stateDir, 'builds', second.job_id))).toEqual(['events.jsonl'])
        await expectNothingLeft(appliance)
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)
