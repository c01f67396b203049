// Provenance that the image build writes beside a manifest, as a host reads it.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { readAgentLock } from '../../../scripts/image/agent-lock.ts'
import { writeJson } from '../../../scripts/image/checked-json.ts'
import { sha256File } from '../../../scripts/image/digest.ts'
import { type MachineManifest, measureFiles, partNames } from '../../../scripts/image/manifest.ts'
import { readPackagesLock } from '../../../scripts/image/packages-lock.ts'
import { writeProvenance } from '../../../scripts/image/provenance.ts'
import { recipePaths } from '../../../scripts/image/recipe.ts'
import { imageProvenanceProblem, readImageProvenance } from '../../../src/attest/provenance/image.ts'

const repo = resolve(import.meta.dir, '../../..')
const dir = mkdtempSync(join(tmpdir(), 'srt-image-provenance-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

test('goal: each package of the real lock and the real agent stand in it, by digest, and it is of its own manifest', async () => {
  const paths = recipePaths(repo, 'instance')
  const [lock, agentLock] = [await readPackagesLock(paths.packagesLock), await readAgentLock(paths.agentLock)]
  for (const name of Object.values(partNames)) writeFileSync(join(dir, name), `the ${name}`)
  const hex = (byte: string) => byte.repeat(32)
  const manifest: MachineManifest = {
    schemaVersion: 1,
    name: 'staging',
    inputsSha256: hex('01'),
    rootHash: hex('02'),
    verity: { salt: hex('03'), uuid: '', dataBlocks: 1, hashOffset: 8192, hashStartBlock: 2 },
    files: await measureFiles(dir),
    guestSha256: hex('04'),
    guestProvenance: null,
    kernelVersion: '6.12',
    sourceDateEpoch: 1,
    packagesLockSha256: await sha256File(paths.packagesLock),
    tools: { bun: '1.4.5' },
    firmwareVersion: '1',
    launchDigests: {},
  }
  await writeJson(join(dir, 'manifest.json'), manifest)
  await writeProvenance({
    dir,
    recipe: 'instance',
    manifest,
    lock,
    npmPackages: [agentLock],
    executable: { name: 'strongroom-enclave', sha256: hex('04'), madeOf: null },
  })
  const bytes = readFileSync(join(dir, 'provenance.json'))
  const manifestSha256 = await sha256File(join(dir, 'manifest.json'))
  const { inputsSha256, rootHash, files } = manifest
  const found = { inputsSha256, rootHash, root: partNames.root, manifestSha256, files: Object.values(files) }
  expect(imageProvenanceProblem(readImageProvenance(bytes), { name: 'staging', ...found })).toBeNull()
  const { externalParameters, resolvedDependencies } = JSON.parse(bytes.toString()).predicate.buildDefinition
  expect(externalParameters).toEqual({ recipe: 'instance', variant: 'staging' })
  const digests = new Map<string, Record<string, string>>(
    resolvedDependencies.map((dependency: { name: string; digest: Record<string, string> }) => [
      dependency.name,
      dependency.digest,
    ]),
  )
  for (const { name, sha256 } of lock.packages) expect(digests.get(name)).toEqual({ sha256 })
  const { sha512 = '' } = digests.get(agentLock.package) ?? {}
  expect(`sha512-${Buffer.from(sha512, 'hex').toString('base64')}`).toBe(agentLock.integrity)
  expect(digests.get('strongroom-enclave')).toEqual({ sha256: hex('04') })
  expect(resolvedDependencies).toHaveLength(lock.packages.length + 4)
})
