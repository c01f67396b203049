// Provenance of an executable, by digest: Bun, the dependencies' lock, the sources, and the commit where nothing
// differs from it. Reads only.

import { createReadStream } from 'node:fs'
import { readdir, readFile, realpath, stat } from 'node:fs/promises'
import { join } from 'node:path'

export type Provenance = {
  /** SHA-256 of the Bun that compiles and goes in, the one of scripts/lib/bun.lock.json. */
  readonly bunSha256: string
  /** SHA-256 of bun.lock, which has the digest of each package. */
  readonly lockSha256: string
  /** SHA-256 of what `sha256sum` prints for all source files, sorted by path. */
  readonly sourceSha256: string
  /** Null outside a Git checkout, and where a source file differs from its commit. */
  readonly commit: string | null
}

/** The lock stands for node_modules. */
const commonSources = ['bun.lock', 'package.json', 'tsconfig.json', 'scripts/build']
const gitTimeoutMs = 30_000

/** Throws when this Bun is not the locked one: what it made would be nobody's to check. */
export async function provenanceOf(sources: readonly string[], repo: string): Promise<Provenance> {
  const bunSha256 = await sha256File(process.execPath)
  const locked = JSON.parse(await readFile(join(repo, 'scripts/lib/bun.lock.json'), 'utf8')).executableSha256
  if (bunSha256 !== locked) {
    throw new Error(
      `${process.execPath} is not the Bun of scripts/lib/bun.lock.json: run scripts/setup and use its Bun`,
    )
  }
  const paths = [...sources, ...commonSources]
  return {
    bunSha256,
    lockSha256: await sha256File(join(repo, 'bun.lock')),
    sourceSha256: await sourceDigest(repo, paths),
    commit: cleanCommit(await realpath(repo), paths),
  }
}

async function sourceDigest(repo: string, roots: readonly string[]): Promise<string> {
  const hash = new Bun.CryptoHasher('sha256')
  for (const path of await listFiles(repo, roots)) hash.update(`${await sha256File(join(repo, path))}  ${path}\n`)
  return hash.digest('hex')
}

async function listFiles(repo: string, roots: readonly string[]): Promise<string[]> {
  const files: string[] = []
  for (const root of roots) {
    if (await isFile(join(repo, root))) files.push(root)
    const below = await readdir(join(repo, root), { recursive: true, withFileTypes: true }).catch(() => [])
    for (const entry of below) {
      if (entry.isFile()) files.push(join(entry.parentPath, entry.name).slice(repo.length + 1))
    }
  }
  return files.sort()
}

/** Nothing of the caller's Git configuration counts, nor who owns the checkout. */
function cleanCommit(repo: string, paths: readonly string[]): string | null {
  const git = (...argv: string[]): string | null => {
    const { exitCode, stdout } = Bun.spawnSync(['git', '-c', `safe.directory=${repo}`, ...argv], {
      cwd: repo,
      env: { PATH: '/usr/bin:/bin', HOME: '/nonexistent', GIT_CONFIG_NOSYSTEM: '1', GIT_OPTIONAL_LOCKS: '0' },
      stderr: 'ignore',
      timeout: gitTimeoutMs,
    })
    return exitCode === 0 ? stdout.toString().trim() : null
  }
  // A copy inside somebody else's checkout has no commit of its own.
  if (git('rev-parse', '--show-toplevel') !== repo) return null
  const commit = git('rev-parse', '--verify', 'HEAD')
  const differs = git('status', '--porcelain', '--untracked-files=all', '--ignored', '--', ...paths)
  return differs === '' ? commit : null
}

export async function sha256File(path: string): Promise<string> {
  const hash = new Bun.CryptoHasher('sha256')
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) hash.update(chunk)
  return hash.digest('hex')
}

export async function isFile(path: string): Promise<boolean> {
  return stat(path).then(
    found => found.isFile(),
    () => false,
  )
}
