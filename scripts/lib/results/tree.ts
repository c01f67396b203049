// The files of the source tree and their digests. Reads only.

import { lstatSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { sha256Text } from '../../image/digest.ts'

/** Made from the others, or no input of a test. */
const leftOut: ReadonlySet<string> = new Set(['.git', 'node_modules', 'dist'])

export type SourceTree = {
  readonly root: string
  /** Paths below the root, sorted. */
  readonly files: readonly string[]
  readonly isFile: (path: string) => boolean
  readonly text: (path: string) => string
  readonly digest: (path: string) => string
}

/** Each file is read once: the tree is that of one moment (see `stampOf`). */
export function readTree(root: string): SourceTree {
  const files = listed(root, '').sort()
  const known = new Set(files)
  const texts = new Map<string, string>()
  const digests = new Map<string, string>()
  const text = (path: string) => once(texts, path, () => readFileSync(join(root, path), 'latin1'))
  return {
    root,
    files,
    isFile: path => known.has(path),
    text,
    digest: path => once(digests, path, () => sha256Text(text(path))),
  }
}

/** Changes with every write to a file of the tree, also with one that leaves its bytes as they were. */
export function stampOf({ root, files }: SourceTree): string {
  const now = listed(root, '').sort()
  if (now.length !== files.length) return `${now.length} files`
  const stats = now.map(path => lstatSync(join(root, path)))
  return sha256Text(JSON.stringify(stats.map(({ mtimeMs, size, ino }) => [mtimeMs, size, ino])))
}

function listed(root: string, directory: string): string[] {
  return readdirSync(join(root, directory), { withFileTypes: true }).flatMap(entry => {
    const path = directory === '' ? entry.name : `${directory}/${entry.name}`
    if (directory === '' && leftOut.has(entry.name)) return []
    return entry.isDirectory() ? listed(root, path) : [path]
  })
}

function once<T>(known: Map<string, T>, key: string, make: () => T): T {
  const found = known.get(key)
  if (found !== undefined) return found
  const made = make()
  known.set(key, made)
  return made
}
