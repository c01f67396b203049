// provenance.json of a finished image, beside its manifest. Effects: reads the manifest, writes one file.

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  type ImageBuild,
  imageManifestName,
  imageProvenance,
  imageProvenanceName,
} from '../../src/attest/provenance/image.ts'
import type { AgentLock } from './agent-lock.ts'
import { sha256File } from './digest.ts'
import { type CommonManifest, type Origin, partNames } from './manifest.ts'
import type { PackagesLock } from './packages-lock.ts'

export type ProvenanceOf = {
  /** Directory of the image, with its manifest. */
  readonly dir: string
  readonly recipe: string
  readonly manifest: CommonManifest
  readonly lock: PackagesLock
  /** Packages of the npm registry in the image. */
  readonly npmPackages: readonly Pick<AgentLock, 'package' | 'version' | 'integrity'>[]
  /** Our executable: strongroom-guest, or strongroom-enclave. */
  readonly executable: { readonly name: string; readonly sha256: string; readonly madeOf: Origin }
}

export async function writeProvenance({
  dir,
  recipe,
  manifest,
  lock,
  npmPackages,
  executable,
}: ProvenanceOf): Promise<void> {
  const bytes = imageProvenance({
    recipe,
    variant: manifest.name === recipe ? null : manifest.name,
    inputsSha256: manifest.inputsSha256,
    sourceDateEpoch: manifest.sourceDateEpoch,
    tools: manifest.tools,
    packagesLockSha256: manifest.packagesLockSha256,
    packages: lock.packages,
    executable,
    npmPackages: npmPackages.map(describePackage),
    output: {
      manifestSha256: await sha256File(join(dir, imageManifestName)),
      files: Object.values(manifest.files),
      root: partNames.root,
      rootHash: manifest.rootHash,
    },
  })
  await writeFile(join(dir, imageProvenanceName), bytes)
}

function describePackage(lock: ProvenanceOf['npmPackages'][number]): ImageBuild['npmPackages'][number] {
  const sha512 = Buffer.from(lock.integrity.replace(/^sha512-/, ''), 'base64').toString('hex')
  return { package: lock.package, version: lock.version, sha512 }
}
