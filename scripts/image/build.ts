// Builds one image, or writes its lock anew, by the kind of its recipe. Effects.

import { existsSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { writeJson } from './checked-json.ts'
import { buildEnclave } from './enclave-build.ts'
import { openCacheDirs, scratchDir } from './image-cache.ts'
import { ImageFault } from './image-fault.ts'
import { buildMachine } from './machine-build.ts'
import { machineMirrors } from './mirror.ts'
import { readPackagesLock } from './packages-lock.ts'
import { executableOf, imagePaths, readRecipe } from './recipe.ts'
import { refuseOlder, releaseLines } from './release.ts'
import { lockChanges, resolveLock } from './relock.ts'

export type BuildOptions = {
  readonly repo: string
  readonly name: string
  /** Our compiled executable for this image; null for the one in `dist` (`executableOf`). */
  readonly executable: string | null
  /** In the place of <cache>/images. */
  readonly imagesDir: string | null
  readonly report: (line: string) => void
}

/** Directory of the finished image, from the cache where its inputs are unchanged. */
export async function buildImage({ repo, name, ...options }: BuildOptions): Promise<string> {
  // Modes of what is made below must not hang on the caller's umask.
  process.umask(0o022)
  const paths = await imagePaths(repo, name)
  const recipe = await readRecipe(paths)
  const executable = options.executable ?? join(repo, 'dist', executableOf(recipe))
  if (statSync(executable, { throwIfNoEntry: false })?.isFile() !== true) {
    throw new ImageFault('executable_missing', `no executable at ${executable}`)
  }
  const build = { ...options, paths, executable }
  return recipe.kind === 'machine' ? buildMachine(build) : buildEnclave(build)
}

/**
 * Writes a new package lock, returns the changed packages. Throws release_refused: the mirror is older than the lock.
 */
export async function relock(repo: string, name: string, report: BuildOptions['report']): Promise<string[]> {
  const paths = await imagePaths(repo, name)
  const recipe = await readRecipe(paths)
  const dirs = await openCacheDirs(null)
  await using work = await scratchDir(dirs.work)
  const before = existsSync(paths.packagesLock) ? await readPackagesLock(paths.packagesLock) : null
  const resolved = await resolveLock(recipe, await machineMirrors(), work.path)
  const locked = before?.releases ?? []
  for (const line of releaseLines(locked, resolved.releases, Date.now())) report(line)
  refuseOlder(locked, resolved.releases)
  const releases = resolved.releases.map(({ validUntil: _, ...release }) => release)
  const changes = lockChanges(before, resolved)
  if (changes.length > 0) await writeJson(paths.packagesLock, { ...resolved, releases })
  return changes
}
