// How long files and functions may be. Pure.

import { functionsOf, lineCountOf } from './source.ts'
import type { Tree } from './tree.ts'

export const fileLinesMax = 450
export const functionLinesMax = 90

export type Exception = { readonly fileLinesMax?: number; readonly functionLinesMax?: number; readonly reason: string }

/** Longer than the limits, each with the reason why splitting it would make it harder to read. */
export const EXCEPTIONS: Readonly<Record<string, Exception>> = {}

export function sizeFaults(tree: Tree, exceptions: Readonly<Record<string, Exception>> = EXCEPTIONS): string[] {
  const faults: string[] = []
  for (const [path, text] of tree) {
    const own = exceptions[path]
    const lines = lineCountOf(text)
    const linesMax = own?.fileLinesMax ?? fileLinesMax
    if (lines > linesMax) faults.push(`${path}: ${lines} lines, at most ${linesMax}`)
    // A test's body or a describe block is as long as its table; only the file's limit holds there.
    if (path.startsWith('test/')) continue
    const bodyMax = own?.functionLinesMax ?? functionLinesMax
    for (const { line, lineCount } of functionsOf(text)) {
      if (lineCount > bodyMax) faults.push(`${path}:${line}: a function of ${lineCount} lines, at most ${bodyMax}`)
    }
  }
  for (const [path, exception] of Object.entries(exceptions)) {
    if (!tree.has(path)) faults.push(`${path}: an exception for a file that is not there`)
    if (exception.reason.length < 20) faults.push(`${path}: an exception without a reason`)
  }
  return faults
}
