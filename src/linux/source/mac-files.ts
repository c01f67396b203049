// Deletes the files that macOS adds to directories and archives from an unpacked source. Effects:
// reads and deletes files below one directory that has no links yet.

import * as fs from 'node:fs'
import { resultOr } from '../../base/result-or.ts'

/** Lists the files of a vendored package; cargo refuses a package that lacks one of them. */
const checksumFile = '.cargo-checksum.json'
const checksumBytesMax = 4 * 1024 * 1024

/** Deletes these files, except those that a vendored package lists. Returns the deleted ones. */
export function dropMacFiles(root: string, paths: readonly string[]): string[] {
  const listed = listedPaths(root, paths)
  const dropped = paths.filter(path => !listed.has(path))
  for (const path of dropped) {
    fs.unlinkSync(`${root}/${path}`)
    removeEmpty(root, path.split('/').slice(0, -1))
  }
  return dropped
}

/**
 * Returns the paths that the innermost listing above them names. Reads each listing once, deepest directories first,
 * and holds one at a time: a parsed listing of 4 MiB takes 22 MiB of memory.
 */
function listedPaths(root: string, paths: readonly string[]): Set<string> {
  const undecided = new Map<string, string[]>([['', []]])
  for (const path of paths) {
    for (let dir = parentOf(path); !undecided.has(dir); dir = parentOf(dir)) undecided.set(dir, [])
    undecided.get(parentOf(path))?.push(path)
  }
  const listed = new Set<string>()
  for (const [dir, inside] of [...undecided].sort(([a], [b]) => b.length - a.length)) {
    const listing = inside.length === 0 ? null : readListing(root, dir)
    for (const path of inside) {
      if (listing !== null && Object.hasOwn(listing, path.slice(dir.length))) listed.add(path)
      if (listing === null && dir !== '') undecided.get(parentOf(dir))?.push(path)
    }
  }
  return listed
}

/** Returns the directory with a slash at its end, or '' for the root. */
function parentOf(path: string): string {
  return path.slice(0, path.lastIndexOf('/', path.length - 2) + 1)
}

/** Returns `files` of the listing in `dir`, which is '' or ends with a slash. Null if `dir` has no valid listing. */
function readListing(root: string, dir: string): object | null {
  const path = `${root}/${dir}${checksumFile}`
  const stat = fs.lstatSync(path, { throwIfNoEntry: false })
  if (stat?.isFile() !== true || stat.size > checksumBytesMax) return null
  const files: unknown = resultOr(() => JSON.parse(fs.readFileSync(path, 'utf8')).files, null)
  return typeof files === 'object' ? files : null
}

/** Removes the directories that have become empty: git has none, and the top of the source may be one of them. */
function removeEmpty(root: string, components: string[]): void {
  for (; components.length > 0; components.pop()) {
    if (resultOr(() => fs.rmdirSync([root, ...components].join('/')), 'full') === 'full') return
  }
}
