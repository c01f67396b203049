// How long files and functions may be, a function with all that is nested in it, and how full a folder. Pure.

import { functionsOf, lineCountOf } from './source.ts'
import type { Tree } from './tree.ts'

export const fileLinesMax = 450
export const functionLinesMax = 90

/** Files side by side in one folder. */
export const folderFilesMax = 22

export type Exception = { readonly fileLinesMax?: number; readonly functionLinesMax?: number; readonly reason: string }

/** Files that may pass the limits, each with the reason. An exception that nothing needs is an error. */
export const EXCEPTIONS: Readonly<Record<string, Exception>> = {}

export function sizeFaults(tree: Tree, exceptions: Readonly<Record<string, Exception>> = EXCEPTIONS): string[] {
  const faults: string[] = []
  for (const [path, text] of tree) {
    const own = exceptions[path]
    const lines = lineCountOf(text)
    // The body of a test, a describe block or a rig is as long as its table: there the file's limit alone holds.
    const functions = /^(?:test|scripts\/rigs)\//.test(path) ? [] : functionsOf(text)
    const linesMax = own?.fileLinesMax ?? fileLinesMax
    const bodyMax = own?.functionLinesMax ?? functionLinesMax
    if (lines > linesMax) faults.push(`${path}: ${lines} lines, at most ${linesMax}`)
    for (const { line, lineCount } of functions) {
      if (lineCount > bodyMax) faults.push(`${path}:${line}: a function of ${lineCount} lines, at most ${bodyMax}`)
    }
    const longest = Math.max(0, ...functions.map(({ lineCount }) => lineCount))
    if (own?.fileLinesMax !== undefined && lines <= fileLinesMax) faults.push(`${path}: needs no fileLinesMax`)
    if (own?.functionLinesMax !== undefined && longest <= functionLinesMax) {
      faults.push(`${path}: needs no functionLinesMax`)
    }
  }
  for (const [path, exception] of Object.entries(exceptions)) {
    if (!tree.has(path)) faults.push(`${path}: an exception for a file that is not there`)
    if (exception.reason.length < 20) faults.push(`${path}: an exception without a reason`)
  }
  return faults
}

/** Folders with more files side by side than one takes in at a glance. */
export function folderFaults(tree: Tree): string[] {
  const folders = Map.groupBy(tree.keys(), path => path.slice(0, path.lastIndexOf('/')))
  return [...folders]
    .filter(([, files]) => files.length > folderFilesMax)
    .map(([folder, files]) => `${folder}: ${files.length} files side by side, at most ${folderFilesMax}`)
}
