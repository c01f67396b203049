// Fetched files, kept by SHA-256 so that a name can never stand for other bytes. Effects.

import { link, mkdir, rename, rm, stat, utimes } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { sha256File } from './digest.ts'
import { ImageFault } from './image-fault.ts'
import { type Mirrors, packageAddresses } from './mirror.ts'
import type { LockedPackage } from './packages-lock.ts'
import { runTool } from './tool.ts'

/** For one download from one mirror. */
const downloadTimeoutMs = 600_000

/** Path that a download with this digest has or will have. */
export function downloadPath(downloadsDir: string, sha256: string): string {
  return join(downloadsDir, sha256)
}

/**
 * Fetches what is not there yet, with apt's own downloader and so with its proxies. Each file is checked whenever it
 * is used. Throws package_gone naming every missing package, digest_mismatch.
 */
export async function fetchPackages(
  downloadsDir: string,
  entries: readonly LockedPackage[],
  mirrors: () => Promise<Mirrors>,
  timeoutMs = downloadTimeoutMs,
): Promise<void> {
  await mkdir(downloadsDir, { recursive: true })
  const missing: LockedPackage[] = []
  for (const entry of entries) if (!(await isIntact(downloadsDir, entry))) missing.push(entry)
  if (missing.length === 0) return
  const known = await mirrors()
  const gone: string[] = []
  for (const entry of missing)
    if (!(await fetchOne(downloadsDir, entry, known, timeoutMs))) gone.push(`${entry.name} ${entry.version}`)
  if (gone.length > 0) throw new ImageFault('package_gone', `the mirror no longer has: ${gone.join(', ')}`)
}

/** Links the packages into `repoDir` under their pool names, without directories, and gives those names. */
export async function linkPackages(
  downloadsDir: string,
  entries: readonly LockedPackage[],
  repoDir: string,
): Promise<string[]> {
  const names: string[] = []
  for (const entry of entries) {
    const name = basename(entry.file)
    const source = downloadPath(downloadsDir, entry.sha256)
    const target = join(repoDir, name)
    await link(source, target).catch(() => Bun.write(target, Bun.file(source)))
    names.push(name)
  }
  return names
}

async function isIntact(downloadsDir: string, entry: LockedPackage): Promise<boolean> {
  const path = downloadPath(downloadsDir, entry.sha256)
  const size = await stat(path).then(
    status => status.size,
    () => null,
  )
  if (size === null) return false
  if (size === entry.sizeBytes && (await sha256File(path)) === entry.sha256) {
    const now = new Date()
    await utimes(path, now, now)
    return true
  }
  await rm(path)
  return false
}

async function fetchOne(
  downloadsDir: string,
  entry: LockedPackage,
  mirrors: Mirrors,
  timeoutMs: number,
): Promise<boolean> {
  const partial = join(downloadsDir, `${entry.sha256}.${process.pid}.partial`)
  try {
    for (const address of packageAddresses(mirrors, entry)) {
      const argv = ['apt-helper', 'download-file', address, partial, `SHA256:${entry.sha256}`] as const
      const fetched = await runTool(argv, { timeoutMs, inheritEnv: true }).then(() => true, isNotGone)
      if (!fetched) continue
      if ((await sha256File(partial)) !== entry.sha256)
        throw new ImageFault('digest_mismatch', `${entry.name}: ${address}`)
      await rename(partial, downloadPath(downloadsDir, entry.sha256))
      return true
    }
    return false
  } finally {
    await rm(partial, { force: true })
  }
}

// A mirror without the file and one that cannot be reached look alike to apt-helper; both mean: try the next.
function isNotGone(error: unknown): false {
  if (error instanceof ImageFault && error.code === 'tool_failed') return false
  throw error
}
