// The image cache: downloads, Debian trees and finished images. One build at a time; what is not complete does not
// count. Effects.

import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat, utimes } from 'node:fs/promises'
import { join } from 'node:path'
import { ImageFault } from './image-fault.ts'

export type CacheDirs = {
  readonly root: string
  readonly downloads: string
  readonly bases: string
  readonly images: string
  readonly work: string
}

const lockTimeoutSeconds = 1_800
const imagesKeptPerRecipe = 4
const basesKept = 3
const downloadIdleMsMax = 90 * 24 * 3_600_000

/** Below STRONGROOM_CACHE, or /var/cache/strongroom. `imagesDir` replaces the place of finished images. */
export async function openCacheDirs(imagesDir: string | null): Promise<CacheDirs> {
  const root = process.env.STRONGROOM_CACHE ?? '/var/cache/strongroom'
  const dirs = {
    root,
    downloads: join(root, 'downloads'),
    bases: join(root, 'bases'),
    images: imagesDir ?? join(root, 'images'),
    work: join(root, 'work'),
  }
  for (const dir of Object.values(dirs)) await mkdir(dir, { recursive: true })
  return dirs
}

/** Holds the cache for one build. The kernel drops the lock when this process ends, however it ends. Throws busy. */
export async function lockCache(dirs: CacheDirs): Promise<AsyncDisposable> {
  // `cat` echoes what it is sent once flock has the lock, and ends with its input.
  const holder = Bun.spawn(
    ['flock', '--exclusive', '--timeout', String(lockTimeoutSeconds), join(dirs.root, 'build.lock'), 'cat'],
    { stdin: 'pipe', stdout: 'pipe', stderr: 'ignore' },
  )
  holder.stdin.write('locked\n')
  await holder.stdin.flush()
  const { done } = await holder.stdout.getReader().read()
  if (done) throw new ImageFault('busy', `${dirs.root} stayed locked for ${lockTimeoutSeconds} s`)
  const release = async () => {
    await holder.stdin.end()
    await holder.exited
  }
  try {
    await removeLeftovers(dirs)
  } catch (error) {
    await release()
    throw error
  }
  return { [Symbol.asyncDispose]: release }
}

/** An empty directory that goes with its owner; a crash leaves it for the next build to remove. */
export async function scratchDir(parent: string): Promise<{ readonly path: string } & AsyncDisposable> {
  const path = await mkdtemp(join(parent, '.scratch-'))
  return {
    path,
    async [Symbol.asyncDispose]() {
      await rm(path, { recursive: true, force: true })
    },
  }
}

/** Moves a finished directory to its name. */
export async function publish(from: string, to: string): Promise<void> {
  await rm(to, { recursive: true, force: true })
  await rename(from, to)
}

/** Marks as used, so that pruning takes others first. */
export async function touch(path: string, now: Date): Promise<void> {
  await utimes(path, now, now)
}

/**
 * Removes all but the most recently used images of a recipe and Debian trees, and downloads long unused. An image that
 * a VM has open stays readable to it.
 */
export async function prune(dirs: CacheDirs, recipe: string): Promise<void> {
  const imageName = new RegExp(`^${recipe}-[0-9a-f]{16}$`)
  await keepNewest(dirs.images, imageName, imagesKeptPerRecipe)
  await keepNewest(dirs.bases, /^[0-9a-f]{16}\.tar$/, basesKept)
  for (const name of await readdir(dirs.downloads)) {
    const path = join(dirs.downloads, name)
    if ((await stat(path)).mtimeMs < Date.now() - downloadIdleMsMax) await rm(path, { recursive: true, force: true })
  }
}

async function keepNewest(dir: string, pattern: RegExp, count: number): Promise<void> {
  const found: { path: string; usedAtMs: number }[] = []
  for (const name of await readdir(dir)) {
    if (!pattern.test(name)) continue
    const path = join(dir, name)
    found.push({ path, usedAtMs: (await stat(path)).mtimeMs })
  }
  found.sort((a, b) => b.usedAtMs - a.usedAtMs)
  for (const { path } of found.slice(count)) await rm(path, { recursive: true, force: true })
}

async function removeLeftovers(dirs: CacheDirs): Promise<void> {
  for (const dir of [dirs.work, dirs.images]) {
    for (const name of await readdir(dir)) {
      if (!name.startsWith('.scratch-')) continue
      await unmountBelow(join(dir, name))
      await rm(join(dir, name), { recursive: true, force: true })
    }
  }
}

/** A build that was killed while packages were installed leaves file systems mounted, such as /proc and /dev/pts. */
async function unmountBelow(directory: string): Promise<void> {
  const mounts = await readFile('/proc/self/mountinfo', 'utf8')
  const points = mounts.split('\n').flatMap(line => line.split(' ')[4] ?? [])
  // The inner ones first.
  for (const point of points.filter(point => point.startsWith(`${directory}/`)).reverse()) {
    const { exitCode, stderr } = Bun.spawnSync(['umount', point])
    if (exitCode !== 0) throw new ImageFault('tool_failed', `umount ${point}: ${stderr.toString().trim()}`)
  }
}
