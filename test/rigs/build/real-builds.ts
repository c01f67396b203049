// Service C on an appliance of its own, with real build VMs, the servers that they fetch from, and a customer. Effects:
// those of an appliance; use inside `inOwnNetns`.

import { expect } from 'bun:test'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Appliance } from '../../../scripts/rigs/appliance.ts'
import {
  type BuildsAppliance,
  type BuildsClient,
  createBuildsAppliance,
  createBuildsClient,
  messageOf,
  type SeenEvent,
  unpackResult,
} from '../../../scripts/rigs/build/builds-client.ts'
import { holdings, NOTHING, qemuProcesses } from '../../../scripts/rigs/leftovers.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { readDsse } from '../../../src/attest/provenance/dsse.ts'
import type { BuildEvent } from '../../../src/contract/http/build.ts'
import { cratesHost, type FetchServers, gitHost, startFetchServers } from './fetch-servers.ts'

export const mirror = `sparse+https://${cratesHost}/index/`

export type RealBuilds = AsyncDisposable & {
  readonly service: BuildsAppliance
  readonly appliance: Appliance
  readonly client: BuildsClient
  readonly servers: FetchServers
  readonly caFile: string
  /** Submits to the service, or to a reserved VM below it. Returns the job's id. */
  readonly submit: (body: object, below?: string) => Promise<string>
  /** Writes a file for the command line. Returns its path. */
  readonly sourceFile: (name: string, bytes: Uint8Array) => string
  /** Fetches a result. Returns the paths of its archive and of its one top-level directory. */
  readonly unpacked: (id: string) => Promise<{ readonly archive: string; readonly directory: string }>
}

/** Starts it. `settings`: further lines of the table `builds`. */
export async function startRealBuilds(settings: string): Promise<RealBuilds> {
  await using undo = new AsyncDisposableStack()
  const servers = undo.use(await startFetchServers({ port: 443 }))
  const caFile = join(tmpdir(), `fetch-ca-${process.pid}.pem`)
  undo.defer(() => rmSync(caFile))
  writeFileSync(caFile, servers.fetch.ca ?? '')
  const hosts = [gitHost, cratesHost].map(host => `"${host}=127.0.0.1"`).join(', ')
  const fetches = `fetch_hosts = [${hosts}]\nfetch_ca_file = ${JSON.stringify(caFile)}\ncrates_mirror = "${mirror}"`
  const service = await createBuildsAppliance(`${settings}\n${fetches}`)
  const appliance = undo.use(service.appliance)
  await appliance.start()
  const client = await createBuildsClient(appliance)
  const kept = undo.move()
  const sourceFile = (name: string, bytes: Uint8Array) => {
    const path = join(appliance.directory, name)
    writeFileSync(path, bytes)
    return path
  }
  return {
    ...{ service, appliance, client, servers, caFile, sourceFile },
    submit: async (body, below) => {
      const { status, job_id } = await client.submit(body, below)
      expect(status).toBe(200)
      return job_id
    },
    unpacked: async id => {
      const bytes = await client.result(id)
      const directory = unpackResult(join(appliance.directory, `unpacked-${id}`), bytes)
      return { archive: sourceFile(`${id}.tar.gz`, bytes), directory }
    },
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  }
}

/** Text after a word in a build's output. */
export const said = (events: readonly BuildEvent[], word: string) =>
  events.flatMap(event => {
    const message = event.type === 'build' ? messageOf(event) : ''
    const at = message.search(new RegExp(`(?:^| )${word} `))
    return at === -1
      ? []
      : [
          message
            .slice(at)
            .trim()
            .slice(word.length + 1),
        ]
  })

/** No event is missing, none comes twice; and what the guest said is on disk in the guest's own order. */
export function expectWhole({ stateDir }: Appliance, id: string, seen: readonly SeenEvent[]): void {
  expect(seen.map(event => event.id)).toEqual(seen.map((_, at) => at + 1))
  expect(seen.filter(event => event.data.type === 'complete')).toHaveLength(1)
  const lines = readFileSync(join(stateDir, 'builds', id, 'events.jsonl'), 'utf8')
    .trim()
    .split('\n')
  const stored = lines.map(line => JSON.parse(line) as { id: number; seq: number | null; data: BuildEvent })
  expect(stored.map(({ id, data }) => ({ id, data }))).toEqual([...seen])
  const numbers = stored.flatMap(({ seq }) => seq ?? [])
  expect(numbers).toEqual(numbers.map((_, at) => at))
}

export async function expectNothingLeft(appliance: Appliance): Promise<void> {
  await until('nothing of the VMs is left', 60_000, () => Bun.deepEquals(holdings(appliance.stateDir), NOTHING))
  expect(await appliance.admin('doctor', '--leaks')).toMatchObject({ leaks: [] })
  expect(qemuProcesses(appliance.stateDir)).toEqual([])
}

/** Events of a running build until one of them. */
export async function eventsUntil(
  client: BuildsClient,
  id: string,
  isLast: (event: BuildEvent) => boolean,
): Promise<SeenEvent[]> {
  const seen: SeenEvent[] = []
  for await (const event of client.stream(id)) {
    seen.push(event)
    if (isLast(event.data)) return seen
  }
  throw new Error(`it ended before: ${JSON.stringify(seen.at(-1))}`)
}

type Dependency = {
  readonly name: string
  readonly digest: { readonly sha256: string }
  readonly annotations: { readonly rootHash?: string; readonly saidBy?: string }
}

/** The verified image summary is served by the digest in the result. */
export async function expectSummary(
  client: BuildsClient,
  { builderDependencies: [image, summary] }: { readonly builderDependencies: readonly Dependency[] },
): Promise<void> {
  expect(summary).toMatchObject({ name: 'builder-summary', annotations: { saidBy: 'host' } })
  const response = await client.ask(`/v2/builder/blobs/sha256:${summary?.digest.sha256}`)
  expect(response.status).toBe(200)
  const { payload } = readDsse(new Uint8Array(await response.arrayBuffer()))
  const { predicate, subject } = JSON.parse(Buffer.from(payload).toString())
  expect(predicate).toMatchObject({ verificationResult: 'PASSED', verifiedLevels: ['SLSA_BUILD_LEVEL_1'] })
  const root = subject.find(({ name }: { name: string }) => name === 'root.img')
  expect([image?.annotations.rootHash, root.digest.dmVeritySha256]).toEqual([
    expect.any(String),
    image?.annotations.rootHash,
  ])
}
