// Everything that an image's bytes depend on, by digest. Reads only.

import { join } from 'node:path'
import { type ProvenanceFile, provenancePath } from '../build/executable.ts'
import { sha256File, sha256Text, sha256Tree } from './digest.ts'
import { ImageFault } from './image-fault.ts'
import type { Origin } from './manifest.ts'
import type { MachineRecipe, RecipePaths } from './recipe.ts'
import { runTool } from './tool.ts'

/** Named inputs and what stands for each: a digest, or a version. */
export type Inputs = Readonly<Record<string, string>>

export type ImageInputs = {
  readonly inputs: Inputs
  /** Origin of the executable. */
  readonly origin: Origin
}

export type ToolVersions = Readonly<Record<string, string>>

/** One digest over named inputs, whatever their order. */
export function inputsDigest(inputs: Inputs): string {
  return sha256Text(JSON.stringify(Object.entries(inputs).sort(([a], [b]) => (a < b ? -1 : 1))))
}

/** Digests the recipe, the locks, the build's own sources and our executable. */
export async function gatherInputs(paths: RecipePaths, executable: string, tools: ToolVersions): Promise<ImageInputs> {
  const executableSha256 = await sha256File(executable)
  const origin = await readOrigin(executable, executableSha256)
  const inputs: Record<string, string> = {
    ...(await sha256Tree(join(paths.repo, 'scripts', 'image'), paths.repo)),
    // Launch digests in the manifest and the provenance are of its making.
    ...(await sha256Tree(join(paths.repo, 'src', 'attest'), paths.repo)),
    ...(await sha256Tree(paths.recipeDir, paths.repo)),
    ...(await sha256Tree(paths.commonDir, paths.repo)),
    ...(paths.variantDir === null ? {} : await sha256Tree(paths.variantDir, paths.repo)),
    executable: executableSha256,
    'executable origin': JSON.stringify(origin),
  }
  for (const [name, version] of Object.entries(tools)) inputs[`tool ${name}`] = version
  return { inputs, origin }
}

/** Inputs of a machine's Debian part. */
export async function baseInputs(paths: RecipePaths, recipe: MachineRecipe, tools: ToolVersions): Promise<Inputs> {
  return {
    'packages.lock': await sha256File(paths.packagesLock),
    'base.ts': await sha256File(join(paths.repo, 'scripts', 'image', 'tree', 'base.ts')),
    'recipe.sourceDateEpoch': String(recipe.sourceDateEpoch),
    'tool mmdebstrap': tools.mmdebstrap ?? '',
    'tool dpkg-deb': tools['dpkg-deb'] ?? '',
  }
}

/** Null when the build wrote none, or for other bytes. Without the commit: equal inputs must give equal manifests. */
async function readOrigin(executable: string, sha256: string): Promise<Origin> {
  const file = Bun.file(provenancePath(executable))
  if (!(await file.exists())) return null
  const { executableSha256, bunSha256, lockSha256, sourceSha256 }: ProvenanceFile = await file.json()
  return executableSha256 === sha256 ? { bunSha256, lockSha256, sourceSha256 } : null
}

const versionCommands = {
  'dpkg-deb': ['dpkg-deb', '--version'],
  mmdebstrap: ['mmdebstrap', '--version'],
  tar: ['tar', '--version'],
  veritysetup: ['veritysetup', '--version'],
} as const satisfies Record<string, readonly [string, ...string[]]>

/** Versions of the tools that write an image's bytes. Throws tool_missing. */
export async function toolVersions(): Promise<ToolVersions> {
  const versions: Record<string, string> = { bun: Bun.version }
  for (const [name, argv] of Object.entries(versionCommands)) {
    const printed = await runTool(argv, { timeoutMs: 10_000 })
    versions[name] = /\d+(\.\d+)+/.exec(printed)?.[0] ?? printed.trim()
  }
  // mkfs.erofs before 1.6 has no --version; the executable itself stands for it.
  const erofs = Bun.which('mkfs.erofs', { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' })
  if (erofs === null) throw new ImageFault('tool_missing', 'mkfs.erofs is not installed')
  versions['mkfs.erofs'] = `sha256:${await sha256File(erofs)}`
  return versions
}
