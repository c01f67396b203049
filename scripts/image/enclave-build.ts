// Builds an image of kind `enclave`: the gateway's VM, whose root holds strongroom-enclave, the worker and what these
// run, and no shell. Effects.

import { basename, join } from 'node:path'
import { sha256File } from './digest.ts'
import { downloadPath, fetchPackages } from './downloads.ts'
import { ImageFault } from './image-fault.ts'
import { gatherInputs, type ToolVersions, toolVersions } from './inputs.ts'
import { moduleClosure, unpackKernel } from './kernel.ts'
import type { EnclaveManifest, Origin } from './manifest.ts'
import { machineMirrors } from './mirror.ts'
import { type LockedPackage, type PackagesLock, packageOf, readPackagesLock } from './packages-lock.ts'
import { type EnclaveRecipe, executableOf, type RecipePaths, readEnclaveRecipe, readModuleList } from './recipe.ts'
import { gatewayCommand, layEnclaveTree, unpack } from './tree/enclave.ts'
import { type BuiltImage, cachedImage, type ImageBuild, packImage } from './tree/pack.ts'

export type EnclaveBuildOptions = {
  readonly paths: RecipePaths
  /** The compiled strongroom-enclave. */
  readonly executable: string
  /** In the place of <cache>/images. */
  readonly imagesDir: string | null
  readonly report: (line: string) => void
}

/** Directory of the finished image, from the cache where its inputs are unchanged. */
export async function buildEnclave(options: EnclaveBuildOptions): Promise<string> {
  const { paths, executable, imagesDir } = options
  const recipe = await readEnclaveRecipe(paths)
  const lock = await readPackagesLock(paths.packagesLock)
  const problem = enclaveLockProblem(recipe, lock)
  if (problem !== null) throw new ImageFault('recipe_invalid', `${paths.packagesLock}: ${problem}`)
  const tools = await toolVersions()
  const { inputs, origin } = await gatherInputs(paths, executable, tools)
  return cachedImage({ name: recipe.name, imagesDir, inputs }, build =>
    assemble({ options, recipe, lock, tools, origin, build }),
  )
}

/** Why a lock is not the recipe's, or null. */
export function enclaveLockProblem(recipe: EnclaveRecipe, lock: PackagesLock): string | null {
  if (lock.suite !== recipe.suite) return `of suite ${lock.suite}, not ${recipe.suite}`
  for (const [role, wanted] of [
    ['root', recipe.packages],
    ['initrd', recipe.initrdPackages],
    ['firmware', [recipe.firmware.package]],
  ] as const) {
    const locked = ofRole(lock, role).map(entry => entry.name)
    if (locked.join(' ') !== wanted.toSorted().join(' ')) return `its packages for the ${role} are not the recipe's`
  }
  return null
}

function ofRole(lock: PackagesLock, ...roles: readonly LockedPackage['role'][]): LockedPackage[] {
  return lock.packages.filter(entry => roles.includes(entry.role))
}

type AssembleOptions = {
  readonly options: EnclaveBuildOptions
  readonly recipe: EnclaveRecipe
  readonly lock: PackagesLock
  readonly tools: ToolVersions
  readonly origin: Origin
  readonly build: ImageBuild
}

async function assemble(assembly: AssembleOptions): Promise<BuiltImage> {
  const { options, recipe, lock, build } = assembly
  const { paths, executable, report } = options
  const { downloads } = build.dirs
  report('packages: fetching what is not cached')
  await fetchPackages(downloads, lock.packages, machineMirrors)

  report('root: laying the tree')
  const [tree, initrdTree] = [join(build.workDir, 'tree'), join(build.workDir, 'initrd-tree')]
  const packages = ofRole(lock, 'root')
  const overlayDir = join(paths.recipeDir, 'root')
  await layEnclaveTree({ recipe, packages, downloadsDir: downloads, overlayDir, enclave: executable, tree })
  await unpack(ofRole(lock, 'root', 'initrd'), downloads, initrdTree)

  const kernelPackage = downloadPath(downloads, packageOf(lock, 'kernel').sha256)
  const kernel = await unpackKernel(kernelPackage, join(build.workDir, 'kernel'))
  const listed = await readModuleList(paths)
  const early = await moduleClosure(kernel, listed.initrd)
  const earlyPaths = new Set(early.map(module => module.path))
  const boot = (await moduleClosure(kernel, listed.boot)).filter(module => !earlyPaths.has(module.path))
  const initrd = { tree: initrdTree, modules: { early, boot } }
  const packed = await packImage({ ...assembly, paths, kernel, tree, initrd, report })

  const version = packages.find(entry => entry.name === recipe.program)?.version
  if (version === undefined) throw new ImageFault('recipe_invalid', `${recipe.program} is not among the packages`)
  const sha256 = await sha256File(executable)
  const manifest: EnclaveManifest = {
    ...packed,
    program: { package: recipe.program, version },
    gateway: { sha256, command: [...gatewayCommand], provenance: assembly.origin },
  }
  const measured = { name: executableOf(recipe), sha256, madeOf: assembly.origin }
  return { manifest, recipe: basename(paths.recipeDir), lock, npmPackages: [], executable: measured }
}
