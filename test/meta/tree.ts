// The project's own text files, as the meta tests see them. Reads files.

import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'

export type Tree = ReadonlyMap<string, string>

export const root = resolve(import.meta.dir, '../..')

const ignored = /(?:^|\/)(?:node_modules|dist|\.git|\.strongroom)(?:\/|$)/

/** Files that match one of the patterns: path from the repository's root to text. */
export function readTree(...patterns: readonly string[]): Tree {
  const paths = patterns.flatMap(pattern => [...new Bun.Glob(pattern).scanSync({ cwd: root, dot: true })])
  const wanted = [...new Set(paths)].filter(path => !ignored.test(path)).sort()
  return new Map(wanted.map(path => [path, readFileSync(resolve(root, path), 'utf8')]))
}
