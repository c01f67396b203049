// Real build VMs that fetch through the service's proxy: sources and packages from git, a crate from a mirror, a
// flake's input.

import { expect, test } from 'bun:test'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  type BuildsAppliance,
  type BuildsClient,
  createBuildsAppliance,
  createBuildsClient,
  messageOf,
  unpackResult,
  verifyResult,
} from '../../scripts/rigs/build/builds-client.ts'
import { answerCrate, archiveOf, gitProject, replyFiles } from '../../scripts/rigs/build/sources.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { readDsse } from '../../src/attest/provenance/dsse.ts'
import {
  cratesHost,
  flakeInputFiles,
  flakeInputHash,
  flakeWithRepository,
  gitHost,
  makeRepository,
  startFetchServers,
} from '../rigs/build/fetch-servers.ts'

const timeoutMs = 900_000

type Good = {
  readonly id: string
  readonly nonce: string
  /** Options that name the source, and what opened the fetch. */
  readonly asked: readonly string[]
  readonly opened: readonly string[]
}

/** The directory of a verified result; what its statement says of dependencies and builder. */
async function goodResult(service: BuildsAppliance, client: BuildsClient, { id, nonce, asked, opened }: Good) {
  const events = await client.events(id)
  expect(events.at(-1)).toEqual({ type: 'complete', result: { status: 'ok' } })
  const archive = join(service.appliance.directory, `${id}.tar.gz`)
  const result = await client.result(id)
  writeFileSync(archive, result)
  expect(await verifyResult(service, { archive, nonce, asked: [...asked, ...opened] })).toBe('')
  // Goal: who did not name the authority and the mirror refuses what was fetched by them.
  expect(await verifyResult(service, { archive, nonce, asked })).toContain('"first_broken": "request"')
  const directory = unpackResult(join(service.appliance.directory, `unpacked-${id}`), result)
  const { buildDefinition, runDetails } = JSON.parse(
    readFileSync(join(directory, 'attestations/slsa.json'), 'utf8'),
  ).predicate
  return { directory, events, dependencies: buildDefinition.resolvedDependencies, builder: runDetails.builder }
}

const nonceOf = (last: string) => `00112233445566778899aabbccddee${last}`

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'sources, packages and inputs from git and a registry are fetched, built without a network and verified',
      async () => {
        // Goal: what locks name comes from allowed hosts alone, and the results name each commit and checksum.
        await using servers = await startFetchServers({ port: 443 })
        using scratch = new DisposableStack()
        const ca = join(tmpdir(), `fetch-ca-${process.pid}.pem`)
        scratch.defer(() => rmSync(ca))
        writeFileSync(ca, servers.fetch.ca ?? '')
        const hosts = [gitHost, cratesHost].map(host => `"${host}=127.0.0.1"`)
        const service = await createBuildsAppliance(
          `fetch_hosts = [${hosts.join(', ')}]\nfetch_ca_file = ${JSON.stringify(ca)}\ncrates_mirror = "sparse+https://${cratesHost}/index/"\nconcurrent_max = 2`,
        )
        await using appliance = service.appliance
        await appliance.start()
        const client = await createBuildsClient(appliance)
        const dependency = makeRepository(servers, 'reply', replyFiles)
        const project = makeRepository(servers, 'uses', gitProject(dependency))
        const input = makeRepository(servers, 'input', flakeInputFiles)
        const flake = archiveOf(flakeWithRepository(input, flakeInputHash()))
        const mirror = `sparse+https://${cratesHost}/index/`
        const fetchCa = new Bun.CryptoHasher('sha256').update(servers.fetch.ca ?? '').digest('hex')
        const accepted = { fetch_ca_sha256: fetchCa, crates_mirror: mirror }
        const requests = [
          { nonce: nonceOf('01'), repo_url: project.url, repo_ref: 'v1', ...accepted },
          { nonce: nonceOf('02'), source_data: Buffer.from(flake).toString('base64'), ...accepted },
        ]
        const source = join(appliance.directory, 'flake.tar.gz')
        writeFileSync(source, flake)
        const sources = [
          ['--commit', project.commit, '--repository', project.url, '--ref', 'v1'],
          ['--source', source],
        ]
        const opened = ['--fetch-ca', ca, '--crates-mirror', mirror]
        const ids = await Promise.all(requests.map(async request => (await client.submit(request)).job_id))
        const [cargo, nix] = await Promise.all(
          requests.map(({ nonce }, at) =>
            goodResult(service, client, { id: ids[at] ?? '', nonce, asked: sources[at] ?? [], opened }),
          ),
        )
        if (cargo === undefined || nix === undefined) throw new Error('two builds')
        const program = join(cargo.directory, 'artifacts/uses')
        expect(Bun.spawnSync([program]).stdout.toString()).toBe('43\n')
        expect(readFileSync(join(nix.directory, 'artifacts/hello'), 'utf8')).toBe('from elsewhere\n')
        expect(cargo.dependencies).toContainEqual(
          expect.objectContaining({ name: 'source', digest: { gitCommit: project.commit } }),
        )
        expect(cargo.dependencies).toContainEqual(
          expect.objectContaining({ name: 'answer', digest: { sha256: answerCrate.sha256 } }),
        )
        expect(cargo.dependencies).toContainEqual(
          expect.objectContaining({ name: 'reply', digest: { gitCommit: dependency.commit } }),
        )
        expect(nix.dependencies).toContainEqual(
          expect.objectContaining({
            name: 'input',
            annotations: { reference: `git+${input.url}?rev=${input.commit}` },
          }),
        )
        for (const { events } of [cargo, nix]) {
          expect(events.filter(event => messageOf(event).includes('the network is gone'))).toHaveLength(1)
        }

        // Goal: the verified image summary is served by the digest in the result.
        const [, summary] = cargo.builder.builderDependencies
        expect(summary).toMatchObject({ name: 'builder-summary', annotations: { saidBy: 'host' } })
        const response = await client.ask(`/v2/builder/blobs/sha256:${summary.digest.sha256}`)
        expect(response.status).toBe(200)
        const { payload } = readDsse(new Uint8Array(await response.arrayBuffer()))
        const { predicate, subject } = JSON.parse(Buffer.from(payload).toString())
        expect(predicate).toMatchObject({ verificationResult: 'PASSED', verifiedLevels: ['SLSA_BUILD_LEVEL_1'] })
        const root = subject.find(({ name }: { name: string }) => name === 'root.img')
        expect(root.digest.dmVeritySha256).toBe(cargo.builder.builderDependencies[0].annotations.rootHash)

        // Goal: of a host that is not on the list a build fetches nothing, and its owner reads which.
        const refused = await client.submit({
          nonce: nonceOf('09'),
          repo_url: 'https://refused.strongroom.test/uses.git',
        })
        const refusal = refused.status === 200 ? (await client.events(refused.job_id)).at(-1) : null
        expect([refused.status, refusal]).toEqual([400, null])
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)
