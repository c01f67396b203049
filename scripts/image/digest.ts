// SHA-256 over files and trees. Reads only.

import { createReadStream } from 'node:fs'
import { lstat, readdir, readlink } from 'node:fs/promises'
import { join, relative } from 'node:path'

/** Lower-case hexadecimal SHA-256 of a file's bytes. */
export async function sha256File(path: string): Promise<string> {
  const hasher = new Bun.CryptoHasher('sha256')
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) hasher.update(chunk)
  return hasher.digest('hex')
}

export function sha256Text(text: string): string {
  return new Bun.CryptoHasher('sha256').update(text).digest('hex')
}

/** Digest by path (relative to `base`) of each file below `root`, with symlinks' targets and executable bits. */
export async function sha256Tree(root: string, base: string): Promise<Record<string, string>> {
  const digests: Record<string, string> = {}
  for (const path of await filesBelow(root)) {
    const status = await lstat(path)
    const executable = (status.mode & 0o100) !== 0 ? 'x' : '-'
    digests[relative(base, path)] = status.isSymbolicLink()
      ? `link:${await readlink(path)}`
      : `${executable}:${await sha256File(path)}`
  }
  return digests
}

/** Every file and symlink below `root`, sorted by path. */
export async function filesBelow(root: string): Promise<string[]> {
  const found: string[] = []
  const pending = [root]
  for (let dir = pending.pop(); dir !== undefined; dir = pending.pop()) {
    for (const entry of await readdir(dir, { withFileTypes: true })) {
      const path = join(dir, entry.name)
      if (entry.isDirectory()) pending.push(path)
      else found.push(path)
    }
  }
  return found.sort()
}
