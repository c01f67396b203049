// Builds an image that is a root and nothing else, for a sandbox: locked packages unpacked, packed as erofs, hashed by dm-verity. Effects.
// No maintainer script runs, so a package brings its files alone and what they need must be among the recipe's packages.

import { chmod, mkdir, open, rm, stat, symlink } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { writeJson } from './checked-json.ts'
import { filesBelow, sha256File } from './digest.ts'
import { downloadPath, fetchPackages } from './downloads.ts'
import { type CacheDirs, lockCache, openCacheDirs, prune, publish, scratchDir, touch } from './image-cache.ts'
import { ImageFault } from './image-fault.ts'
import { gatherTreeInputs, inputsDigest, type ToolVersions, toolVersions } from './inputs.ts'
import { measurePart, partNames, type TreeManifest } from './manifest.ts'
import { machineMirrors } from './mirror.ts'
import { type PackagesLock, readPackagesLock } from './packages-lock.ts'
import { writeProvenance } from './provenance.ts'
import { type RecipePaths, readTreeRecipe, type TreeRecipe } from './recipe.ts'
import { packTree } from './root-tree.ts'
import { runTool } from './tool.ts'
import { appendVerity } from './verity.ts'

export type TreeBuildOptions = {
  readonly paths: RecipePaths
  /** In the place of <cache>/images. */
  readonly imagesDir: string | null
  readonly report: (line: string) => void
}

/** Directory of the finished image, from the cache where its inputs are unchanged. */
export async function buildTree({ paths, imagesDir, report }: TreeBuildOptions): Promise<string> {
  const recipe = await readTreeRecipe(paths)
  const lock = await readPackagesLock(paths.packagesLock, 'tree')
  const problem = treeLockProblem(recipe, lock)
  if (problem !== null) throw new ImageFault('recipe_invalid', `${paths.packagesLock}: ${problem}`)
  const dirs = await openCacheDirs(imagesDir)
  await using _held = await lockCache(dirs)
  const tools = await toolVersions()
  const inputsSha256 = inputsDigest(await gatherTreeInputs(paths, tools))
  const target = join(dirs.images, `${recipe.name}-${inputsSha256.slice(0, 16)}`)
  if (!(await isFile(join(target, 'manifest.json')))) {
    report('packages: fetching what is not cached')
    await fetchPackages(dirs.downloads, lock.packages, machineMirrors)
    report('root: unpacking, packing and hashing')
    await assemble({ paths, recipe, lock, dirs, tools, inputsSha256, target })
  }
  await touch(target, new Date())
  await prune(dirs, recipe.name)
  return target
}

/** Why a lock is not the recipe's, or null. */
export function treeLockProblem(recipe: TreeRecipe, lock: PackagesLock): string | null {
  if (lock.suite !== recipe.suite) return `of suite ${lock.suite}, not ${recipe.suite}`
  const locked = lock.packages.map(entry => entry.name).join(' ')
  return locked === recipe.packages.toSorted().join(' ') ? null : "its packages are not the recipe's"
}

type AssembleOptions = {
  readonly paths: RecipePaths
  readonly recipe: TreeRecipe
  readonly lock: PackagesLock
  readonly dirs: CacheDirs
  readonly tools: ToolVersions
  readonly inputsSha256: string
  readonly target: string
}

async function assemble({ paths, recipe, lock, dirs, tools, inputsSha256, target }: AssembleOptions): Promise<void> {
  await using work = await scratchDir(dirs.work)
  await using out = await scratchDir(dirs.images)
  const image = join(out.path, 'image')
  await mkdir(image, { mode: 0o755 })
  const tree = join(work.path, 'tree')
  await layTree(recipe, lock, dirs.downloads, tree)
  const root = join(image, partNames.root)
  await packTree(tree, inputsSha256, recipe, root)
  const { rootHash, ...verity } = await appendVerity(root)
  const version = lock.packages.find(entry => entry.name === recipe.program)?.version
  if (version === undefined) throw new ImageFault('recipe_invalid', `${recipe.program} is not among the packages`)
  const manifest: TreeManifest = {
    schemaVersion: 1,
    name: recipe.name,
    inputsSha256,
    rootHash,
    verity,
    files: { root: await measurePart(image, 'root') },
    program: { package: recipe.program, version },
    sourceDateEpoch: recipe.sourceDateEpoch,
    packagesLockSha256: await sha256File(paths.packagesLock),
    tools,
  }
  await writeJson(join(image, 'manifest.json'), manifest)
  await writeProvenance({ dir: image, recipe: recipe.name, manifest, lock, agentLock: null })
  await publish(image, target)
}

/** Places to mount on, empty; the root itself is read-only. */
const mountPoints = ['dev', 'model', 'proc', 'run', 'sys', 'tmp'] as const
/** A merged /usr, as every package expects it. */
const usrLinks = ['bin', 'lib', 'lib64', 'sbin'] as const

async function layTree(recipe: TreeRecipe, lock: PackagesLock, downloadsDir: string, tree: string): Promise<void> {
  await mkdir(tree, { mode: 0o755 })
  for (const name of mountPoints) await mkdir(join(tree, name), { mode: 0o755 })
  for (const name of usrLinks) {
    await mkdir(join(tree, 'usr', name), { recursive: true, mode: 0o755 })
    await symlink(`usr/${name}`, join(tree, name))
  }
  for (const entry of lock.packages) {
    await runTool(['dpkg-deb', '--extract', downloadPath(downloadsDir, entry.sha256), tree], { timeoutMs: 120_000 })
  }
  // dpkg-deb gives the top directory the mode of each package's own.
  await chmod(tree, 0o755)
  for (const pattern of recipe.exclude) {
    const found = await Array.fromAsync(new Bun.Glob(pattern).scan({ cwd: tree, dot: true, onlyFiles: false }))
    for (const path of found) await rm(join(tree, path), { recursive: true, force: true })
  }
  await runTool(['find', tree, '-type', 'f', '-perm', '/6000', '-exec', 'chmod', 'u-s,g-s', '{}', '+'], {
    timeoutMs: 30_000,
  })
  await checkLibraries(tree)
}

const loader = 'ld-linux-x86-64.so.2'
const elfMagic = '\x7fELF'

/** Asks the tree's own loader whether each program and library finds all that it needs. Throws library_missing. */
async function checkLibraries(tree: string): Promise<void> {
  for (const path of await filesBelow(tree)) {
    if (basename(path) === loader || !(await isElf(path))) continue
    const inside = path.slice(tree.length)
    await runTool(['chroot', tree, `/usr/lib64/${loader}`, '--list', inside], { timeoutMs: 30_000 }).catch(error => {
      throw new ImageFault('library_missing', `${inside}: ${error instanceof Error ? error.message : error}`, error)
    })
  }
}

async function isElf(path: string): Promise<boolean> {
  const status = await stat(path).catch(() => null)
  if (status === null || !status.isFile() || status.size < elfMagic.length) return false
  await using file = await open(path, 'r')
  const { buffer } = await file.read(Buffer.alloc(elfMagic.length), 0, elfMagic.length, 0)
  return buffer.toString('latin1') === elfMagic
}

function isFile(path: string): Promise<boolean> {
  return stat(path).then(
    status => status.isFile(),
    () => false,
  )
}
