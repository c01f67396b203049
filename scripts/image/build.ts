// Builds one image: the steps and their order. Each step is in its own file; this one only joins them. Effects.

import { existsSync } from 'node:fs'
import { cp, mkdir, stat, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { fetchAgent, installAgent, readAgentLock } from './agent-lock.ts'
import { buildBaseTree } from './base-tree.ts'
import { writeJson } from './checked-json.ts'
import { sha256File } from './digest.ts'
import { downloadPath, fetchPackages } from './downloads.ts'
import { launchDigests, unpackFirmware } from './firmware.ts'
import { type CacheDirs, lockCache, openCacheDirs, prune, publish, scratchDir, touch } from './image-cache.ts'
import { ImageFault } from './image-fault.ts'
import { buildInitrd } from './initrd.ts'
import { gatherInputs, type InputSets, inputsDigest, toolVersions } from './inputs.ts'
import { moduleClosure, unpackKernel } from './kernel.ts'
import { type Manifest, measureFiles, partNames } from './manifest.ts'
import { machineMirrors } from './mirror.ts'
import { type PackagesLock, packageOf, readPackagesLock } from './packages-lock.ts'
import { writeProvenance } from './provenance.ts'
import {
  imagePaths,
  type Recipe,
  type RecipePaths,
  readModuleList,
  readRecipe,
  readRecipeKind,
  readTreeRecipe,
} from './recipe.ts'
import { refuseOlder, releaseLines } from './release.ts'
import { lockChanges, resolveLock, resolveTreeLock } from './relock.ts'
import { layTree, packTree } from './root-tree.ts'
import { buildTree } from './tree-build.ts'
import { appendVerity, verityArguments } from './verity.ts'

export type BuildOptions = {
  readonly repo: string
  readonly name: string
  /** The compiled guest executable. */
  readonly guest: string
  /** In the place of <cache>/images. */
  readonly imagesDir: string | null
  readonly report: (line: string) => void
}

/** Directory of the finished image, from the cache where its inputs are unchanged. */
export async function buildImage(options: BuildOptions): Promise<string> {
  // Modes of what is made below must not hang on the caller's umask.
  process.umask(0o022)
  const paths = await imagePaths(options.repo, options.name)
  if ((await readRecipeKind(paths)) === 'tree') return buildTree({ paths, ...options })
  const recipe = await readRecipe(paths)
  if (!(await isFile(options.guest))) throw new ImageFault('guest_missing', `no guest executable at ${options.guest}`)
  const lock = await readPackagesLock(paths.packagesLock)
  const dirs = await openCacheDirs(options.imagesDir)
  await using _held = await lockCache(dirs)
  const inputs = await gatherInputs(paths, options.guest, await toolVersions())
  const target = join(dirs.images, `${recipe.name}-${inputsDigest(inputs.image).slice(0, 16)}`)
  if (!(await isFile(join(target, 'manifest.json')))) {
    const base = await baseTree({ recipe, lock, dirs, inputs, report: options.report })
    await assemble({ options, paths, recipe, lock, dirs, inputs, base, target })
  }
  await touch(target, new Date())
  await prune(dirs, recipe.name)
  return target
}

/** Writes a new package lock and gives what changed, empty when no package did. Throws release_refused: the mirror is older than the lock. */
export async function relock(repo: string, name: string, report: BuildOptions['report']): Promise<string[]> {
  const paths = await imagePaths(repo, name)
  const kind = await readRecipeKind(paths)
  const dirs = await openCacheDirs(null)
  await using work = await scratchDir(dirs.work)
  const before = (await isFile(paths.packagesLock)) ? await readPackagesLock(paths.packagesLock, kind) : null
  const mirrors = await machineMirrors()
  const resolved =
    kind === 'tree'
      ? await resolveTreeLock(await readTreeRecipe(paths), mirrors, work.path)
      : await resolveLock(await readRecipe(paths), mirrors, work.path)
  const locked = before?.releases ?? []
  for (const line of releaseLines(locked, resolved.releases, Date.now())) report(line)
  refuseOlder(locked, resolved.releases)
  const releases = resolved.releases.map(({ validUntil: _, ...release }) => release)
  const changes = lockChanges(before, resolved)
  if (changes.length > 0) await writeJson(paths.packagesLock, { ...resolved, releases })
  return changes
}

type BaseOptions = {
  readonly recipe: Recipe
  readonly lock: PackagesLock
  readonly dirs: CacheDirs
  readonly inputs: InputSets
  readonly report: BuildOptions['report']
}

async function baseTree({ recipe, lock, dirs, inputs, report }: BaseOptions): Promise<string> {
  report('packages: fetching what is not cached')
  await fetchPackages(dirs.downloads, lock.packages, machineMirrors)
  const target = join(dirs.bases, `${inputsDigest(inputs.base).slice(0, 16)}.tar`)
  if (!(await isFile(target))) {
    report('packages: installing into an empty tree')
    await using work = await scratchDir(dirs.work)
    await buildBaseTree({ recipe, lock, downloadsDir: dirs.downloads, workDir: work.path, target })
  }
  await touch(target, new Date())
  return target
}

type AssembleOptions = {
  readonly options: BuildOptions
  readonly paths: RecipePaths
  readonly recipe: Recipe
  readonly lock: PackagesLock
  readonly dirs: CacheDirs
  readonly inputs: InputSets
  readonly base: string
  readonly target: string
}

async function assemble({ options, paths, recipe, lock, dirs, inputs, base, target }: AssembleOptions): Promise<void> {
  await using work = await scratchDir(dirs.work)
  await using out = await scratchDir(dirs.images)
  const image = join(out.path, 'image')
  await mkdir(image, { mode: 0o755 })
  const part = (name: keyof typeof partNames) => join(image, partNames[name])

  options.report('root: laying the tree')
  const agentLock = recipe.user === undefined ? null : await readAgentLock(paths.agentLock)
  const agentTarball = agentLock === null ? null : await fetchAgent(dirs.downloads, agentLock)
  const kernelEntry = packageOf(lock, 'kernel')
  const kernel = await unpackKernel(downloadPath(dirs.downloads, kernelEntry.sha256), join(work.path, 'kernel'))
  const listed = await readModuleList(paths)
  const early = await moduleClosure(kernel, listed.initrd)
  const earlyPaths = new Set(early.map(module => module.path))
  const late = async (names: readonly string[]) =>
    (await moduleClosure(kernel, names)).filter(module => !earlyPaths.has(module.path))
  const [scratch, boot] = [await late(listed.scratch), await late(listed.boot)]
  const all = await moduleClosure(kernel, [...listed.initrd, ...listed.scratch, ...listed.boot, ...listed.demand])
  const tree = join(work.path, 'tree')
  const overlayDirs = [paths.commonDir, paths.recipeDir, paths.variantDir]
    .filter(dir => dir !== null)
    .map(dir => join(dir, 'root'))
    .filter(existsSync)
  await layTree({ recipe, tree, base, overlayDirs, guest: options.guest, kernel, modules: { scratch, boot, all } })
  if (agentLock !== null && agentTarball !== null) {
    await installAgent(agentTarball, agentLock, join(tree, 'usr/bin', agentLock.name), work.path)
  }

  options.report('root: packing and hashing')
  const inputsSha256 = inputsDigest(inputs.image)
  await packTree(tree, inputsSha256, recipe, part('root'))
  const verity = await appendVerity(part('root'))

  options.report('kernel, initrd, command line')
  await cp(kernel.path, part('kernel'))
  const sourceDir = join(paths.commonDir, 'initrd')
  await buildInitrd({ sourceDir, tree, modules: early, mtimeSeconds: recipe.sourceDateEpoch, target: part('initrd') })
  await writeFile(part('cmdline'), [...recipe.kernelArguments, ...verityArguments(verity)].join(' '))

  const firmwareEntry = packageOf(lock, 'firmware')
  await unpackFirmware(
    downloadPath(dirs.downloads, firmwareEntry.sha256),
    recipe.firmware.file,
    work.path,
    part('firmware'),
  )

  const { rootHash, ...parameters } = verity
  const manifest: Manifest = {
    schemaVersion: 1,
    name: recipe.name,
    inputsSha256,
    rootHash,
    verity: parameters,
    files: await measureFiles(image),
    ...(agentLock === null ? {} : { agent: { name: agentLock.name, version: agentLock.version } }),
    guestSha256: await sha256File(options.guest),
    guestProvenance: inputs.guestProvenance,
    kernelVersion: `${kernel.version} (${kernelEntry.version})`,
    sourceDateEpoch: recipe.sourceDateEpoch,
    packagesLockSha256: await sha256File(paths.packagesLock),
    tools: inputs.tools,
    firmwareVersion: firmwareEntry.version,
    launchDigests: await launchDigests(recipe, part),
  }
  await writeJson(join(image, 'manifest.json'), manifest)
  await writeProvenance({ dir: image, recipe: basename(paths.recipeDir), manifest, lock, agentLock })
  await publish(image, target)
}

function isFile(path: string): Promise<boolean> {
  return stat(path).then(
    status => status.isFile(),
    () => false,
  )
}
