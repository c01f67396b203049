// Everything that an image's bytes depend on, by digest. Reads only.

import { join } from 'node:path'
import { type ProvenanceFile, provenancePath } from '../build/executable.ts'
import { sha256File, sha256Text, sha256Tree } from './digest.ts'
import { ImageFault } from './image-fault.ts'
import type { Manifest } from './manifest.ts'
import { type RecipePaths, readRecipe } from './recipe.ts'
import { runTool } from './tool.ts'

/** Named inputs and what stands for each: a digest, or a version. */
export type Inputs = Readonly<Record<string, string>>

export type InputSets = {
  /** What the Debian part depends on. */
  readonly base: Inputs
  /** What the image depends on, `base` included. */
  readonly image: Inputs
  readonly tools: ToolVersions
  readonly guestProvenance: Manifest['guestProvenance']
}

export type ToolVersions = Readonly<Record<string, string>>

/** One digest over named inputs, whatever their order. */
export function inputsDigest(inputs: Inputs): string {
  return sha256Text(JSON.stringify(Object.entries(inputs).sort(([a], [b]) => (a < b ? -1 : 1))))
}

/** Digests the recipe, the locks, the build's own sources and the guest executable. */
export async function gatherInputs(paths: RecipePaths, guest: string, tools: ToolVersions): Promise<InputSets> {
  const scripts = await sha256Tree(join(paths.repo, 'scripts', 'image'), paths.repo)
  const base: Record<string, string> = {
    'packages.lock': await sha256File(paths.packagesLock),
    'base-tree.ts': scripts['scripts/image/base-tree.ts'] ?? '',
    'recipe.sourceDateEpoch': String((await readRecipe(paths)).sourceDateEpoch),
    'tool mmdebstrap': tools.mmdebstrap ?? '',
    'tool dpkg-deb': tools['dpkg-deb'] ?? '',
  }
  const guestSha256 = await sha256File(guest)
  const guestProvenance = await readGuestProvenance(guest, guestSha256)
  const image: Record<string, string> = {
    ...base,
    ...scripts,
    // Launch digests in the manifest and the provenance are of its making.
    ...(await sha256Tree(join(paths.repo, 'src', 'attest'), paths.repo)),
    ...(await sha256Tree(paths.recipeDir, paths.repo)),
    ...(await sha256Tree(paths.commonDir, paths.repo)),
    ...(paths.variantDir === null ? {} : await sha256Tree(paths.variantDir, paths.repo)),
    guest: guestSha256,
    'guest provenance': JSON.stringify(guestProvenance),
  }
  for (const [name, version] of Object.entries(tools)) image[`tool ${name}`] = version
  return { base, image, tools, guestProvenance }
}

/** Null when the build wrote none, or for other bytes. The commit is left out: equal inputs must give equal manifests. */
async function readGuestProvenance(guest: string, sha256: string): Promise<Manifest['guestProvenance']> {
  const file = Bun.file(provenancePath(guest))
  if (!(await file.exists())) return null
  const { executableSha256, bunSha256, lockSha256, sourceSha256 }: ProvenanceFile = await file.json()
  return executableSha256 === sha256 ? { bunSha256, lockSha256, sourceSha256 } : null
}

/** Of a tree: no guest executable, no common files, no launch digests. */
export async function gatherTreeInputs(paths: RecipePaths, tools: ToolVersions): Promise<Inputs> {
  const image: Record<string, string> = {
    ...(await sha256Tree(join(paths.repo, 'scripts', 'image'), paths.repo)),
    // Of its making is the provenance.
    ...(await sha256Tree(join(paths.repo, 'src', 'attest', 'provenance'), paths.repo)),
    ...(await sha256Tree(paths.recipeDir, paths.repo)),
  }
  for (const [name, version] of Object.entries(tools)) image[`tool ${name}`] = version
  return image
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
