// Builds an image of kind `machine`: a Debian with our init, the guest executable and, where somebody logs in, the
// packaged agent. Effects.

import { existsSync } from 'node:fs'
import { basename, join } from 'node:path'
import { fetchAgent, installAgent, readAgentLock } from './agent-lock.ts'
import { sha256File } from './digest.ts'
import { downloadPath, fetchPackages } from './downloads.ts'
import { type CacheDirs, scratchDir, touch } from './image-cache.ts'
import { baseInputs, gatherInputs, inputsDigest, type ToolVersions, toolVersions } from './inputs.ts'
import { moduleClosure, unpackKernel } from './kernel.ts'
import type { MachineManifest, Origin } from './manifest.ts'
import { machineMirrors } from './mirror.ts'
import { type PackagesLock, packageOf, readPackagesLock } from './packages-lock.ts'
import { type MachineRecipe, type RecipePaths, readMachineRecipe, readModuleList } from './recipe.ts'
import { buildBaseTree } from './tree/base.ts'
import { type BuiltImage, cachedImage, type ImageBuild, packImage } from './tree/pack.ts'
import { layTree } from './tree/root.ts'

export type MachineBuildOptions = {
  readonly paths: RecipePaths
  /** The compiled guest executable. */
  readonly guest: string
  /** In the place of <cache>/images. */
  readonly imagesDir: string | null
  readonly report: (line: string) => void
}

/** Directory of the finished image, from the cache where its inputs are unchanged. */
export async function buildMachine(options: MachineBuildOptions): Promise<string> {
  const { paths, guest, imagesDir, report } = options
  const recipe = await readMachineRecipe(paths)
  const lock = await readPackagesLock(paths.packagesLock)
  const tools = await toolVersions()
  const { inputs, origin } = await gatherInputs(paths, guest, tools)
  return cachedImage({ name: recipe.name, imagesDir, inputs }, async build => {
    const baseSha256 = inputsDigest(await baseInputs(paths, recipe, tools))
    const base = await baseTree({ recipe, lock, dirs: build.dirs, baseSha256, report })
    return assemble({ options, recipe, lock, tools, origin, base, build })
  })
}

type BaseOptions = {
  readonly recipe: MachineRecipe
  readonly lock: PackagesLock
  readonly dirs: CacheDirs
  readonly baseSha256: string
  readonly report: MachineBuildOptions['report']
}

async function baseTree({ recipe, lock, dirs, baseSha256, report }: BaseOptions): Promise<string> {
  report('packages: fetching what is not cached')
  await fetchPackages(dirs.downloads, lock.packages, machineMirrors)
  const target = join(dirs.bases, `${baseSha256.slice(0, 16)}.tar`)
  if (!existsSync(target)) {
    report('packages: installing into an empty tree')
    await using work = await scratchDir(dirs.work)
    await buildBaseTree({ recipe, lock, downloadsDir: dirs.downloads, workDir: work.path, target })
  }
  await touch(target, new Date())
  return target
}

type AssembleOptions = {
  readonly options: MachineBuildOptions
  readonly recipe: MachineRecipe
  readonly lock: PackagesLock
  readonly tools: ToolVersions
  readonly origin: Origin
  readonly base: string
  readonly build: ImageBuild
}

async function assemble(assembly: AssembleOptions): Promise<BuiltImage> {
  const { options, recipe, lock, base, build } = assembly
  const { paths, guest, report } = options
  const { downloads } = build.dirs

  report('root: laying the tree')
  const agentLock = recipe.user === undefined ? null : await readAgentLock(paths.agentLock)
  const agentTarball = agentLock === null ? null : await fetchAgent(downloads, agentLock)
  const kernelPackage = downloadPath(downloads, packageOf(lock, 'kernel').sha256)
  const kernel = await unpackKernel(kernelPackage, join(build.workDir, 'kernel'))
  const listed = await readModuleList(paths)
  const early = await moduleClosure(kernel, [...listed.initrd, ...listed.overlay])
  const earlyPaths = new Set(early.map(module => module.path))
  const late = async (names: readonly string[]) =>
    (await moduleClosure(kernel, names)).filter(module => !earlyPaths.has(module.path))
  const [scratch, boot] = [await late(listed.scratch), await late(listed.boot)]
  const { schemaVersion: _, ...groups } = listed
  const all = await moduleClosure(kernel, Object.values(groups).flat())
  const tree = join(build.workDir, 'tree')
  const overlayDirs = [paths.commonDir, paths.recipeDir, paths.variantDir]
    .filter(dir => dir !== null)
    .map(dir => join(dir, 'root'))
    .filter(existsSync)
  await layTree({ recipe, tree, base, overlayDirs, guest, kernel, modules: { scratch, boot, all } })
  if (agentLock !== null && agentTarball !== null) {
    await installAgent(agentTarball, agentLock, join(tree, 'usr/bin', agentLock.name), build.workDir)
  }
  const initrd = { tree, modules: { early, boot: [] } }
  const packed = await packImage({ ...assembly, paths, kernel, tree, initrd, report })
  const guestSha256 = await sha256File(guest)
  const manifest: MachineManifest = {
    ...packed,
    ...(agentLock === null ? {} : { agent: { name: agentLock.name, version: agentLock.version } }),
    guestSha256,
    guestProvenance: assembly.origin,
  }
  const executable = { name: 'strongroom-guest', sha256: guestSha256, madeOf: assembly.origin }
  return { manifest, recipe: basename(paths.recipeDir), lock, agentLock, executable }
}
