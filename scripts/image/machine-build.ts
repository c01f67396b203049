// Builds an image of kind `machine`: a Debian with our init, the guest executable and, where somebody logs in, the
// packaged agent. Effects.

import { existsSync } from 'node:fs'
import { basename, join } from 'node:path'
import { goLibraryDir } from '../../src/builder/go/library.ts'
import { brokerBundle } from '../build/broker-bundle.ts'
import { fetchPackage, installAgent, readAgentLock } from './agent-lock.ts'
import { sha256File, sha256Text } from './digest.ts'
import { downloadPath, fetchPackages } from './downloads.ts'
import { type CacheDirs, scratchDir, touch } from './image-cache.ts'
import { baseInputs, gatherInputs, inputsDigest, type ToolVersions, toolVersions } from './inputs.ts'
import { moduleClosure, unpackKernel } from './kernel.ts'
import type { MachineManifest, Origin } from './manifest.ts'
import { machineMirrors } from './mirror.ts'
import { installNpmProgram, readNpmPrograms } from './npm-lock.ts'
import { type PackagesLock, packageOf, readPackagesLock } from './packages-lock.ts'
import { executableOf, type MachineRecipe, type RecipePaths, readMachineRecipe, readModuleList } from './recipe.ts'
import { buildBaseTree } from './tree/base.ts'
import { recordBuilderTools } from './tree/builder-tools.ts'
import { compileGoLibrary } from './tree/go-library.ts'
import { type BuiltImage, cachedImage, type ImageBuild, packImage } from './tree/pack.ts'
import { layTree } from './tree/root.ts'

export type MachineBuildOptions = {
  readonly paths: RecipePaths
  /** Our compiled executable of this recipe's program. */
  readonly executable: string
  /** In the place of <cache>/images. */
  readonly imagesDir: string | null
  readonly report: (line: string) => void
}

/** Directory of the finished image, from the cache where its inputs are unchanged. */
export async function buildMachine(options: MachineBuildOptions): Promise<string> {
  const { paths, executable, imagesDir, report } = options
  const recipe = await readMachineRecipe(paths)
  const lock = await readPackagesLock(paths.packagesLock)
  const tools = await toolVersions()
  const { inputs: gathered, origin } = await gatherInputs(paths, executable, tools)
  const broker = recipe.program === 'agent' ? await brokerBundle(paths.repo) : null
  const inputs = broker === null ? gathered : { ...gathered, broker: sha256Text(broker) }
  return cachedImage({ name: recipe.name, imagesDir, inputs }, async build => {
    const baseSha256 = inputsDigest(await baseInputs(paths, recipe, tools))
    const base = await baseTree({ recipe, lock, dirs: build.dirs, baseSha256, report })
    return assemble({ options, recipe, lock, tools, origin, base, broker, build })
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
  readonly broker: string | null
  readonly build: ImageBuild
}

async function assemble(assembly: AssembleOptions): Promise<BuiltImage> {
  const { options, recipe, lock, base, broker, build } = assembly
  const { paths, executable, report } = options
  const { downloads } = build.dirs

  report('root: laying the tree')
  const agentLock = recipe.user === undefined ? null : await readAgentLock(paths.agentLock)
  const agentTarball = agentLock === null ? null : await fetchPackage(downloads, agentLock)
  const kernelPackage = downloadPath(downloads, packageOf(lock, 'kernel').sha256)
  const kernel = await unpackKernel(kernelPackage, join(build.workDir, 'kernel'))
  const listed = await readModuleList(paths)
  const early = await moduleClosure(kernel, [...listed.initrd, ...listed.overlay])
  const earlyPaths = new Set(early.map(module => module.path))
  const late = async (names: readonly string[]) =>
    (await moduleClosure(kernel, names)).filter(module => !earlyPaths.has(module.path))
  const [scratch, boot] = [await late(listed.scratch), await late(listed.boot)]
  const reach = broker === null ? [] : await late(listed.reach)
  const { schemaVersion: _, reach: __, ...groups } = listed
  const all = await moduleClosure(kernel, Object.values(groups).flat())
  const tree = join(build.workDir, 'tree')
  const overlayDirs = [paths.commonDir, paths.recipeDir, paths.variantDir]
    .filter(dir => dir !== null)
    .map(dir => join(dir, 'root'))
    .filter(existsSync)
  await layTree({ recipe, tree, base, overlayDirs, executable, broker, kernel, modules: { scratch, boot, reach, all } })
  if (agentLock !== null && agentTarball !== null) {
    await installAgent(agentTarball, agentLock, join(tree, 'usr/bin', agentLock.name), build.workDir)
  }
  const programs = await readNpmPrograms(paths.npmLock)
  for (const program of programs) await installNpmProgram(downloads, program, join(tree, 'usr'))
  if (lock.packages.some(({ name }) => name === 'golang-go')) {
    report("root: compiling Go's standard library")
    const binds = [{ from: join(tree, 'usr'), to: '/usr' }]
    await compileGoLibrary({ binds, path: '/usr/bin', target: join(tree, goLibraryDir) })
  }
  if (recipe.program === 'builder') {
    report('root: recording what its programs print')
    await recordBuilderTools({ tree, sourceDateEpoch: recipe.sourceDateEpoch })
  }
  const initrd = { tree, modules: { early, boot: [] } }
  const packed = await packImage({ ...assembly, paths, kernel, tree, initrd, report })
  const guestSha256 = await sha256File(executable)
  const manifest: MachineManifest = {
    ...packed,
    ...(agentLock === null ? {} : { agent: { name: agentLock.name, version: agentLock.version } }),
    guestSha256,
    guestProvenance: assembly.origin,
  }
  const measured = { name: executableOf(recipe), sha256: guestSha256, madeOf: assembly.origin }
  return {
    manifest,
    recipe: basename(paths.recipeDir),
    lock,
    npmPackages: [...(agentLock === null ? [] : [agentLock]), ...programs],
    executable: measured,
  }
}
